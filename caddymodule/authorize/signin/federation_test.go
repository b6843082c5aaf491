package signin

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/browser"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/relyingparty"
)

// A pending sign-in is stored in as many cookies as necessary, is valid for ten minutes, only in the
// browser that started it, and can be used once.
func TestPendingSignInCookies(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		size int
		do   func(back *http.Request)
		want error
	}{
		{"at once", 10, func(*http.Request) {}, nil},
		{"in several pieces", 5000, func(*http.Request) {}, nil},
		{"within ten minutes", 10, func(*http.Request) { time.Sleep(pendingLifetime - time.Second) }, nil},
		{"after ten minutes", 10, func(*http.Request) { time.Sleep(pendingLifetime + 2*time.Second) }, errNoPendingSignIn},
		{"by another browser", 10, func(r *http.Request) { replaceCookie(r, browser.IDPrefix, "other") }, errNoPendingSignIn},
		{"with a piece missing", 5000, func(r *http.Request) { replaceCookie(r, pendingCookieName("state")+"-1", "") }, errNoPendingSignIn},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sealer := &browser.Sealer{Keys: keyring.New(new(providertest.Storage), "keys", slog.New(slog.DiscardHandler))}
				pending := pendingSignIn{Provider: "p", Query: strings.Repeat("q", tt.size), Request: relyingparty.AuthenticationRequest{State: "state"}}
				w := httptest.NewRecorder()
				if err := pending.setCookie(sealer, w, httptest.NewRequest(http.MethodGet, "/", nil)); err != nil {
					t.Fatal(err)
				}
				back := httptest.NewRequest(http.MethodGet, "/", nil)
				for _, c := range w.Result().Cookies() {
					if len(c.String()) > 4096 || !c.Secure || !c.HttpOnly || c.SameSite != http.SameSiteLaxMode {
						t.Errorf("cookie %d bytes, %+.100v", len(c.String()), c)
					}
					back.AddCookie(c)
				}
				tt.do(back)
				again := httptest.NewRecorder()
				got, err := readPending(sealer, back, "state")
				browser.RemoveChunkedCookie(again, back, pendingCookieName("state"))
				if !errors.Is(err, tt.want) || err == nil && !reflect.DeepEqual(got, pending) {
					t.Errorf("error %v, want %v", err, tt.want)
				}
				for _, c := range again.Result().Cookies() {
					if c.MaxAge >= 0 {
						t.Errorf("cookie %s stays", c.Name)
					}
				}
				if err == nil && len(again.Result().Cookies()) == 0 {
					t.Error("no cookie is removed")
				}
			})
		})
	}
}

// The URL of the page for rejected people, which contains their ID token, expires.
func TestRefusalLifetime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &rejectionPage{renderer: &Renderer{Sealer: &browser.Sealer{Keys: keyring.New(new(providertest.Storage), "keys", slog.New(slog.DiscardHandler))}}}
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)
		sealed, err := f.renderer.Sealer.Seal(w, r, "refused", `{"provider":"p"}`)
		if err != nil {
			t.Fatal(err)
		}
		r.AddCookie(w.Result().Cookies()[0])
		for _, want := range []error{nil, ErrPageExpired} {
			if refused, err := f.unseal(r, sealed); !errors.Is(err, want) || (refused.Provider == "p") != (want == nil) {
				t.Errorf("%+v, %v, want %v", refused, err, want)
			}
			time.Sleep(10*time.Minute + 2*time.Second)
		}
	})
}

// replaceCookie sets the value of all cookies with a name that begins with name.
func replaceCookie(r *http.Request, name, value string) {
	cookies := r.Cookies()
	r.Header.Del("Cookie")
	for _, c := range cookies {
		if strings.HasPrefix(c.Name, name) {
			c.Value = value
		}
		if c.Value != "" {
			r.AddCookie(c)
		}
	}
}

// Anyone can send forged responses. Beyond the limit they are not recorded and do not block other sign-ins.
func TestSignInAmongForgedResponses(t *testing.T) {
	t.Parallel()
	idp, logger := providertest.Start(t), slog.New(slog.DiscardHandler)
	accounts := &people.Accounts{
		Directory: new(people.Directory), Providers: map[string]*people.Provider{}, Store: store.NewMemory(0, 0), DurableStore: store.NewMemory(0, 0),
		Lifetime: time.Hour, Logger: logger,
	}
	if err := accounts.AddProvider(people.IdentityProvider{
		Key: "p", Issuer: idp.Issuer, ClientID: providertest.ClientID, ClientSecret: providertest.ClientSecret,
	}, "https://fhir.example.org/oauth2/callback/p"); err != nil {
		t.Fatal(err)
	}
	f := &federation{accounts: accounts, store: store.NewMemory(1, 0), failedIdentities: newIdentities(), usedStates: store.NewPerUserLimit(maxUsedStates, pendingLifetime)}
	if err := f.store.Add(t.Context(), "made up", nil, pendingLifetime); err != nil {
		t.Fatal(err)
	}
	p := accounts.Providers["p"]
	pending := pendingSignIn{Provider: "p", Request: relyingparty.AuthenticationRequest{State: oauth2.RandomToken(), Nonce: oauth2.RandomToken(), Verifier: oauth2.RandomToken()}}
	target, err := p.Client.AuthenticationURL(t.Context(), pending.Request)
	if err != nil {
		t.Fatal(err)
	}
	q := oauth2.Parameters(idp.Authorize(t, target))
	back := httptest.NewRequest(http.MethodGet, "/oauth2/callback/p", nil)
	if user, _, err := f.authenticate(back, p, &Request{Destination: Destination{ClientID: "app"}}, &authenticationResponse{pending: pending, parameters: q}); err != nil || user == nil {
		t.Errorf("%v, %v", user, err)
	}
}
