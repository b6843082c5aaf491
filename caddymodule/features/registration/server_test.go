package registration_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/features/registration"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/tokenclaim"
)

// The endpoint has a name in the metrics.
func TestEndpointHasName(t *testing.T) {
	t.Parallel()
	if name := endpoint.Name(registration.Path); !slices.Contains(endpoint.Names(), name) {
		t.Errorf("%q is not among the endpoints", name)
	}
}

// FuzzRegister sends arbitrary bodies. Each response is JSON: either an error, or a client with addresses that would be valid
// in the configuration.
func FuzzRegister(f *testing.F) {
	f.Add(`{"redirect_uris":["https://app.example.org/cb"],"client_name":"x","scope":"openid"}`)
	f.Add(`{"redirect_uris":["https://app.example.org/#f"],"token_endpoint_auth_method":"none"}`)
	f.Add(`{"redirect_uris":null,"scope":7}`)
	f.Add(`[]`)
	f.Fuzz(func(t *testing.T, text string) {
		r := authorizetest.PostRequest("/oauth2/register", nil)
		r.Body = io.NopCloser(strings.NewReader(text))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+initialAccessToken)
		response := authorizetest.NewBrowser(t, authorizetest.New(t, registering(new(clientStorage)))).Send(r)
		got := authorizetest.Decode[registrationResponse](t, response)
		refused := response.StatusCode == http.StatusBadRequest && strings.HasPrefix(got.Error, "invalid_")
		bad := func(uri string) bool { return client.CheckRedirectURI(uri) != nil }
		if made := response.StatusCode == http.StatusCreated; made == refused || made && slices.ContainsFunc(got.Redirects, bad) {
			t.Errorf("status %d, %+v", response.StatusCode, got)
		}
	})
}

// Wrong registration tokens count toward the lockout.
func TestRegistrationTokensAreCounted(t *testing.T) {
	t.Parallel()
	const here, there, strongSecret = "192.0.2.1", "198.51.100.1", "7d4be3ce86cd4f9ab0e1b2c3d4e5f607"
	for _, tt := range []struct {
		name, initial string
		method, query string
		refused       bool // whether a correct token is rejected in the locked network
	}{
		{"one that could be guessed", "open sesame", http.MethodPost, "", true},
		{"one that cannot", strongSecret, http.MethodPost, "", false},
		{"a client's own", strongSecret, http.MethodGet, "?client_id=registered-0123456789abcdef0123456789abcdef", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := authorizetest.New(t, func(c *authorize.Config) {
				registering(new(clientStorage))(c)
				optionsOf(c).InitialAccessToken = tt.initial
			})
			send := func(address, method, query, token string) int {
				r := httptest.NewRequest(method, "/oauth2/register"+query, strings.NewReader(`{"redirect_uris":["https://app.example.org/cb"]}`))
				r.Header.Set("Content-Type", "application/json")
				r.Header.Set("Authorization", "Bearer "+token)
				w := httptest.NewRecorder()
				r.RemoteAddr = address + ":1"
				s.ServeHTTP(w, authorizetest.MarkAsTLS(r))
				return w.Code
			}
			for range 10 {
				if status := send(here, tt.method, tt.query, "wrong"); status != http.StatusUnauthorized {
					t.Fatalf("a free failure: %d", status)
				}
			}
			if status := send(here, tt.method, tt.query, "wrong"); status != http.StatusTooManyRequests {
				t.Errorf("status %d", status)
			}
			if status := send(here, http.MethodPost, "", tt.initial); (status == http.StatusTooManyRequests) != tt.refused || status == http.StatusUnauthorized {
				t.Errorf("the right one: %d", status)
			}
			if status := send(there, http.MethodPost, "", tt.initial); status != http.StatusCreated {
				t.Errorf("from another network: %d", status)
			}
		})
	}
}

// If the initial access token is guessable, a warning without its value is logged once, when the configuration is loaded.
func TestGuessableTokenIsLogged(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	c := authorizetest.Config()
	c.Clients, c.Logger = nil, slog.New(slog.NewTextHandler(&log, nil))
	registering(new(clientStorage))(&c)
	optionsOf(&c).InitialAccessToken = "open-sesame"
	server, err := authorize.New(c)
	authorizetest.NoError(t, err)
	_, err = server.Draft().Server() // as after adding clients or users
	authorizetest.NoError(t, err)
	logged := log.String()
	if strings.Count(logged, "\n") != 1 || !strings.Contains(logged, "initial_access_token") || strings.Contains(logged, "sesame") {
		t.Errorf("log %s", logged)
	}
}

// faultyClients is a storage. While armed is set, its call with the number at fails.
type faultyClients struct {
	clientStorage

	armed bool
	at    int // number of the failing call
	calls int
	hit   string // name of the call that failed
}

func (s *faultyClients) Load(ctx context.Context, key string) ([]byte, error) {
	if err := s.next("clients.Load"); err != nil {
		return nil, err
	}
	return s.clientStorage.Load(ctx, key)
}

func (s *faultyClients) Store(ctx context.Context, key string, value []byte) error {
	if err := s.next("clients.Store"); err != nil {
		return err
	}
	return s.clientStorage.Store(ctx, key, value)
}

func (s *faultyClients) Delete(ctx context.Context, key string) error {
	if err := s.next("clients.Delete"); err != nil {
		return err
	}
	return s.clientStorage.Delete(ctx, key)
}

func (s *faultyClients) List(ctx context.Context, path string, recursive bool) ([]string, error) {
	if err := s.next("clients.List"); err != nil {
		return nil, err
	}
	return s.clientStorage.List(ctx, path, recursive)
}

func (s *faultyClients) next(call string) error {
	if !s.armed {
		return nil
	}
	if s.calls++; s.calls != s.at {
		return nil
	}
	s.hit = call
	return authorizetest.ErrStoreFailed
}

// If a call to the storage fails, nothing is changed, and repeating the request succeeds.
func TestFailureChangesNothing(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		prepare func(c registrationResponse) (method, uri, token string, m any)
		good    int
	}{
		{"registered", func(registrationResponse) (method, uri, token string, m any) {
			return http.MethodPost, authorizetest.Issuer + registration.Path, initialAccessToken, clientMetadata(nil)
		}, http.StatusCreated},
		{"changed", func(c registrationResponse) (method, uri, token string, m any) {
			return http.MethodPut, c.URI, c.AccessToken, clientMetadata(map[string]any{"client_id": c.ID, "client_name": "New"})
		}, http.StatusOK},
		{"deleted", func(c registrationResponse) (method, uri, token string, m any) {
			return http.MethodDelete, c.URI, c.AccessToken, nil
		}, http.StatusNoContent},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for at, more := 1, true; more; at++ {
				storage := &faultyClients{at: at}
				b := authorizetest.NewBrowser(t, authorizetest.New(t, registeringWith(func(r *registration.Registration) { r.Storage = storage })))
				_, c := register(b, clientMetadata(nil), initialAccessToken)
				method, uri, token, m := tt.prepare(c)
				before := maps.Clone(storage.Files)
				storage.armed = true
				r := b.Send(metadataRequest(b, method, uri, token, m))
				if more = storage.hit != ""; !more {
					if authorizetest.WantStatus(t, r, tt.good, "without a failure"); at == 1 {
						t.Error("no call is made")
					}
					break
				}
				authorizetest.WantStatus(t, r, http.StatusServiceUnavailable, storage.hit+" fails")
				if !maps.EqualFunc(before, storage.Files, bytes.Equal) {
					t.Errorf("after a failure of %s, stored data changed: %q", storage.hit, storage.Files)
				}
				authorizetest.WantStatus(t, b.Send(metadataRequest(b, method, uri, token, m)), tt.good, storage.hit+" fails, and the next time")
			}
		})
	}
}

// The contents of requests are never logged.
func TestRequestsAreNotLogged(t *testing.T) {
	t.Parallel()
	const marked = "MARKED"
	var log bytes.Buffer
	b := authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) {
		registering(new(clientStorage))(c)
		c.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		c.Lockout.Off = true
	}))
	send := func(method, query, kind, authorization, text string) {
		t.Helper()
		log.Reset()
		r := httptest.NewRequest(method, registration.Path+query, strings.NewReader(text))
		r.Header.Set("Content-Type", kind)
		r.Header.Set("Authorization", authorization)
		r.Header.Set("User-Agent", marked)
		r.Header.Set("Origin", "https://"+marked)
		b.Send(r)
		if strings.Contains(log.String(), marked) || strings.Contains(log.String(), "%zq") {
			t.Errorf("%s %s %s %s: %s", method, query, authorization, text, &log)
		}
	}
	for _, text := range []string{
		`{"` + marked + `":1}`, `{"client_name":"` + marked, `["` + marked + `"]`, `{"redirect_uris":["https://x.example/"],"scope":"` + marked + `"}`,
		`{"redirect_uris":"` + marked + `"}`, `{"jwks":"` + marked + `","token_endpoint_auth_method":"private_key_jwt","redirect_uris":["https://x.example/"]}`,
	} {
		send(http.MethodPost, "", "application/json", "Bearer "+initialAccessToken, text)
	}
	for _, header := range []string{"", "Basic " + marked, "Bearer " + marked, marked, "Basic TUFSS0VEOk1BUktFRA=="} {
		for _, value := range []string{marked, marked + "\n \"{", "%zq", `{"` + marked + `":1}`, "a." + marked + ".b", "https://" + marked + ".example/%zz"} {
			for _, name := range []string{"client_id", "token", "state", "redirect_uri", "client_secret"} {
				q := url.Values{name: {value}}.Encode()
				for _, encoded := range []string{q, q + "&x=%zq" + marked} {
					send(http.MethodGet, "?"+encoded, "", header, "")
					send(http.MethodPost, "", "application/x-www-form-urlencoded", header, encoded)
				}
			}
		}
	}
}

// If a request is rejected, the audit log contains the client.
func TestRefusalsNameClient(t *testing.T) {
	t.Parallel()
	var events []audit.Event
	b := authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) {
		registering(new(clientStorage))(c)
		optionsOf(c).Approval = true
		c.Audit = func(_ context.Context, e audit.Event) { events = append(events, e) }
	}))
	_, newcomer := register(b, clientMetadata(nil), initialAccessToken)
	authorization := authorizetest.Request(url.Values{"client_id": {newcomer.ID}})
	for name, r := range map[string]*http.Request{
		"read by another token":     metadataRequest(b, http.MethodGet, newcomer.URI, "x", nil),
		"update by another token":   metadataRequest(b, http.MethodPut, newcomer.URI, "x", struct{}{}),
		"removal by another token":  metadataRequest(b, http.MethodDelete, newcomer.URI, "x", nil),
		"update that is refused":    metadataRequest(b, http.MethodPut, newcomer.URI, newcomer.AccessToken, struct{}{}),
		"pending approval":          httptest.NewRequest(http.MethodGet, "/oauth2/authorize?"+authorization.Encode(), nil),
		"pushed, pending approval ": authorizetest.PostRequest("/oauth2/par", authorizetest.Request(url.Values{"client_id": {newcomer.ID}, "client_secret": {newcomer.Secret}})),
	} {
		events = nil
		response := b.Send(r)
		if refused := slices.DeleteFunc(events, func(e audit.Event) bool { return e.Err == nil }); len(refused) == 0 {
			t.Errorf("%s: no event, status %d", name, response.StatusCode)
		}
		for _, e := range events {
			if e.Err != nil && e.ClientID != newcomer.ID {
				t.Errorf("%s: the event names %q: %s %v", name, e.ClientID, e.Kind, e.Err)
			}
		}
	}
}

// After the first request, the guard verifies tokens of a registered client without calls to the store.
func TestGuardNeedsNoRoundTrip(t *testing.T) {
	t.Parallel()
	r, gateway := authorizetest.NewReplica(t)
	server := authorizetest.New(t, func(c *authorize.Config) {
		registering(new(clientStorage))(c)
		c.Store, c.DurableStore, optionsOf(c).Store = r, r, r
	})
	b := authorizetest.NewBrowser(t, server)
	_, made := register(b, clientMetadata(nil), initialAccessToken)
	claims := b.Claims(b.Tokens(url.Values{"scope": {"openid user/*.rs"}}).AccessToken)
	text := func(name string) string { value, _ := claims[name].(string); return value }
	token := tokenclaim.AccessToken{
		ID: text("jti"), Subject: text("sub"), ClientID: made.ID, Scope: text("scope"), Session: text("sid"), CredentialHash: text("credential_hash"),
	}
	if !authorizetest.TakesNoRoundTrip(gateway, func() {
		revoked, err1 := server.IsRevoked(t.Context(), token.ID)
		holder, err2 := server.Holder(t.Context(), token)
		if revoked || holder == nil || err1 != nil || err2 != nil {
			t.Errorf("revoked %t, holder %v: %v, %v", revoked, holder, err1, err2)
		}
	}) {
		t.Error("the guard takes round trips")
	}
}

// A registered client requires the operator's approval, and again after each change to its registration.
func TestApproval(t *testing.T) {
	t.Parallel()
	var options *registration.Registration
	b := authorizetest.NewBrowser(t, authorizetest.New(t, registeringWith(func(r *registration.Registration) { r.Approval, options = true, r })))
	_, c := register(b, clientMetadata(withSecret), initialAccessToken)
	check := func(name string, waits bool, status int) {
		t.Helper()
		q := authorizetest.Request(authorizetest.PKCE())
		q.Set("client_id", c.ID)
		authorizetest.WantStatus(t, b.Authorize(q), status, name)
		all, err := options.ListClients(t.Context())
		if authorizetest.NoError(t, err); len(all) > 0 && (all[0].PendingApproval != waits || all[0].Client.ID != c.ID || !all[0].HasSecret || all[0].IssuedAt.IsZero()) {
			t.Errorf("%s: listed as %+v", name, all[0])
		}
	}
	check("registered", true, http.StatusForbidden)
	introspect := func(secret string) *http.Response {
		return b.Post("/oauth2/introspect", url.Values{"client_id": {c.ID}, "client_secret": {secret}, "token": {"x"}})
	}
	authorizetest.WantStatus(t, introspect(c.Secret), http.StatusForbidden, "before it is approved")
	authorizetest.WantStatus(t, introspect("guessed"), http.StatusUnauthorized, "before it is approved, with a guessed secret")
	authorizetest.NoError(t, options.Approve(t.Context(), c.ID))
	check("approved", false, http.StatusFound)
	authorizetest.WantStatus(t, introspect(c.Secret), http.StatusOK, "approved")
	r, _ := updateClient(b, c, clientMetadata(map[string]any{"client_id": c.ID, "token_endpoint_auth_method": "client_secret_post"}))
	authorizetest.WantStatus(t, r, http.StatusOK, "update")
	check("changed", true, http.StatusForbidden)
	authorizetest.NoError(t, options.Approve(t.Context(), c.ID))
	secret, err := options.RotateSecret(t.Context(), c.ID)
	authorizetest.NoError(t, err)
	authorizetest.WantStatus(t, introspect(c.Secret), http.StatusUnauthorized, "the old secret")
	authorizetest.WantStatus(t, introspect(secret), http.StatusOK, "the new secret")
	check("approved again", false, http.StatusFound)
	authorizetest.NoError(t, options.Remove(t.Context(), c.ID))
	check("removed", false, http.StatusBadRequest)
	if err := options.Approve(t.Context(), c.ID); err == nil {
		t.Error("a client that is gone is approved")
	}
}
