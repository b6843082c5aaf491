package token_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/revocation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/storetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/tokenclaim"
)

// A code can be redeemed once, by exactly one of many concurrent requests. A second use revokes its
// tokens, because one of the senders is an attacker.
func TestCodeUsedOnce(t *testing.T) {
	t.Parallel()
	server := authorizetest.New(t, nil)
	b := authorizetest.NewBrowser(t, server)
	code := b.Code(nil)
	answers := make([]authorizetest.TokenResponse, 50)
	var all sync.WaitGroup
	for i := range answers {
		all.Go(func() {
			answers[i] = authorizetest.Decode[authorizetest.TokenResponse](t, authorizetest.NewBrowser(t, server).Post("/oauth2/token", authorizetest.CodeForm(code, nil)))
		})
	}
	all.Wait()
	var won []authorizetest.TokenResponse
	for _, a := range answers {
		if a.AccessToken != "" {
			won = append(won, a)
		} else if a.Error != "invalid_grant" {
			t.Errorf("%+v", a)
		}
	}
	if len(won) != 1 {
		t.Fatalf("%d of 50 got a token", len(won))
	}
	if r := b.Userinfo(won[0].AccessToken); r.StatusCode != http.StatusUnauthorized {
		t.Errorf("the token still works: %d", r.StatusCode)
	}
	jti, _ := b.Claims(won[0].AccessToken)["jti"].(string)
	if revoked, err := server.IsRevoked(context.Background(), jti); !revoked || err != nil {
		t.Errorf("Revoked = %t, %v", revoked, err)
	}
}

func TestCodeOfRemovedUser(t *testing.T) {
	t.Parallel()
	store := store.NewMemory(0, 0)
	b := authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) { c.Store = store }))
	code := b.Code(nil)
	b.Server = authorizetest.New(t, func(c *authorize.Config) { c.Store = store; c.Users = c.Users[1:] })
	if got := b.RequestTokens(authorizetest.CodeForm(code, nil)); got.Error != "invalid_grant" {
		t.Errorf("%+v", got)
	}
}

// Replaying a code revokes its token even when the store is full, because the entry for it already exists.
func TestCodeUsedTwiceWithFullStore(t *testing.T) {
	t.Parallel()
	store := store.NewMemory(0, 0)
	b := authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) { c.Store = store }))
	code := b.Code(nil)
	token := authorizetest.Decode[authorizetest.TokenResponse](t, b.Post("/oauth2/token", authorizetest.CodeForm(code, nil))).AccessToken
	store.SetMaxEntries(1)
	if got := b.RequestTokens(authorizetest.CodeForm(code, nil)); got.Error != "invalid_grant" {
		t.Errorf("%+v", got)
	}
	if r := b.Userinfo(token); r.StatusCode != http.StatusUnauthorized {
		t.Errorf("the token still works: %d", r.StatusCode)
	}
}

// Codes can be used once and are valid for five minutes (docs/evidence/interface.md §4.1).
func TestCodeValidity(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		wait time.Duration
		want string
	}{
		{"within five minutes", 5*time.Minute - time.Second, ""},
		{"after five minutes", 5*time.Minute + time.Second, "invalid_grant"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := authorizetest.NewBrowser(t, authorizetest.New(t, nil))
				code := b.Code(nil)
				time.Sleep(tt.wait)
				if got := b.RequestTokens(authorizetest.CodeForm(code, nil)); got.Error != tt.want {
					t.Errorf("%+v", got)
				}
			})
		})
	}
}

// Replaying a code revokes its refresh token too.
func TestCodeReuseEndsRefreshTokens(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, authorizetest.AllowRefreshTokens))
	code := b.Code(authorizetest.WithOfflineAccess(nil))
	first := b.RequestTokens(authorizetest.CodeForm(code, nil))
	second := b.Refresh(first.RefreshToken, nil)
	if got := b.RequestTokens(authorizetest.CodeForm(code, nil)); got.Error != "invalid_grant" {
		t.Errorf("%+v", got)
	}
	authorizetest.CheckTokensInvalid(b, second.RefreshToken, first.AccessToken, second.AccessToken)
}

// A replay during the exchange leaves no refresh token behind.
func TestCodeReuseWhileItIsExchanged(t *testing.T) {
	t.Parallel()
	durable := storetest.NewInterceptedStore(nil)
	b := authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) { authorizetest.AllowRefreshTokens(c); c.DurableStore = durable }))
	code := b.Code(authorizetest.WithOfflineAccess(nil))
	durable.Before = func(method, key string) error {
		if method == "Put" && strings.HasPrefix(key, "refresh:") {
			durable.Before = nil // runs only once
			b.Post("/oauth2/token", authorizetest.CodeForm(code, nil))
		}
		return nil
	}
	if got := b.RequestTokens(authorizetest.CodeForm(code, nil)); got.Error != "invalid_grant" || got.AccessToken != "" {
		t.Errorf("%+v", got)
	}
	if remaining, err := durable.List(t.Context(), "refresh:"); err != nil || len(remaining) > 0 {
		t.Errorf("remaining refresh tokens: %v, %v", remaining, err)
	}
}

func TestCodeAtOnceEndsRefreshTokens(t *testing.T) {
	t.Parallel()
	for range 20 {
		server := authorizetest.New(t, authorizetest.AllowRefreshTokens)
		b := authorizetest.NewBrowser(t, server)
		code := b.Code(authorizetest.WithOfflineAccess(nil))
		answers := make([]authorizetest.TokenResponse, 8)
		var all sync.WaitGroup
		for i := range answers {
			all.Go(func() {
				answers[i] = authorizetest.Decode[authorizetest.TokenResponse](t, authorizetest.NewBrowser(t, server).Post("/oauth2/token", authorizetest.CodeForm(code, nil)))
			})
		}
		all.Wait()
		for _, got := range answers {
			if got.RefreshToken != "" {
				authorizetest.CheckTokensInvalid(b, got.RefreshToken, got.AccessToken)
			}
		}
	}
}

func codeReuse(t *testing.T, after time.Duration) {
	b := authorizetest.NewBrowser(t, authorizetest.New(t, nil))
	code := b.Code(nil)
	first := b.RequestTokens(authorizetest.CodeForm(code, nil))
	time.Sleep(after)
	if got := b.RequestTokens(authorizetest.CodeForm(code, nil)); got.Error != "invalid_grant" || b.IsTokenValid(first.AccessToken) {
		t.Errorf("%+v; the first token works: %t", got, b.IsTokenValid(first.AccessToken))
	}
}

// lateReads is a store that, like PostgreSQL, performs reads after the changes of a step. It runs a function once between
// changes and reads.
type lateReads struct {
	store.Store
	between func()
}

func (s *lateReads) Do(ctx context.Context, calls ...*store.Call) error {
	var gets, changes []*store.Call
	for _, c := range calls {
		if c.Op == store.Get {
			gets = append(gets, c)
		} else {
			changes = append(changes, c)
		}
	}
	if len(changes) > 0 && len(gets) > 0 && s.between != nil {
		if err := s.Store.Do(ctx, changes...); err != nil {
			return err
		}
		between := s.between
		s.between = nil
		between()
		return s.Store.Do(ctx, gets...)
	}
	return s.Store.Do(ctx, calls...)
}

// If a code or refresh token is used several times, exactly one use succeeds, even if a replay revokes its tokens before the
// step's reads.
func TestReplayedBeforeTheReads(t *testing.T) {
	t.Parallel()
	for name, grant := range map[string]func(b *authorizetest.Browser) url.Values{
		"a code": func(b *authorizetest.Browser) url.Values {
			return authorizetest.CodeForm(b.Code(authorizetest.WithOfflineAccess(nil)), nil)
		},
		"a refresh token": func(b *authorizetest.Browser) url.Values {
			return authorizetest.RefreshForm(b.Tokens(authorizetest.WithOfflineAccess(nil)).RefreshToken, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			late := &lateReads{Store: store.NewMemory(0, 0)}
			b := authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) {
				authorizetest.AllowRefreshTokens(c)
				c.Store, c.RefreshTokenGrace = late, -1
			}))
			form := grant(b)
			replayed := 0
			late.between = func() { replayed = b.Post("/oauth2/token", form).StatusCode }
			if won := b.Post("/oauth2/token", form).StatusCode; won != http.StatusOK || replayed != http.StatusBadRequest {
				t.Errorf("first: %d, the one in between: %d", won, replayed)
			}
		})
	}
}

// An access token is bound to its client. It is invalid for a later client with the same client_id, and once the client may no
// longer get such tokens.
func TestTokenIsOfClientGeneration(t *testing.T) {
	t.Parallel()
	server := func(change func(app, service *client.Client)) *authorize.Server {
		return authorizetest.New(t, func(c *authorize.Config) {
			app, service := &c.Clients[0], &c.Clients[4]
			app.Generation, service.Generation = 1, 1
			change(app, service)
		})
	}
	first := server(func(_, _ *client.Client) {})
	b := authorizetest.NewBrowser(t, first)
	r := authorizetest.PostRequest("/oauth2/token", url.Values{"grant_type": {"client_credentials"}, "scope": {"system/*.rs"}})
	r.SetBasicAuth("service", "hush")
	tokens := map[string]string{
		"service": authorizetest.Decode[authorizetest.TokenResponse](t, b.Send(r)).AccessToken,
		"app":     b.Tokens(nil).AccessToken,
	}
	for name, tt := range map[string]struct {
		change       func(app, service *client.Client)
		app, service bool
	}{
		"the same clients":   {func(_, _ *client.Client) {}, true, true},
		"another app":        {func(app, _ *client.Client) { app.Generation = 2 }, false, true},
		"an app without one": {func(app, _ *client.Client) { app.Generation = 0 }, false, true},
		"another service":    {func(_, service *client.Client) { service.Generation = 2 }, true, false},
		"a service no longer": {func(_, service *client.Client) {
			service.GrantTypes, service.Secret, service.RedirectURIs = nil, "", []string{authorizetest.Callback}
		}, true, false},
	} {
		s := server(tt.change)
		for client, want := range map[string]bool{"app": tt.app, "service": tt.service} {
			holder, err := s.Holder(t.Context(), holderClaims(b, tokens[client]))
			if err != nil || (holder != nil) != want {
				t.Errorf("%s: the token of %s: %+v, %v", name, client, holder, err)
			}
		}
	}
}

// An access token is void once its user could no longer sign in to the client in the same way, i.e. with the same class of
// authentication, by the same provider and its linked account. If consent is required, the token is void once the consent is
// withdrawn.
func TestTokenDependsOnSignIn(t *testing.T) {
	t.Parallel()
	p, durable := providertest.Start(t), store.NewMemory(0, 0)
	server := func(change func(*people.IdentityProvider, *authorize.Config)) *authorize.Server {
		return authorizetest.NewFederatedServer(t, p, func(idp *people.IdentityProvider, c *authorize.Config) {
			idp.LinkEmail = true
			c.Store, c.DurableStore, c.Users[0].Email = durable, durable, "alice@hospital.example"
			change(idp, c)
		})
	}
	b := authorizetest.NewBrowser(t, server(func(*people.IdentityProvider, *authorize.Config) {}))
	tokens := map[string]tokenclaim.AccessToken{"local": holderClaims(b, b.Tokens(nil).AccessToken)}
	b = authorizetest.NewBrowser(t, b.Server)
	tokens["linked"] = holderClaims(b, authorizetest.FederatedTokens(b, nil).AccessToken)
	if linked := tokens["linked"]; linked.Subject != "alice" || linked.ProviderAccount == "" {
		t.Fatalf("%+v", linked)
	}
	withdrawn := revocation.New(durable, durable, slog.New(slog.DiscardHandler))
	for _, tt := range []struct {
		name          string
		change        func(*people.IdentityProvider, *authorize.Config)
		local, linked bool
	}{
		{"unchanged", func(*people.IdentityProvider, *authorize.Config) {}, true, true},
		{"the client requires another class", func(_ *people.IdentityProvider, c *authorize.Config) { c.Clients[0].ACR = "mfa" }, false, false},
		{"the client permits the provider only", func(_ *people.IdentityProvider, c *authorize.Config) {
			c.Clients[0].IdentityProviders = []string{"hospital"}
		}, false, true},
		{"the client permits local users only", func(_ *people.IdentityProvider, c *authorize.Config) {
			c.Clients[0].IdentityProviders = []string{"local"}
		}, true, false},
		{"the account is not linked", func(idp *people.IdentityProvider, _ *authorize.Config) { idp.LinkEmail = false }, true, false},
		{"the consent was withdrawn", func(_ *people.IdentityProvider, c *authorize.Config) {
			c.Clients[0].Consent = client.ConsentRequired
			authorizetest.NoError(t, withdrawn.CutOff(t.Context(), revocation.ConsentCutoffKey("alice", "app")))
		}, false, false},
		{"a consent was withdrawn that is not required", func(*people.IdentityProvider, *authorize.Config) {}, true, true},
	} {
		s := server(tt.change)
		for kind, want := range map[string]bool{"local": tt.local, "linked": tt.linked} {
			if holder, err := s.Holder(t.Context(), tokens[kind]); err != nil || (holder != nil) != want {
				t.Errorf("%s, %s: %+v, %v", tt.name, kind, holder, err)
			}
		}
	}
}

// holderClaims returns the claims that [authorize.Server.Holder] checks.
func holderClaims(b *authorizetest.Browser, token string) tokenclaim.AccessToken {
	claims := b.Claims(token)
	text := func(name string) string { text, _ := claims[name].(string); return text }
	return tokenclaim.AccessToken{
		ID: text("jti"), Subject: text("sub"), ClientID: text("client_id"), Scope: text("scope"), Session: text("sid"),
		CredentialHash: text("credential_hash"), Provider: text("idp"), ProviderAccount: text("idp_account"), ACR: text("acr"),
	}
}
