package securityevents_test

import (
	"errors"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/storetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/features/securityevents"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/authorization"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores/file"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores/memory"
)

const (
	caep = "https://schemas.openid.net/secevent/caep/event-type/"
	risc = "https://schemas.openid.net/secevent/risc/event-type/"

	eventsPath = "/oauth2/events/hospital"
)

// event returns a Security Event Token about Alice.
func event(p *providertest.Provider, name string, changes ...func(*providertest.IDToken)) string {
	return p.LogoutToken(append([]func(*providertest.IDToken){func(t *providertest.IDToken) {
		t.Type = "secevent+jwt"
		delete(t.Claims, "exp")
		t.Claims["events"] = map[string]any{name: map[string]any{}}
	}}, changes...)...)
}

// push sends a token to a path.
func push(t *testing.T, s http.Handler, path, token string) *http.Response {
	t.Helper()
	r := authorizetest.PostRequest(path, nil)
	r.Header.Set("Content-Type", "application/secevent+jwt")
	return authorizetest.SendBody(t, s, r, token)
}

// withEventsAndRefresh enables refresh tokens and events.
func withEventsAndRefresh(_ *people.IdentityProvider, c *authorize.Config) {
	authorizetest.AllowRefreshTokens(c)
	c.Features = append(c.Features, new(securityevents.Events))
}

// Each event ends exactly the sessions or accounts that its type and subject determine (CAEP 1.0 §3, RISC 1.0 §2, RFC 9493).
func TestEvents(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t, func(s *providertest.Settings) { s.IDToken = providertest.WithClaim("sid", "one") })
	s := authorizetest.NewFederatedServer(t, p, withEventsAndRefresh)
	sub := providertest.Alice.Subject
	id := func(format, name string, value any) map[string]any {
		return map[string]any{"format": format, name: value}
	}
	of := func(id map[string]any) func(*providertest.IDToken) { return providertest.WithClaim("sub_id", id) }
	alice := id("opaque", "id", sub)
	issSub := map[string]any{"format": "iss_sub", "iss": p.Issuer, "sub": sub}
	aliases := func(identifiers ...map[string]any) map[string]any { return id("aliases", "identifiers", identifiers) }
	change := func(kind string) func(*providertest.IDToken) {
		return func(t *providertest.IDToken) {
			t.Claims["events"] = map[string]any{caep + "credential-change": map[string]any{"change_type": kind, "credential_type": "password"}}
		}
	}
	complexID := func(parts map[string]any) func(*providertest.IDToken) { parts["format"] = "complex"; return of(parts) }
	for _, tt := range []struct {
		name, event string
		change      func(*providertest.IDToken)
		working     string
	}{
		{"session revoked", caep + "session-revoked", of(issSub), "all but the session"},
		{"sessions revoked", risc + "sessions-revoked", of(alice), "all but the session"},
		{"by sub", caep + "session-revoked", providertest.WithClaim("sub", sub), "all but the session"},
		{"by address", caep + "session-revoked", of(id("email", "email", "Alice@hospital.example")), "all but the session"},
		{"this session", caep + "session-revoked", complexID(map[string]any{"user": issSub, "session": id("opaque", "id", "one")}), "all but the session"},
		{"this session alone", caep + "session-revoked", complexID(map[string]any{"session": id("opaque", "id", "one")}), "all but the session"},
		{"another session", caep + "session-revoked", complexID(map[string]any{"user": issSub, "session": id("opaque", "id", "two")}), "all"},
		{"another person's session", caep + "session-revoked", complexID(map[string]any{"user": id("opaque", "id", "x"), "session": id("opaque", "id", "one")}), "all"},
		{"another person", risc + "account-disabled", of(id("opaque", "id", "x")), "all"},
		{"another address", risc + "account-disabled", of(id("email", "email", "bob@hospital.example")), "all"},
		{"disabled", risc + "account-disabled", of(issSub), "nothing"},
		{"disabled, by address", risc + "account-disabled", of(id("email", "email", "alice@hospital.example")), "nothing"},
		{"disabled, by user of a complex subject", risc + "account-disabled", complexID(map[string]any{"user": issSub}), "nothing"},
		{"purged", risc + "account-purged", of(issSub), "nothing"},
		{"disabled, by account", risc + "account-disabled", of(id("account", "uri", "acct:alice%40hospital.example")), "nothing"},
		{"another account", risc + "account-disabled", of(id("account", "uri", "acct:bob@hospital.example")), "all"},
		{"disabled, by one alias", risc + "account-disabled", of(aliases(id("phone_number", "phone_number", "+1"), id("opaque", "id", "x"), id("email", "email", "alice@hospital.example"))), "nothing"},
		{"disabled, by the sub among aliases", risc + "account-disabled", of(aliases(map[string]any{"format": "iss_sub", "iss": "https://x.example", "sub": "x"}, issSub)), "nothing"},
		{"another sub among aliases", risc + "account-disabled", of(aliases(id("email", "email", "alice@hospital.example"), map[string]any{"format": "iss_sub", "iss": p.Issuer, "sub": "x"})), "all"},
		{"this session, by alias", caep + "session-revoked", complexID(map[string]any{"user": aliases(issSub), "session": id("opaque", "id", "one")}), "all but the session"},
		{"another session, by alias", caep + "session-revoked", complexID(map[string]any{"user": aliases(id("email", "email", "alice@hospital.example")), "session": id("opaque", "id", "two")}), "all"},
		{"another credential", caep + "credential-change", of(issSub), "nothing"},
		{"credential added", "", change("create"), "all"},
		{"credential updated", "", change("update"), "nothing"},
		{"credential revoked", "", change("revoke"), "nothing"},
		{"credential compromised", risc + "credential-compromise", of(issSub), "nothing"},
		{"credential must change", risc + "account-credential-change-required", of(issSub), "nothing"},
		{"enabled", risc + "account-enabled", of(issSub), "all"},
		{"verification", "https://schemas.openid.net/secevent/ssf/event-type/verification", of(id("opaque", "id", "stream")), "all"},
		{"of which one is unknown", "x", func(t *providertest.IDToken) {
			t.Claims["events"] = map[string]any{"x": map[string]any{}, risc + "account-disabled": map[string]any{}}
		}, "nothing"},
		{"to this address", risc + "account-disabled", providertest.WithClaim("aud", []string{authorizetest.Issuer + eventsPath, "another"}), "nothing"},
		{"with an exp in the future", risc + "account-disabled", providertest.WithClaim("exp", time.Now().Add(time.Hour).Unix()), "nothing"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			alice := authorizetest.SignInFederated(t, s)
			if r := push(t, s, eventsPath, event(p, tt.event, tt.change)); r.StatusCode != http.StatusAccepted {
				t.Errorf("%d: %s", r.StatusCode, authorizetest.Body(t, r))
			}
			working := alice.WorkingCredentials()
			if working != tt.working {
				t.Errorf("working credentials: %s", working)
			}
			if exists := s.Person(t.Context(), alice.Sub) != (audit.Person{}); exists != (working != "nothing") {
				t.Errorf("the account is known: %v", exists)
			}
		})
	}
}

// An opaque subject may be the claim in the option sub.
func TestOpaqueSubject(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t, func(s *providertest.Settings) { s.IDToken = providertest.WithClaim("oid", "0b1") })
	s := authorizetest.NewFederatedServer(t, p, func(idp *people.IdentityProvider, c *authorize.Config) {
		withEventsAndRefresh(idp, c)
		idp.Sub = "oid"
	})
	for _, tt := range []struct{ event, id, working string }{
		{caep + "session-revoked", "0b1", "all but the session"}, {risc + "account-disabled", "0b1", "nothing"}, {risc + "account-disabled", "0b2", "all"},
	} {
		alice := authorizetest.SignInFederated(t, s)
		push(t, s, eventsPath, event(p, tt.event, providertest.WithClaim("sub_id", map[string]any{"format": "opaque", "id": tt.id})))
		if working := alice.WorkingCredentials(); working != tt.working {
			t.Errorf("%s of %s: working credentials: %s", tt.event, tt.id, working)
		}
	}
}

// Tokens of other issuers or for other receivers are rejected with an error code and do not end any access (RFC 8935 §2.4).
func TestEventsRefused(t *testing.T) {
	t.Parallel()
	p, other := providertest.Start(t), providertest.Start(t)
	var trail authorizetest.AuditTrail
	s := authorizetest.NewFederatedServer(t, p, func(idp *people.IdentityProvider, c *authorize.Config) {
		withEventsAndRefresh(nil, c)
		c.Audit = trail.Record
	})
	const disabled = risc + "account-disabled"
	alice := authorizetest.SignInFederated(t, s)
	for _, tt := range []struct{ name, token, code string }{
		{"nothing", "", "invalid_request"},
		{"no token", "x", "invalid_request"},
		{"a logout token", p.LogoutToken(), "invalid_request"},
		{"typ JWT", event(p, disabled, func(t *providertest.IDToken) { t.Type = "JWT" }), "invalid_request"},
		{"unsigned", event(p, disabled, providertest.AlgorithmNone), "invalid_request"},
		{"another's key", event(p, disabled, providertest.ForeignKey), "invalid_key"},
		{"another issuer's", event(other, disabled), "invalid_issuer"},
		{"another issuer's name", event(p, disabled, providertest.WrongIssuer), "invalid_issuer"},
		{"for another client", event(p, disabled, providertest.WrongAudience), "invalid_audience"},
		{"without an audience", event(p, disabled, providertest.WithClaim("aud", nil)), "invalid_audience"},
		{"without jti", event(p, disabled, providertest.WithClaim("jti", nil)), "invalid_request"},
		{"without events", event(p, disabled, providertest.WithClaim("events", nil)), "invalid_request"},
		{"without iat", event(p, disabled, providertest.WithClaim("iat", nil)), "invalid_request"},
		{"issued in the future", event(p, disabled, providertest.WithClaim("iat", time.Now().Add(2*time.Minute).Unix())), "invalid_request"},
		{"of last month", event(p, disabled, providertest.WithClaim("iat", time.Now().Add(-8*24*time.Hour).Unix())), "invalid_request"},
		{"over", event(p, disabled, providertest.WithClaim("exp", time.Now().Add(-2*time.Minute).Unix())), "invalid_request"},
		{"without a sub", event(p, disabled, providertest.WithClaim("sub", nil)), "invalid_request"},
		{"a subject of another issuer", event(p, disabled, providertest.WithClaim("sub_id", map[string]any{"format": "iss_sub", "iss": other.Issuer, "sub": providertest.Alice.Subject})), "invalid_request"},
		{"a subject of another format", event(p, disabled, providertest.WithClaim("sub_id", map[string]any{"format": "phone_number", "phone_number": "+1"})), "invalid_request"},
		{"a subject with two subs", event(p, disabled, providertest.WithClaim("sub_id", map[string]any{"format": "opaque", "id": "x", "ID": providertest.Alice.Subject})), "invalid_request"},
		{"an account that is no URI", event(p, disabled, providertest.WithClaim("sub_id", map[string]any{"format": "account", "uri": "alice@hospital.example"})), "invalid_request"},
		{"no aliases", event(p, disabled, providertest.WithClaim("sub_id", map[string]any{"format": "aliases", "identifiers": []any{}})), "invalid_request"},
		{"unsupported aliases", event(p, disabled, providertest.WithClaim("sub_id", map[string]any{"format": "aliases", "identifiers": []any{map[string]any{"format": "did", "url": "did:x"}}})), "invalid_request"},
		{"aliases of aliases", event(p, disabled, providertest.WithClaim("sub_id", map[string]any{"format": "aliases", "identifiers": []any{map[string]any{"format": "aliases", "identifiers": []any{map[string]any{"format": "opaque", "id": providertest.Alice.Subject}}}}})), "invalid_request"},
		{"a session by address", event(p, disabled, providertest.WithClaim("sub_id", map[string]any{"format": "complex", "session": map[string]any{"format": "email", "email": "a@b"}})), "invalid_request"},
		{"a complex subject of nothing", event(p, disabled, providertest.WithClaim("sub_id", map[string]any{"format": "complex"})), "invalid_request"},
		{"a body without end", strings.Repeat("x", 1<<20), "invalid_request"},
	} {
		trail.Drain()
		r := push(t, s, eventsPath, tt.token)
		got := authorizetest.Decode[map[string]string](t, r)
		if r.StatusCode != http.StatusBadRequest || got["err"] != tt.code || got["description"] == "" || r.Header.Get("Content-Language") != "en" {
			t.Errorf("%s: %d %v", tt.name, r.StatusCode, got)
		}
		if got := trail.Drain(); got != "revocation "+tt.code+" hospital user= client= scope=" {
			t.Errorf("%s: events %q", tt.name, got)
		}
	}
	if r := authorizetest.NewBrowser(t, s).Post(eventsPath, url.Values{"token": {event(p, disabled)}}); r.StatusCode != http.StatusBadRequest {
		t.Errorf("as a form: %d", r.StatusCode)
	}
	if r := push(t, s, "/oauth2/events/other", event(p, disabled)); r.StatusCode != http.StatusNotFound {
		t.Errorf("unknown provider: %d", r.StatusCode)
	}
	if working := alice.WorkingCredentials(); working != "all" {
		t.Errorf("working credentials: %s", working)
	}
}

// Invalid tokens cause no requests to the provider. Tokens with unknown keys cause at most one request every 5 s, because
// anyone can send tokens to this endpoint.
func TestEventsFetchLittle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := providertest.New("https://login.hospital.example")
		s := authorizetest.NewFederatedServer(t, p, func(idp *people.IdentityProvider, c *authorize.Config) {
			withEventsAndRefresh(idp, c)
			idp.Transport = authorizetest.Transport{Handler: p}
		})
		const disabled = risc + "account-disabled"
		for _, change := range []func(*providertest.IDToken){
			providertest.AlgorithmNone, providertest.WrongIssuer, providertest.WrongAudience, providertest.WithClaim("jti", nil), providertest.WithClaim("events", nil),
			providertest.WithClaim("events", "x"), providertest.WithClaim("iat", nil), providertest.WithClaim("exp", 1), func(t *providertest.IDToken) { t.Type = "JWT" },
		} {
			if r := push(t, s, eventsPath, event(p, disabled, providertest.UnknownKey, change)); r.StatusCode != http.StatusBadRequest {
				t.Errorf("%d", r.StatusCode)
			}
		}
		authorizetest.Equal(t, len(p.Requests(providertest.Discovery))+len(p.Requests(providertest.Keys)), 0)
		for range 20 {
			if r := push(t, s, eventsPath, event(p, disabled, providertest.UnknownKey)); r.StatusCode != http.StatusServiceUnavailable || r.Header.Get("Retry-After") == "" {
				t.Errorf("an unknown key: %d", r.StatusCode)
			}
			time.Sleep(200 * time.Millisecond)
		}
		authorizetest.Equal(t, len(p.Requests(providertest.Keys)), 1)
		time.Sleep(time.Second)
		r := push(t, s, eventsPath, event(p, disabled, providertest.UnknownKey))
		authorizetest.Equal(t, authorizetest.Decode[map[string]string](t, r)["err"], "invalid_key")
		authorizetest.Equal(t, len(p.Requests(providertest.Keys)), 2)
	})
}

// If an event arrives while a sign-in is being stored, this sign-in is invalidated. The next sign-in succeeds.
func TestEndedWhileSigningIn(t *testing.T) {
	t.Parallel()
	opaque := func(id string) map[string]any { return map[string]any{"format": "opaque", "id": id} }
	for name, end := range map[string]func(*providertest.Provider) (path, token string){
		"session-revoked": func(p *providertest.Provider) (path, token string) {
			return eventsPath, event(p, caep+"session-revoked")
		},
		"of one session": func(p *providertest.Provider) (path, token string) {
			return eventsPath, event(p, caep+"session-revoked", providertest.WithClaim("sub_id", map[string]any{"format": "complex", "session": opaque("one")}))
		},
		"of a person's session": func(p *providertest.Provider) (path, token string) {
			id := map[string]any{"format": "complex", "user": opaque(providertest.Alice.Subject), "session": opaque("one")}
			return eventsPath, event(p, caep+"session-revoked", providertest.WithClaim("sub_id", id))
		},
		"account-disabled": func(p *providertest.Provider) (path, token string) {
			return eventsPath, event(p, risc+"account-disabled")
		},
		"logout token": func(p *providertest.Provider) (path, token string) {
			return "/oauth2/backchannel_logout/hospital", url.Values{"logout_token": {p.LogoutToken()}}.Encode()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := providertest.Start(t, func(s *providertest.Settings) { s.IDToken = providertest.WithClaim("sid", "one") })
			var s http.Handler
			var once sync.Once
			intercepted := storetest.NewInterceptedStore(func(method, key string) error {
				if method == "Put" && strings.HasPrefix(key, "session:") {
					once.Do(func() {
						path, token := end(p)
						r := authorizetest.PostRequest(path, nil)
						if path == eventsPath {
							r.Header.Set("Content-Type", "application/secevent+jwt")
						}
						if answer := authorizetest.SendBody(t, s, r, token); answer.StatusCode >= 300 {
							t.Errorf("%d %s", answer.StatusCode, authorizetest.Body(t, answer))
						}
					})
				}
				return nil
			})
			server := authorizetest.NewFederatedServer(t, p, func(idp *people.IdentityProvider, c *authorize.Config) {
				withEventsAndRefresh(idp, c)
				c.Store = intercepted
			})
			s = server
			b := authorizetest.NewBrowser(t, server)
			if back := authorizetest.SignInAtProvider(b, nil); back.Query().Get("error") != "login_required" || b.HasSession() {
				t.Errorf("%v, signed in: %v", back, b.HasSession())
			}
			if working := authorizetest.SignInFederated(t, server).WorkingCredentials(); working != "all" {
				t.Errorf("next sign-in: working credentials: %s", working)
			}
		})
	}
}

// A used token is accepted again but has no effect, because the person may have signed in again in the meantime.
func TestEventIsUsedOnce(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	s := authorizetest.NewFederatedServer(t, p, withEventsAndRefresh)
	token := event(p, risc+"account-disabled")
	for i, want := range []string{"nothing", "all"} {
		alice := authorizetest.SignInFederated(t, s)
		status := push(t, s, eventsPath, token).StatusCode
		if working := alice.WorkingCredentials(); status != http.StatusAccepted || working != want {
			t.Errorf("use %d: %d, working credentials: %s", i+1, status, working)
		}
	}
}

// If any step fails, the response is 503, and resending the token succeeds.
func TestEventFails(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	p.SetFault(providertest.Keys, providertest.Status(http.StatusServiceUnavailable))
	if r := push(t, authorizetest.NewFederatedServer(t, p, withEventsAndRefresh), eventsPath, event(p, risc+"account-disabled")); r.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("without keys: %d", r.StatusCode)
	}
	p.SetFault(providertest.Keys, nil)
	for at, died := 1, true; died; at++ {
		calls, alive := 0, true
		intercepted := storetest.NewInterceptedStore(func(string, string) error {
			if calls++; alive || calls < at {
				return nil
			}
			return errors.New("the store is away")
		})

		s := authorizetest.NewFederatedServer(t, p, func(_ *people.IdentityProvider, c *authorize.Config) {
			withEventsAndRefresh(nil, c)
			c.Store = intercepted
		})
		alice, token := authorizetest.SignInFederated(t, s), event(p, risc+"account-disabled")
		calls, alive = 0, false
		first := push(t, s, eventsPath, token).StatusCode
		died, alive = calls >= at, true
		if died && first == http.StatusAccepted && alice.WorkingCredentials() != "nothing" {
			t.Errorf("outage at call %d: accepted, working credentials: %s", at, alice.WorkingCredentials())
		}
		if r := push(t, s, eventsPath, token); r.StatusCode != http.StatusAccepted {
			t.Errorf("away from call %d, and sent again: %d", at, r.StatusCode)
		}
		if working := alice.WorkingCredentials(); working != "nothing" {
			t.Errorf("outage at call %d, then resent: working credentials: %s", at, working)
		}
	}
}

// An event for an account at the provider also ends the access of the local user to whom the account is linked.
func TestEventEndsLinkedUser(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t, func(s *providertest.Settings) {
		s.People = []providertest.Person{{Subject: providertest.Alice.Subject, Claims: map[string]any{"email": "alice@example.org", "email_verified": true}}}
	})
	s := authorizetest.NewFederatedServer(t, p, func(idp *people.IdentityProvider, c *authorize.Config) {
		withEventsAndRefresh(nil, c)
		idp.LinkEmail = true
	})
	alice := authorizetest.SignInFederated(t, s)
	if r := push(t, s, eventsPath, event(p, risc+"account-disabled")); r.StatusCode != http.StatusAccepted || alice.WorkingCredentials() != "nothing" {
		t.Errorf("%d, left: %s", r.StatusCode, alice.WorkingCredentials())
	}
}

func TestMain(m *testing.M) { os.Exit(gatewaytest.Main(m)) }

// Scripts of other origins cannot use the endpoint (CORS), because only servers call it.
func TestCORS(t *testing.T) {
	t.Parallel()
	g := gatewaytest.New(t, gatewaytest.AuthorizationServer("idp hospital oidc {\n\t\t\tissuer https://login.hospital.example\n\t\t\tclient_id c\n\t\t\tclient_secret s\n\t\t}"))
	gatewaytest.CheckCORS(t, g, http.MethodPost, "/oauth2/events/hospital", "", "a-token")
}

// An event permanently invalidates tokens that were issued before the account was linked to a local user. They remain invalid
// if the link is removed and the person signs in again.
func TestEventEndsTokensFromBeforeLink(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t, func(s *providertest.Settings) {
		s.People = []providertest.Person{{Subject: providertest.Alice.Subject, Claims: map[string]any{"email": "alice@example.org", "email_verified": true}}}
	})
	storage := store.NewMemory(0, 0)
	server := func(linked bool) *authorize.Server {
		return authorizetest.NewFederatedServer(t, p, func(idp *people.IdentityProvider, c *authorize.Config) {
			withEventsAndRefresh(nil, c)
			idp.LinkEmail, c.Store = linked, storage
		})
	}
	unlinked := server(false)
	before := authorizetest.SignInFederated(t, unlinked)
	if r := push(t, server(true), eventsPath, event(p, risc+"account-disabled")); r.StatusCode != http.StatusAccepted {
		t.Fatalf("%d", r.StatusCode)
	}
	authorizetest.SignInFederated(t, unlinked)
	if working := before.WorkingCredentials(); working != "nothing" {
		t.Errorf("working credentials: %s", working)
	}
}

// If the subject of an event is only a session, the event ends this session, regardless of the event type.
func TestEventOfSessionAlone(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t, func(s *providertest.Settings) { s.IDToken = providertest.WithClaim("sid", "one") })
	s := authorizetest.NewFederatedServer(t, p, withEventsAndRefresh)
	for name := range map[string]bool{risc + "account-disabled": true, risc + "account-purged": true, caep + "credential-change": true, caep + "session-revoked": true} {
		alice := authorizetest.SignInFederated(t, s)
		id := map[string]any{"format": "complex", "session": map[string]any{"format": "opaque", "id": "one"}}
		if r := push(t, s, eventsPath, event(p, name, providertest.WithClaim("sub_id", id))); r.StatusCode != http.StatusAccepted {
			t.Errorf("%s: %d", name, r.StatusCode)
		}
		if working := alice.WorkingCredentials(); working != "all but the session" {
			t.Errorf("%s: working credentials: %s", name, working)
		}
	}
}

// With several tenants, an event affects only people of the tenant in its iss. Addresses and sessions may be another tenant's.
func TestEventOfTenant(t *testing.T) {
	t.Parallel()
	const tenantA, tenantB = "aaaaaaaa-1111-2222-3333-444444444444", "bbbbbbbb-1111-2222-3333-444444444444"
	p := providertest.Start(t, func(s *providertest.Settings) { s.Path = "/organizations/v2.0" })
	issuerOf := func(tenant string) string { return strings.Replace(p.Issuer, "organizations", tenant, 1) }
	as := func(tenant string, subjectID map[string]any) func(*providertest.IDToken) {
		return func(token *providertest.IDToken) {
			token.Claims["iss"], token.Claims["tid"], token.Claims["sid"] = issuerOf(tenant), tenant, "one"
			token.Claims["oid"] = "alice-oid"
			if subjectID != nil {
				token.Claims["sub_id"] = subjectID
			}
		}
	}
	p.Change(func(s *providertest.Settings) {
		s.Metadata["issuer"], s.Metadata["authorization_response_iss_parameter_supported"] = issuerOf("{tenantid}"), nil
		s.IDToken = as(tenantA, nil)
	})
	servers := map[string]http.Handler{} // by option sub
	for _, sub := range []string{"", "oid"} {
		servers[sub] = authorizetest.NewFederatedServer(t, p, func(idp *people.IdentityProvider, c *authorize.Config) {
			withEventsAndRefresh(idp, c)
			idp.Tenants, idp.Sub = []string{tenantA, tenantB}, sub
		})
	}
	oid := map[string]any{"format": "opaque", "id": "alice-oid"}
	opaqueSub := map[string]any{"format": "opaque", "id": providertest.Alice.Subject}
	subjectOf := func(tenant string) map[string]any {
		return map[string]any{"format": "iss_sub", "iss": issuerOf(tenant), "sub": providertest.Alice.Subject}
	}
	for _, tt := range []struct {
		name, tenant string
		subject      map[string]any
		status       int
		sub, working string
	}{
		{"another tenant", tenantB, subjectOf(tenantB), http.StatusAccepted, "", "all"},
		{"another tenant about the person", tenantB, subjectOf(tenantA), http.StatusBadRequest, "", "all"},
		{"another tenant by opaque sub", tenantB, opaqueSub, http.StatusAccepted, "", "all"},
		{"another tenant by qualified sub", tenantB, map[string]any{"format": "opaque", "id": tenantA + "/" + providertest.Alice.Subject}, http.StatusAccepted, "", "all"},
		{"another tenant by claim", tenantB, oid, http.StatusAccepted, "oid", "all"},
		{"by address", tenantB, map[string]any{"format": "email", "email": "alice@hospital.example"}, http.StatusBadRequest, "", "all"},
		{"by session", tenantB, map[string]any{"format": "complex", "session": map[string]any{"format": "opaque", "id": "one"}}, http.StatusBadRequest, "", "all"},
		{"no tenant", "organizations", subjectOf("organizations"), http.StatusBadRequest, "", "all"},
		{"claim that is not sub", tenantA, oid, http.StatusAccepted, "", "all"},
		{"the person's tenant", tenantA, subjectOf(tenantA), http.StatusAccepted, "", "nothing"},
		{"the person's tenant by opaque sub", tenantA, opaqueSub, http.StatusAccepted, "", "nothing"},
		{"the person's tenant by claim", tenantA, oid, http.StatusAccepted, "oid", "nothing"},
		{"the person's tenant by opaque sub instead of claim", tenantA, opaqueSub, http.StatusAccepted, "oid", "nothing"},
	} {
		s := servers[tt.sub]
		alice := authorizetest.SignInFederated(t, s)
		if r := push(t, s, eventsPath, event(p, risc+"account-disabled", as(tt.tenant, tt.subject))); r.StatusCode != tt.status {
			t.Errorf("%s: %d %s", tt.name, r.StatusCode, authorizetest.Body(t, r))
		}
		if working := alice.WorkingCredentials(); working != tt.working {
			t.Errorf("%s: working credentials: %s", tt.name, working)
		}
	}
}

// If an account is disabled while its first sign-in is being stored, the sign-in fails, even though the account is unknown.
func TestEventWhileSigningInFirst(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	var s http.Handler
	sent := false
	intercepted := storetest.NewInterceptedStore(func(method, key string) error {
		if !sent && method == "Put" && strings.HasPrefix(key, "account:") {
			sent = true
			if r := push(t, s, eventsPath, event(p, risc+"account-disabled")); r.StatusCode != http.StatusAccepted {
				t.Errorf("%d", r.StatusCode)
			}
		}
		return nil
	})
	s = authorizetest.NewFederatedServer(t, p, func(idp *people.IdentityProvider, c *authorize.Config) {
		withEventsAndRefresh(idp, c)
		c.Store = intercepted
	})
	b := authorizetest.NewBrowser(t, s)
	if back := authorizetest.SignInAtProvider(b, nil); back.Query().Get("error") != "login_required" || b.HasSession() {
		t.Errorf("%v, signed in: %v", back, b.HasSession())
	}
	if !sent {
		t.Error("no account was stored")
	}
}

// Only the media type application/secevent+jwt is accepted (RFC 8935 §2), so that web forms cannot send events.
func TestEventOfAnotherType(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	s := authorizetest.NewFederatedServer(t, p, withEventsAndRefresh)
	alice := authorizetest.SignInFederated(t, s)
	for _, kind := range []string{"", "text/plain", "application/jwt", "application/json", "application/x-www-form-urlencoded"} {
		r := authorizetest.PostRequest(eventsPath, nil)
		r.Header.Set("Content-Type", kind)
		if answer := authorizetest.SendBody(t, s, r, event(p, risc+"account-disabled")); answer.StatusCode != http.StatusBadRequest {
			t.Errorf("%q: %d", kind, answer.StatusCode)
		}
	}
	if working := alice.WorkingCredentials(); working != "all" {
		t.Errorf("working credentials: %s", working)
	}
}

// If any single call to the store fails, the event either is accepted and takes effect, or can be resent.
func TestEventAfterSingleFailure(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	for at, failed := 1, true; failed; at++ {
		calls := -1 << 30
		intercepted := storetest.NewInterceptedStore(func(string, string) error {
			if calls++; calls == at {
				return errors.New("the store is away")
			}
			return nil
		})
		s := authorizetest.NewFederatedServer(t, p, func(_ *people.IdentityProvider, c *authorize.Config) {
			withEventsAndRefresh(nil, c)
			c.Store = intercepted
		})
		alice, token := authorizetest.SignInFederated(t, s), event(p, risc+"account-disabled")
		calls = 0
		status := push(t, s, eventsPath, token).StatusCode
		failed = calls >= at
		if calls = -1 << 30; status != http.StatusAccepted {
			status = push(t, s, eventsPath, token).StatusCode
		}
		if working := alice.WorkingCredentials(); status != http.StatusAccepted || working != "nothing" {
			t.Errorf("call %d failed: %d, working credentials: %s", at, status, working)
		}
	}
}

// Events must be signed with an algorithm that the provider lists for ID tokens, even if the key supports others.
func TestEventOfAnotherAlgorithm(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t, func(s *providertest.Settings) { s.KeyAlgorithm = "" })
	s := authorizetest.NewFederatedServer(t, p, withEventsAndRefresh)
	for _, tt := range []struct {
		algorithm jose.SignatureAlgorithm
		status    int
		working   string
	}{{jose.PS256, http.StatusBadRequest, "all"}, {jose.RS512, http.StatusBadRequest, "all"}, {jose.RS256, http.StatusAccepted, "nothing"}} {
		alice := authorizetest.SignInFederated(t, s)
		token := event(p, risc+"account-disabled", func(t *providertest.IDToken) { t.Algorithm = tt.algorithm })
		if r := push(t, s, eventsPath, token); r.StatusCode != tt.status {
			t.Errorf("%s: %d", tt.algorithm, r.StatusCode)
		}
		if working := alice.WorkingCredentials(); working != tt.working {
			t.Errorf("%s: working credentials: %s", tt.algorithm, working)
		}
	}
}

// pushAbout sends a Security Event Token signed by the clinic.
func pushAbout(c authorizetest.Clinic, name string, subject map[string]any) {
	c.T.Helper()
	if r := push(c.T, c.Server, "/oauth2/events/clinic", event(c.Provider, name, providertest.WithClaim("sub_id", subject))); r.StatusCode != http.StatusAccepted {
		c.T.Errorf("%s %v: %d %s", name, subject, r.StatusCode, authorizetest.Body(c.T, r))
	}
}

// A Security Event Token (RFC 8417) or logout token of one identity provider cannot end the access of another provider's
// person, regardless of the identifiers it contains.
func TestPersonOfAnotherProvider(t *testing.T) {
	t.Parallel()
	authorizetest.CheckForeignProvider(t, withEventsAndRefresh, map[string]func(c authorizetest.Clinic, name string){
		"event by opaque id": func(c authorizetest.Clinic, name string) {
			pushAbout(c, risc+"account-purged", map[string]any{"format": "opaque", "id": name})
		},
		"event by issuer and subject": func(c authorizetest.Clinic, name string) {
			pushAbout(c, risc+"account-disabled", map[string]any{"format": "iss_sub", "iss": c.Provider.Issuer, "sub": name})
		},
		"event by address": func(c authorizetest.Clinic, name string) {
			pushAbout(c, risc+"account-disabled", map[string]any{"format": "email", "email": name})
		},
		"event about sessions": func(c authorizetest.Clinic, name string) {
			pushAbout(c, caep+"session-revoked", map[string]any{"format": "opaque", "id": name})
		},
		"event about sessions by address": func(c authorizetest.Clinic, name string) {
			pushAbout(c, caep+"session-revoked", map[string]any{"format": "email", "email": name})
		},
		"event about a session": func(c authorizetest.Clinic, _ string) {
			pushAbout(c, caep+"session-revoked", map[string]any{"format": "complex", "session": map[string]any{"format": "opaque", "id": authorizetest.HospitalSession}})
		},
		"logout token": func(c authorizetest.Clinic, name string) {
			token := c.Provider.LogoutToken(providertest.WithClaim("sub", name), providertest.WithClaim("sid", authorizetest.HospitalSession))
			if r := authorizetest.NewBrowser(c.T, c.Server).Post("/oauth2/backchannel_logout/clinic", url.Values{"logout_token": {token}}); r.StatusCode >= 300 {
				c.T.Errorf("logout token: %d", r.StatusCode)
			}
		},
	})
}
