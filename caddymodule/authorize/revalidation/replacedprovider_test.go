package revalidation_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
)

// A provider that replaced another one under the same key is never sent the refresh tokens of the other.
func TestReplacedProviderGetsNoToken(t *testing.T) {
	t.Parallel()
	for how, ask := range map[string]func(*hospital, *authorizetest.Browser, authorizetest.TokenResponse){
		"session": func(_ *hospital, b *authorizetest.Browser, _ authorizetest.TokenResponse) { b.SignedIn() },
		"refresh": func(_ *hospital, b *authorizetest.Browser, tokens authorizetest.TokenResponse) {
			b.Refresh(tokens.Refresh, nil)
		},
		"sweep": func(*hospital, *authorizetest.Browser, authorizetest.TokenResponse) { after(interval) },
		"sweep after the session": func(h *hospital, b *authorizetest.Browser, tokens authorizetest.TokenResponse) {
			h.endSessionOf(b, tokens)
			after(48 * time.Hour)
		},
	} {
		for _, access := range []string{"online_access", "offline_access"} {
			t.Run(how+" "+access, func(t *testing.T) {
				t.Parallel()
				inHospital(t, -1, nil, func(h *hospital) {
					b, tokens := h.signIn(access)
					time.Sleep(interval + time.Second)
					successor := replaceProvider(h, "")
					b.Server = h.servers[0]
					if strings.HasPrefix(how, "sweep") {
						ctx, end := context.WithCancel(h.t.Context())
						var running sync.WaitGroup
						defer func() { end(); running.Wait() }()
						running.Go(func() { h.servers[0].Run(ctx) })
					}
					ask(h, b, tokens)
					for _, e := range []providertest.Endpoint{providertest.Token, providertest.Introspection, providertest.UserInfo, providertest.Revocation} {
						if sent := successor.Requests(e); len(sent) > 0 {
							t.Errorf("%s: %d requests, the first with %v", e, len(sent), sent[0].Form)
						}
					}
				})
			})
		}
	}
}

// A provider whose issuer changes keeps the subs of its people by sub_issuer. What they had goes on for as long as an outage, as
// its old refresh tokens are of no use; then they sign in again.
func TestIssuerChangeKeepsSubs(t *testing.T) {
	t.Parallel()
	for _, keeps := range []bool{true, false} {
		inHospital(t, -1, nil, func(h *hospital) {
			b, tokens := h.signIn("offline_access")
			before := b.Claims(tokens.AccessToken)["sub"]
			subIssuer := ""
			if keeps {
				subIssuer = h.Issuer
			}
			h.Provider = replaceProvider(h, subIssuer)
			b.Server = h.servers[0]
			if keeps {
				tokens = h.wantWorks(b, tokens)
			}
			time.Sleep(outage)
			if got := b.Refresh(tokens.Refresh, nil); got.Error != "invalid_grant" || b.SignedIn() {
				t.Errorf("keeps %t: the session goes on, or %+v", keeps, got)
			}
			again, fresh := h.signIn("offline_access")
			if after := again.Claims(fresh.AccessToken)["sub"]; (after == before) != keeps {
				t.Errorf("keeps %t: %v, then %v", keeps, before, after)
			}
			h.wantWorks(again, fresh)
		})
	}
}

// replaceProvider replaces the gateways with one whose provider hospital has another issuer, on the same store, and perhaps the
// subs of an issuer.
func replaceProvider(h *hospital, subIssuer string) *providertest.Provider {
	successor := &hospital{Provider: providertest.New("https://successor.example"), t: h.t}
	successor.Change(func(s *providertest.Settings) {
		s.KeyAlgorithm, s.Metadata["id_token_signing_alg_values_supported"] = "ES256", []string{"ES256"}
	})
	h.servers = []*authorize.Server{authorizetest.NewFederated(h.t, successor.Provider, func(p *people.IdentityProvider, c *authorize.Config) {
		authorizetest.Refreshing(c)
		authorizetest.SigningFast(c)
		c.Clients[0].Scopes = append(c.Clients[0].Scopes, "groups")
		c.Store, p.Transport, p.SubIssuer = h.stored, successor, subIssuer
		c.SessionLifetime, c.AccessTokenLifetime = 24*time.Hour, 24*time.Hour
	})}
	return successor.Provider
}
