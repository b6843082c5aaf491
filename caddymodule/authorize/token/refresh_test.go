package token_test

import (
	"maps"
	"net/http"
	"net/url"
	"regexp"
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
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

const month = 30 * 24 * time.Hour

var opaque = regexp.MustCompile(`^[A-Za-z0-9_-]{64}$`)

func TestRefresh(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, authorizetest.AllowRefreshTokens))
	first := b.Tokens(authorizetest.WithOfflineAccess(nil))
	if !opaque.MatchString(first.RefreshToken) {
		t.Fatalf("refresh token %q", first.RefreshToken)
	}
	r := b.Post("/oauth2/token", authorizetest.RefreshForm(first.RefreshToken, nil))
	if r.Header.Get("Cache-Control") != "no-store" || r.Header.Get("Pragma") != "no-cache" {
		t.Errorf("header %v", r.Header)
	}
	second := authorizetest.Decode[authorizetest.TokenResponse](t, r)
	if second.RefreshToken == first.RefreshToken || !opaque.MatchString(second.RefreshToken) || second.Scope != first.Scope || second.ExpiresIn != 3600 || second.TokenType != "Bearer" {
		t.Errorf("%+v", second)
	}
	if !b.IsTokenValid(first.AccessToken) || !b.IsTokenValid(second.AccessToken) {
		t.Error("an access token does not work")
	}
	before, after := b.Claims(first.IDToken), b.Claims(second.IDToken)
	for _, name := range []string{"iss", "sub", "aud", "auth_time"} {
		if before[name] != after[name] || after[name] == nil {
			t.Errorf("%s: %v, after the refresh %v", name, before[name], after[name])
		}
	}
	if _, there := after["nonce"]; there || before["nonce"] != "n" || after["at_hash"] == before["at_hash"] {
		t.Errorf("before %v, after %v", before, after)
	}
	if b.Claims(first.AccessToken)["jti"] == b.Claims(second.AccessToken)["jti"] {
		t.Error("two access tokens have one jti")
	}
}

// A refresh token is issued only in the code flow, and only if offline_access or online_access was granted.
func TestRefreshTokenIssued(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, scope string
		change      func(*authorize.Config)
		want        bool
	}{
		{"offline_access", "openid offline_access", authorizetest.AllowRefreshTokens, true},
		{"online_access", "openid online_access", authorizetest.AllowRefreshTokens, true},
		{"neither", "openid", authorizetest.AllowRefreshTokens, false},
		{"without openid", "demo.read offline_access", authorizetest.AllowRefreshTokens, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := authorizetest.NewBrowser(t, authorizetest.New(t, tt.change))
			if got := b.Tokens(url.Values{"scope": {tt.scope}}); got.RefreshToken != "" != tt.want {
				t.Errorf("%+v", got)
			}
		})
	}
	t.Run("a client that may not have the scope", func(t *testing.T) {
		b := authorizetest.NewBrowser(t, authorizetest.New(t, nil))
		if got := b.Tokens(authorizetest.WithOfflineAccess(nil)); got.RefreshToken != "" || strings.Contains(got.Scope, "offline_access") {
			t.Errorf("%+v", got)
		}
	})
	t.Run("the token flow", func(t *testing.T) {
		b := authorizetest.NewBrowser(t, authorizetest.New(t, authorizetest.AllowRefreshTokens))
		fragment := b.SignInAlice(authorizetest.Request(authorizetest.WithOfflineAccess(url.Values{"response_type": {"token"}}))).Fragment
		if values, err := url.ParseQuery(fragment); err != nil || values.Has("refresh_token") || values.Get("scope") != "openid user/*.rs" {
			t.Errorf("fragment %s", fragment)
		}
		// RFC 6749 §3.3: "scope = scope-token *( SP scope-token )". An empty scope is invalid.
		u := authorizetest.Location(t, b.Authorize(authorizetest.Request(url.Values{"response_type": {"token"}, "scope": {"offline_access online_access"}})))
		if u.Query().Get("error") != "invalid_scope" {
			t.Errorf("a refresh token alone: %s", u)
		}
	})
	t.Run("client_credentials", func(t *testing.T) {
		b := authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) { c.Clients[4].Scopes = append(c.Clients[4].Scopes, "offline_access") }))
		for _, scope := range []string{"system/*.rs", "offline_access", "system/*.rs offline_access"} {
			r := authorizetest.PostRequest("/oauth2/token", url.Values{"grant_type": {"client_credentials"}, "scope": {scope}})
			r.SetBasicAuth("service", "hush")
			if got := authorizetest.Decode[authorizetest.TokenResponse](t, b.Send(r)); got.RefreshToken != "" {
				t.Errorf("%s: %+v", scope, got)
			}
		}
	})
}

func TestRefreshErrors(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, authorizetest.AllowRefreshTokens))
	token := b.Tokens(authorizetest.WithOfflineAccess(nil)).RefreshToken
	altered := func(i int) string {
		c := byte('A')
		if token[i] == c {
			c = 'B'
		}
		return token[:i] + string(c) + token[i+1:]
	}
	tests := []struct {
		name   string
		change url.Values
		want   string
	}{
		{"no token", url.Values{"refresh_token": {""}}, "invalid_request"},
		{"unknown", url.Values{"refresh_token": {strings.Repeat("A", 64)}}, "invalid_grant"},
		{"cut short", url.Values{"refresh_token": {token[:63]}}, "invalid_grant"},
		{"cut short by a group", url.Values{"refresh_token": {token[:60]}}, "invalid_grant"},
		{"longer", url.Values{"refresh_token": {token + "A"}}, "invalid_grant"},
		{"longer by a group", url.Values{"refresh_token": {token + "AAAA"}}, "invalid_grant"},
		{"a line end in it", url.Values{"refresh_token": {token[:8] + "\n" + token[8:]}}, "invalid_grant"},
		{"another family", url.Values{"refresh_token": {altered(3)}}, "invalid_grant"},
		{"another secret", url.Values{"refresh_token": {altered(30)}}, "invalid_grant"},
		{"another tag", url.Values{"refresh_token": {altered(50)}}, "invalid_grant"},
		{"not base64url", url.Values{"refresh_token": {strings.Repeat("!", 64)}}, "invalid_grant"},
		{"another client", url.Values{"client_id": {"strict"}}, "invalid_grant"},
		{"an unknown client", url.Values{"client_id": {"nobody"}}, "invalid_client"},
		{"the token twice", url.Values{"refresh_token": {token, token}}, "invalid_request"},
		{"a wider scope", url.Values{"scope": {"openid demo.read"}}, "invalid_scope"},
		{"a wider permission", url.Values{"scope": {"user/Patient.cruds"}}, "invalid_scope"},
		{"a malformed scope", url.Values{"scope": {`a"b`}}, "invalid_scope"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := b.Refresh(token, tt.change); got.Error != tt.want || got.AccessToken != "" || got.RefreshToken != "" {
				t.Errorf("%+v", got)
			}
		})
	}
	if got := b.Refresh(token, nil); got.AccessToken == "" {
		t.Errorf("others' mistakes used the token up: %+v", got)
	}
}

// A public client may omit client_id, but a confidential client may not.
func TestRefreshWithoutClientID(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, authorizetest.AllowRefreshTokens))
	token := b.Tokens(authorizetest.WithOfflineAccess(nil)).RefreshToken
	if got := b.Refresh(token, url.Values{"client_id": {""}}); got.RefreshToken == "" {
		t.Errorf("a public client: %+v", got)
	}
	if got := b.Refresh(strings.Repeat("A", 64), url.Values{"client_id": {""}}); got.Error != "invalid_grant" {
		t.Errorf("an unknown token: %+v", got)
	}
	confidential := confidentialTokens(authorizetest.NewBrowser(t, b.Server))
	if got := b.Refresh(confidential.RefreshToken, url.Values{"client_id": {""}}); got.Error != "invalid_client" {
		t.Errorf("a client with a secret: %+v", got)
	}
	if got := b.Refresh(confidential.RefreshToken, url.Values{"client_id": {"confidential"}}); got.Error != "invalid_client" {
		t.Errorf("a client without its secret: %+v", got)
	}
	if got := b.Refresh(confidential.RefreshToken, url.Values{"client_id": {"confidential"}, "client_secret": {"s3cret/+ %"}}); got.RefreshToken == "" {
		t.Errorf("a client with its secret: %+v", got)
	}
}

func confidentialTokens(b *authorizetest.Browser) authorizetest.TokenResponse {
	redirect := url.Values{"redirect_uri": {authorizetest.Callback + "?tenant=1"}, "client_id": {"confidential"}}
	code := b.Code(url.Values{"redirect_uri": redirect["redirect_uri"], "client_id": redirect["client_id"], "scope": {"openid offline_access"}})
	redirect.Set("client_secret", "s3cret/+ %")
	return b.RequestTokens(authorizetest.CodeForm(code, redirect))
}

// A refresh that exceeds the granted scope in any way is rejected with invalid_scope and changes
// nothing (RFC 6749 §6). An equal or narrower scope is granted as requested.
func TestRefreshBeyondGrantedScope(t *testing.T) {
	t.Parallel()
	stored := store.NewMemory(0, 0)
	server := authorizetest.New(t, func(c *authorize.Config) {
		authorizetest.AllowRefreshTokens(c)
		c.Clients[0].Scopes = append(c.Clients[0].Scopes, "user/*.cruds", "launch", "profile")
		c.Store = stored
	})
	families := func() map[string]string {
		values := map[string]string{}
		keys, err := stored.List(t.Context(), "refresh:")
		authorizetest.NoError(t, err)
		for _, key := range keys {
			value, err := stored.Get(t.Context(), key)
			authorizetest.NoError(t, err)
			values[key] = string(value)
		}
		return values
	}
	for granted, requested := range map[string]struct{ more, less []string }{
		"offline_access user/*.rs": {
			more: []string{
				"user/*.cruds", "user/*.*", "user/*.write", "user/*.rsu", "user/*.rs user/*.cruds", "user/*.cruds user/*.rs", "user/Observation.cruds", "user/Observation.*",
				"patient/*.rs", "system/*.rs", "openid", "user/*.rs openid", "online_access", "demo.read", "user/*.rs nonsense", "launch/patient", "USER/*.rs",
			},
			less: []string{
				"user/*.rs", "user/*.read", "user/*.r", "user/Observation.rs", "user/Observation.rs?category=http://x|y", "user/*.rs user/Patient.r", "offline_access user/*.rs",
				"user/*.rs offline_access", "user/*.rs?_security=x",
			},
		},
		"offline_access user/Observation.rs user/Patient.r": {
			more: []string{"user/*.rs", "user/*.r", "user/*.cruds", "user/*.read", "user/Observation.rs user/Patient.rs", "user/Condition.r", "user/*.r?_security=x"},
			less: []string{"user/Observation.rs", "user/Patient.r user/Observation.r", "user/Observation.read"},
		},
		"offline_access user/Observation.rs?category=http://x|y": {
			more: []string{"user/Observation.rs", "user/*.rs", "user/*.rs?category=http://x|y", "user/Observation.rs?category=http://x|z", "user/Observation.cruds?category=http://x|y"},
			less: []string{"user/Observation.rs?category=http://x|y", "user/Observation.r?category=http://x|y"},
		},
	} {
		b := authorizetest.NewBrowser(t, server)
		first := b.Tokens(url.Values{"scope": {granted}})
		if first.Scope != granted {
			t.Fatalf("granted %q", first.Scope)
		}
		token, before := first.RefreshToken, families()
		for _, scope := range requested.more {
			if got := b.Refresh(token, url.Values{"scope": {scope}}); got.Error != "invalid_scope" || got.AccessToken+got.RefreshToken != "" {
				t.Errorf("%s of %s: %+v", scope, granted, got)
			}
		}
		if !maps.Equal(families(), before) {
			t.Errorf("%s: a refused refresh changed the grant", granted)
		}
		for _, scope := range requested.less {
			got := b.Refresh(token, url.Values{"scope": {scope}})
			if got.Scope != scope || got.AccessToken == "" {
				t.Errorf("%s of %s: %+v", scope, granted, got)
			}
			token = got.RefreshToken
		}
		if got := b.Refresh(token, nil); got.Scope != granted {
			t.Errorf("%s: then the whole: %+v", granted, got)
		}
	}
}

// A narrower scope applies to one refresh only. The next refresh has the full scope again (RFC 6749 §6).
func TestRefreshNarrowsScope(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, authorizetest.AllowRefreshTokens))
	first := b.Tokens(authorizetest.WithOfflineAccess(nil))
	narrow := b.Refresh(first.RefreshToken, url.Values{"scope": {"user/Observation.rs"}})
	if narrow.Scope != "user/Observation.rs" || narrow.IDToken != "" || narrow.RefreshToken == "" {
		t.Errorf("%+v", narrow)
	}
	if got := b.Claims(narrow.AccessToken)["scope"]; got != "user/Observation.rs" {
		t.Errorf("scope of the access token %v", got)
	}
	if full := b.Refresh(narrow.RefreshToken, nil); full.Scope != first.Scope || full.IDToken == "" {
		t.Errorf("%+v", full)
	}
}

// Reuse within the grace period returns the same successor. Reuse afterwards, or after the
// successor was used, revokes the family.
func TestRefreshTokenReuse(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		reuse func(b *authorizetest.Browser, first, second authorizetest.TokenResponse) authorizetest.TokenResponse
		again bool
	}{
		{"at once", func(b *authorizetest.Browser, first, _ authorizetest.TokenResponse) authorizetest.TokenResponse {
			return b.Refresh(first.RefreshToken, nil)
		}, true},
		{"just within the grace", func(b *authorizetest.Browser, first, _ authorizetest.TokenResponse) authorizetest.TokenResponse {
			time.Sleep(authorize.DefaultRefreshTokenGrace - time.Millisecond)
			return b.Refresh(first.RefreshToken, nil)
		}, true},
		{"after the grace", func(b *authorizetest.Browser, first, _ authorizetest.TokenResponse) authorizetest.TokenResponse {
			time.Sleep(authorize.DefaultRefreshTokenGrace)
			return b.Refresh(first.RefreshToken, nil)
		}, false},
		{"once the successor was used", func(b *authorizetest.Browser, first, second authorizetest.TokenResponse) authorizetest.TokenResponse {
			b.Refresh(second.RefreshToken, nil)
			return b.Refresh(first.RefreshToken, nil)
		}, false},
		{"after many", func(b *authorizetest.Browser, first, second authorizetest.TokenResponse) authorizetest.TokenResponse {
			for range 5 {
				time.Sleep(24 * time.Hour)
				second = b.Refresh(second.RefreshToken, nil)
			}
			return b.Refresh(first.RefreshToken, nil)
		}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := authorizetest.NewBrowser(t, authorizetest.New(t, authorizetest.AllowRefreshTokens))
				first := b.Tokens(authorizetest.WithOfflineAccess(nil))
				second := b.Refresh(first.RefreshToken, nil)
				got := tt.reuse(b, first, second)
				if tt.again {
					if got.RefreshToken != second.RefreshToken || !b.IsTokenValid(got.AccessToken) {
						t.Errorf("%+v", got)
					}
					return
				}
				if got.Error != "invalid_grant" {
					t.Errorf("%+v", got)
				}
				authorizetest.CheckTokensInvalid(b, second.RefreshToken, first.AccessToken, second.AccessToken)
				time.Sleep(2 * 24 * time.Hour) // after the revocation entry has expired
				authorizetest.CheckTokensInvalid(b, second.RefreshToken)
			})
		})
	}
}

func TestNoRefreshGrace(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) { authorizetest.AllowRefreshTokens(c); c.RefreshTokenGrace = -1 }))
	first := b.Tokens(authorizetest.WithOfflineAccess(nil))
	second := b.Refresh(first.RefreshToken, nil)
	if got := b.Refresh(first.RefreshToken, nil); got.Error != "invalid_grant" {
		t.Errorf("%+v", got)
	}
	authorizetest.CheckTokensInvalid(b, second.RefreshToken, first.AccessToken, second.AccessToken)
}

// If another client uses a refresh token, nothing changes, regardless of whether the token was used before.
func TestRefreshByAnotherClientChangesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := authorizetest.NewBrowser(t, authorizetest.New(t, authorizetest.AllowRefreshTokens))
		first := b.Tokens(authorizetest.WithOfflineAccess(nil))
		second := b.Refresh(first.RefreshToken, nil)
		time.Sleep(time.Hour / 2)
		for _, token := range []string{first.RefreshToken, second.RefreshToken} {
			if got := b.Refresh(token, url.Values{"client_id": {"strict"}}); got.Error != "invalid_grant" {
				t.Errorf("%+v", got)
			}
		}
		if got := b.Refresh(second.RefreshToken, nil); got.RefreshToken == "" {
			t.Errorf("the client itself: %+v", got)
		}
	})
}

// Exactly one of several concurrent refreshes rotates the token. Within the grace period, the others get the same successor.
func TestRefreshAtOnce(t *testing.T) {
	t.Parallel()
	for _, grace := range []time.Duration{0, -1} {
		server := authorizetest.New(t, func(c *authorize.Config) { authorizetest.AllowRefreshTokens(c); c.RefreshTokenGrace = grace })
		b := authorizetest.NewBrowser(t, server)
		token := b.Tokens(authorizetest.WithOfflineAccess(nil)).RefreshToken
		successors := map[string]int{}
		var mu sync.Mutex
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				got := authorizetest.NewBrowser(t, server).Refresh(token, nil)
				mu.Lock()
				defer mu.Unlock()
				successors[got.RefreshToken+got.Error]++
			})
		}
		all.Wait()
		switch {
		case grace < 0 && (successors["invalid_grant"] != 49 || len(successors) != 2):
			t.Errorf("without a grace: %v", successors)
		case grace == 0 && len(successors) != 1:
			t.Errorf("with a grace: %v", successors)
		}
		for successor := range successors {
			if got := b.Refresh(successor, nil); grace == 0 && got.RefreshToken == "" || grace < 0 && got.RefreshToken != "" {
				t.Errorf("grace %v: the successor gives %+v", grace, got)
			}
		}
	}
}

// A refresh token is rejected while its user, client or scope is missing, and accepted again afterwards. A rejection does not
// mark the token as used.
func TestRefreshAfterConfigChange(t *testing.T) {
	t.Parallel()
	app := func(change func(*client.Client)) func(*authorize.Config) {
		return func(c *authorize.Config) { change(&c.Clients[0]) }
	}
	tests := []struct {
		name   string
		change func(*authorize.Config)
		want   string
	}{
		{"nothing has changed", func(*authorize.Config) {}, ""},
		{"the user is disabled", func(c *authorize.Config) { c.Users[0].Disabled = true }, "invalid_grant"},
		{"the user is removed", func(c *authorize.Config) { c.Users = c.Users[1:] }, "invalid_grant"},
		{"the user has another password", func(c *authorize.Config) { c.Users[0].PasswordHash = "new" }, "invalid_grant"},
		{"the client is gone", func(c *authorize.Config) { c.Clients = c.Clients[1:] }, "invalid_client"},
		{"the client has lost offline_access", app(func(c *client.Client) { c.Scopes = []string{"user/*.rs", "online_access"} }), "invalid_grant"},
		{"the client has lost another scope", app(func(c *client.Client) { c.Scopes = []string{"user/Patient.rs", "offline_access"} }), "invalid_grant"},
		{"the client has lost the flow", app(func(c *client.Client) { c.ResponseTypes = []string{"token"} }), "unauthorized_client"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			store := store.NewMemory(0, 0)
			with := func(change func(*authorize.Config)) *authorize.Server {
				return authorizetest.New(t, func(c *authorize.Config) {
					authorizetest.AllowRefreshTokens(c)
					c.Store, c.RefreshTokenGrace = store, -1
					change(c)
				})
			}
			b := authorizetest.NewBrowser(t, with(func(*authorize.Config) {}))
			token := b.Tokens(authorizetest.WithOfflineAccess(nil)).RefreshToken
			b.Server = with(tt.change)
			if got := b.Refresh(token, nil); got.Error != tt.want || got.AccessToken != "" != (tt.want == "") {
				t.Errorf("%+v", got)
			}
			b.Server = with(func(*authorize.Config) {})
			if got := b.Refresh(token, nil); tt.want != "" && got.AccessToken == "" {
				t.Errorf("when all is as it was: %+v", got)
			}
		})
	}
}

// Access with online_access ends with the session. Access with offline_access does not.
func TestRefreshAndSession(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		scope string
		lives bool
	}{{"openid online_access", false}, {"openid offline_access", true}, {"openid online_access offline_access", true}} {
		t.Run(tt.scope, func(t *testing.T) {
			b := authorizetest.NewBrowser(t, authorizetest.New(t, authorizetest.AllowRefreshTokens))
			got := b.Tokens(url.Values{"scope": {tt.scope}})
			got = b.Refresh(got.RefreshToken, nil)
			if got.RefreshToken == "" {
				t.Fatalf("while signed in: %+v", got)
			}
			b.Get("/oauth2/logout?" + url.Values{"id_token_hint": {got.IDToken}}.Encode())
			if after := b.Refresh(got.RefreshToken, nil); after.RefreshToken != "" != tt.lives {
				t.Errorf("after signing out: %+v", after)
			}
		})
	}
}

func TestRefreshLifetimes(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name                      string
		scope                     string
		lifetime, idle, wait, per time.Duration
		want                      bool
	}{
		{"just within the default", "offline_access", 0, 0, 3*month - time.Minute, 3 * month, true},
		{"after the default", "offline_access", 0, 0, 3 * month, 3 * month, false},
		{"used each day, after the default", "offline_access", 0, 0, 3*month + time.Minute, 24 * time.Hour, false},
		{"used each day", "offline_access", 0, 0, 3*month - time.Minute, 24 * time.Hour, true},
		{"idle for too long", "offline_access", 0, time.Hour, time.Hour, time.Hour, false},
		{"idle for just not too long", "offline_access", 0, time.Hour, time.Hour - time.Second, time.Hour, true},
		{"never idle for long", "offline_access", 0, time.Hour, 5 * time.Hour, time.Hour / 2, true},
		{"a lifetime of its own", "offline_access", time.Hour, 0, time.Hour, time.Hour, false},
		{"online, after the session", "online_access", 0, 0, authorize.DefaultSessionLifetime, time.Hour, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) {
					authorizetest.AllowRefreshTokens(c)
					c.RefreshTokenLifetime, c.RefreshTokenIdleLifetime = tt.lifetime, tt.idle
				}))
				token := b.Tokens(url.Values{"scope": {tt.scope}}).RefreshToken
				for remaining := tt.wait; remaining > 0 && token != ""; remaining -= tt.per {
					time.Sleep(min(tt.per, remaining))
					token = b.Refresh(token, nil).RefreshToken
				}
				if token != "" != tt.want {
					t.Errorf("refresh token %q", token)
				}
			})
		})
	}
}

// A refresh token of a federated user is still valid after a restart.
func TestRefreshOfFederatedUser(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	durable := store.NewMemory(0, 0)
	restart := func(change func(*people.IdentityProvider)) *authorize.Server {
		return authorizetest.NewFederatedServer(t, p, func(idp *people.IdentityProvider, c *authorize.Config) {
			authorizetest.AllowRefreshTokens(c)
			c.DurableStore = durable
			change(idp)
		})
	}
	b := authorizetest.NewBrowser(t, restart(func(*people.IdentityProvider) {}))
	token := authorizetest.FederatedTokens(b, authorizetest.WithOfflineAccess(nil))
	b.Server = restart(func(*people.IdentityProvider) {})
	next := b.Refresh(token.RefreshToken, nil)
	if !b.IsTokenValid(token.AccessToken) || !b.IsTokenValid(next.AccessToken) {
		t.Fatalf("after a restart: %+v", next)
	}
	b.Server = restart(func(idp *people.IdentityProvider) { idp.Key = "another" })
	authorizetest.CheckTokensInvalid(b, next.RefreshToken, next.AccessToken)
}

// While the durable store fails, no tokens are issued and no operation reports success.
func TestDurableStoreFails(t *testing.T) {
	t.Parallel()
	broken := false
	durable := authorizetest.NewFailingStore(&broken)
	b := authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) { authorizetest.AllowRefreshTokens(c); c.DurableStore = durable }))
	tokens := b.Tokens(authorizetest.WithOfflineAccess(nil))
	broken = true
	for name, send := range map[string]func() *http.Response{
		"refresh": func() *http.Response {
			return b.Post("/oauth2/token", authorizetest.RefreshForm(tokens.RefreshToken, nil))
		},
		"revoke refresh": func() *http.Response {
			return authorizetest.SendTokenForm(b, "/oauth2/revoke", tokens.RefreshToken, "app", "")
		},
		"revoke access": func() *http.Response {
			return authorizetest.SendTokenForm(b, "/oauth2/revoke", tokens.AccessToken, "app", "")
		},
	} {
		r := send()
		if got := authorizetest.Decode[authorizetest.TokenResponse](t, r); r.StatusCode != http.StatusServiceUnavailable || got.Error != "server_error" || got.AccessToken != "" {
			t.Errorf("%s: %d %+v", name, r.StatusCode, got)
		}
	}
	broken = false
	if r := authorizetest.SendTokenForm(b, "/oauth2/revoke", tokens.RefreshToken, "app", ""); r.StatusCode != http.StatusOK {
		t.Errorf("afterwards: %d", r.StatusCode)
	}
	authorizetest.CheckTokensInvalid(b, tokens.RefreshToken, tokens.AccessToken)
}

// Revocations and grants survive a restart, which empties the memory store. Until revocations have
// been loaded, every token is rejected.
func TestRestart(t *testing.T) {
	t.Parallel()
	broken := false
	durable := authorizetest.NewFailingStore(&broken)
	restart := func() *authorize.Server {
		return authorizetest.New(t, func(c *authorize.Config) { authorizetest.AllowRefreshTokens(c); c.DurableStore = durable })
	}
	b := authorizetest.NewBrowser(t, restart())
	signedIn := func() authorizetest.TokenResponse {
		return authorizetest.NewBrowser(t, b.Server).Tokens(authorizetest.WithOfflineAccess(nil))
	}
	unrevoked, family, single := signedIn(), signedIn(), signedIn()
	authorizetest.SendTokenForm(b, "/oauth2/revoke", family.RefreshToken, "app", "")
	authorizetest.SendTokenForm(b, "/oauth2/revoke", single.AccessToken, "app", "")
	b.Server = restart()
	broken = true
	if r := b.Userinfo(unrevoked.AccessToken); r.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("while revocations cannot be read: %d", r.StatusCode)
	}
	broken = false
	authorizetest.CheckTokensInvalid(b, family.RefreshToken, family.AccessToken, single.AccessToken)
	if got := b.Refresh(unrevoked.RefreshToken, nil); !b.IsTokenValid(unrevoked.AccessToken) || got.RefreshToken == "" {
		t.Errorf("unrevoked tokens: %+v", got)
	}
	if got := b.Refresh(single.RefreshToken, nil); got.RefreshToken == "" {
		t.Errorf("the refresh token beside a revoked access token: %+v", got)
	}
}

// A crash or store outage may lose the response with the new token. The grace period then starts at the end of the outage.
// Tokens rotated after the outage, or well before it, have the ordinary grace period.
func TestGraceAfterOutage(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name      string
		began     time.Duration // start of the outage relative to the rotation; 0 means unknown, e.g. after a restart
		outageEnd time.Duration // end of the outage relative to the rotation
		later     time.Duration // time from the end of the outage to the retry
		grace     time.Duration
		again     bool // whether the same successor is expected
	}{
		{"restart", 0, time.Minute, 0, 0, true},
		{"restart, within the grace", 0, time.Hour, 9 * time.Second, 0, true},
		{"restart, after the grace", 0, time.Minute, 11 * time.Second, 0, false},
		{"restart, without a grace", 0, time.Minute, 0, -1, false},
		{"rotated after the restart", 0, -time.Second, 11 * time.Second, 0, false},
		{"rotated during the outage", -time.Second, time.Minute, 9 * time.Second, 0, true},
		{"rotated during the outage, after the grace", -time.Second, time.Minute, 11 * time.Second, 0, false},
		{"rotated shortly before the outage", 9 * time.Second, time.Minute, 9 * time.Second, 0, true},
		{"rotated shortly before the outage, without a grace", time.Second, time.Minute, 0, -1, false},
		{"rotated long before the outage", 11 * time.Second, 20 * time.Second, 0, 0, false},
		{"rotated after the outage", -time.Minute, -time.Second, 11 * time.Second, 0, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var outage store.Outage
				b := authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) {
					authorizetest.AllowRefreshTokens(c)
					c.RefreshTokenGrace = tt.grace
					c.Outages = func() []store.Outage { return []store.Outage{outage} }
				}))
				first := b.Tokens(authorizetest.WithOfflineAccess(nil)).RefreshToken
				lost := b.Refresh(first, nil).RefreshToken
				if outage.EndedAt = time.Now().Add(tt.outageEnd); tt.began != 0 {
					outage.StartedAt = time.Now().Add(tt.began)
				}
				time.Sleep(tt.outageEnd + tt.later)
				if again := b.Refresh(first, nil).RefreshToken; (again == lost) != tt.again {
					t.Errorf("given %q, and before %q", again, lost)
				}
			})
		})
	}
}

// TestSessionIdle checks which sessions end after 15 minutes without activity, and which requests are activity.
func TestSessionIdle(t *testing.T) {
	t.Parallel()
	const idle = 15 * time.Minute
	visit := func(b *authorizetest.Browser, _ *authorizetest.TokenResponse) { b.HasSession() }
	refresh := func(b *authorizetest.Browser, got *authorizetest.TokenResponse) {
		*got = b.Refresh(got.RefreshToken, nil)
	}
	introspect := func(b *authorizetest.Browser, got *authorizetest.TokenResponse) { b.IsTokenValid(got.AccessToken) }
	for _, tt := range []struct {
		name, scope string
		idle        time.Duration
		act         func(*authorizetest.Browser, *authorizetest.TokenResponse) // repeated every five minutes
		after       time.Duration
		signedIn    bool
		refreshes   bool
	}{
		{"idle, no limit", "online_access", 0, nil, 7 * time.Hour, true, true},
		{"idle for a short time", "online_access", idle, nil, 13 * time.Minute, true, true},
		{"idle for too long", "online_access", idle, nil, idle + time.Second, false, false},
		{"visits", "online_access", idle, visit, 7 * time.Hour, true, true},
		{"visits, after the session's lifetime", "online_access", idle, visit, authorize.DefaultSessionLifetime + time.Second, false, false},
		{"refreshes with online_access", "online_access", idle, refresh, 7 * time.Hour, true, true},
		{"refreshes with offline_access", "offline_access", idle, refresh, idle + time.Second, false, true},
		{"uses of the access token", "online_access", idle, introspect, idle + time.Second, false, false},
		{"idle, with offline_access", "offline_access", idle, nil, 7 * time.Hour, false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) {
					authorizetest.AllowRefreshTokens(c)
					c.SessionIdleTimeout = tt.idle
				}))
				got := b.Tokens(url.Values{"scope": {tt.scope}})
				for remaining := tt.after; remaining > 0; remaining -= 5 * time.Minute {
					if tt.act != nil {
						tt.act(b, &got)
					}
					time.Sleep(min(remaining, 5*time.Minute))
				}
				if refreshed := b.Refresh(got.RefreshToken, nil); refreshed.RefreshToken != "" != tt.refreshes {
					t.Errorf("refreshed: %+v", refreshed)
				}
				if b.HasSession() != tt.signedIn {
					t.Errorf("signed in: %v", !tt.signedIn)
				}
			})
		})
	}
}

// TestSessionFromBeforeIdleLimit checks that a session from before the idle limit was configured continues while its user is
// active, until the session expires.
func TestSessionFromBeforeIdleLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var config authorize.Config
		b := authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) { config.DurableStore, config.Store = c.DurableStore, c.Store }))
		b.Tokens(nil)
		b.Server = authorizetest.New(t, func(c *authorize.Config) {
			c.DurableStore, c.Store, c.SessionIdleTimeout = config.DurableStore, config.Store, time.Hour
		})
		for range 2*8 - 1 {
			if !b.HasSession() {
				t.Fatal("signed out")
			}
			time.Sleep(30 * time.Minute)
		}
		time.Sleep(30*time.Minute + time.Second)
		if b.HasSession() {
			t.Error("signed in for longer than a session lasts")
		}
	})
}
