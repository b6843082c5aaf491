package lockout_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/servertest"
)

const strongSecret = "7d4be3ce86cd4f9ab0e1b2c3d4e5f607"

// secretRequest asks an endpoint for something with a client's secret.
func secretRequest(path, id, secret string, basic bool) *http.Request {
	form := url.Values{"grant_type": {"client_credentials"}, "token": {"x"}}
	if !basic {
		form.Set("client_id", id)
		form.Set("client_secret", secret)
	}
	r := servertest.PostRequest(path, form)
	if basic {
		r.SetBasicAuth(id, secret)
	}
	return r
}

// Secrets cannot be tried at will, wherever clients show them. Whoever tries stops
// nobody elsewhere, and nobody at all whose secret cannot be guessed.
func TestSecretsAreCounted(t *testing.T) {
	t.Parallel()
	const here, there = "192.0.2.1", "198.51.100.1"
	for _, path := range []string{"/oauth2/token", "/oauth2/introspect", "/oauth2/revoke", "/oauth2/par"} {
		for _, basic := range []bool{true, false} {
			t.Run(fmt.Sprint(path, " basic ", basic), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var last audit.Event
					s := servertest.New(t, func(c *authorize.Config) {
						c.Audit = func(_ context.Context, e audit.Event) { last = e }
						c.Clients = append(c.Clients, client.Client{ID: "strong", Secret: strongSecret, GrantTypes: []string{"client_credentials"}})
					})
					send := func(address, id, secret string) *http.Response {
						w := httptest.NewRecorder()
						came(s, address).ServeHTTP(w, servertest.Secure(secretRequest(path, id, secret, basic)))
						return w.Result()
					}
					for _, id := range []string{"service", "strong"} {
						for range 10 {
							if r := send(here, id, "wrong"); r.StatusCode != http.StatusUnauthorized {
								t.Fatalf("a free failure: %d", r.StatusCode)
							}
						}
						r := send(here, id, "wrong")
						if r.StatusCode != http.StatusTooManyRequests || r.Header.Get("Retry-After") != "1" || servertest.Decode[servertest.TokenResponse](t, r).Error != "temporarily_unavailable" {
							t.Errorf("%s: status %d, Retry-After %q", id, r.StatusCode, r.Header.Get("Retry-After"))
						}
						if last.Kind != audit.Lockout || last.ClientID != id || !last.Anonymous || last.Err.Error() != "temporarily_unavailable: too many wrong secrets came from your network: wait a second" {
							t.Errorf("%s: event %+v", id, last)
						}
					}
					for _, tt := range []struct {
						name, address, id, secret string
						refused                   bool
					}{
						{"a right one that could be guessed", here, "service", "hush", true},
						{"from another network", there, "service", "hush", false},
						{"another client", here, "confidential", "s3cret/+ %", false},
						{"a right one that nobody guesses", here, "strong", strongSecret, false},
					} {
						if r := send(tt.address, tt.id, tt.secret); (r.StatusCode == http.StatusTooManyRequests) != tt.refused || r.StatusCode == http.StatusUnauthorized {
							t.Errorf("%s: status %d", tt.name, r.StatusCode)
						}
					}
					time.Sleep(time.Second)
					if r := send(here, "service", "hush"); r.StatusCode == http.StatusTooManyRequests {
						t.Error("after the wait: still")
					}
					if r := send(here, "service", "wrong"); r.StatusCode != http.StatusUnauthorized {
						t.Errorf("after a right one: %d", r.StatusCode)
					}
				})
			})
		}
	}
}

// A network has a count for all clients, those that there are not too, and no success
// takes it back; but people who sign in there are not counted with them.
func TestSecretsAreCountedByNetwork(t *testing.T) {
	t.Parallel()
	s := servertest.New(t, func(c *authorize.Config) { c.Lockout.AddressFailures = 20 })
	b := servertest.NewBrowser(t, s)
	for i := range 20 {
		if r := b.Send(secretRequest("/oauth2/token", fmt.Sprint("made-up-", i), "wrong", true)); r.StatusCode != http.StatusUnauthorized {
			t.Fatalf("a free failure: %d", r.StatusCode)
		}
		if r := b.Send(secretRequest("/oauth2/token", "service", "hush", true)); i < 19 && r.StatusCode != http.StatusOK {
			t.Fatalf("a right one between: %d", r.StatusCode)
		}
	}
	if r := b.Send(secretRequest("/oauth2/token", "service", "hush", true)); r.StatusCode != http.StatusTooManyRequests {
		t.Errorf("status %d", r.StatusCode)
	}
	if status := servertest.Guess(t, s, "alice", "right"); status != http.StatusFound {
		t.Errorf("a person: %d", status)
	}
}

// To encode the client's name in other ways gives no further tries, and to send no
// secret takes none.
func TestSecretTriesOfOneClient(t *testing.T) {
	t.Parallel()
	b := servertest.NewBrowser(t, servertest.New(t, nil))
	for range 20 {
		b.Post("/oauth2/token", url.Values{"grant_type": {"client_credentials"}, "client_id": {"service"}})
		b.Send(secretRequest("/oauth2/token", "service", "", true))
	}
	if r := b.Send(secretRequest("/oauth2/token", "service", "hush", true)); r.StatusCode != http.StatusOK {
		t.Errorf("status %d", r.StatusCode)
	}
	for i := range 10 {
		id := []string{"service", "%73ervice", "s%65rvice", "servic%65"}[i%4]
		b.Send(secretRequest("/oauth2/token", id, "wrong", true))
	}
	if r := b.Send(secretRequest("/oauth2/token", "service", "hush", true)); r.StatusCode != http.StatusTooManyRequests {
		t.Errorf("status %d", r.StatusCode)
	}
}

// The tokens of registrations are counted as well.
func TestRegistrationTokensAreCounted(t *testing.T) {
	t.Parallel()
	const here, there = "192.0.2.1", "198.51.100.1"
	for _, tt := range []struct {
		name, initial string
		method, query string
		refused       bool // the right one from the same network
	}{
		{"one that could be guessed", "open sesame", http.MethodPost, "", true},
		{"one that cannot", strongSecret, http.MethodPost, "", false},
		{"a client's own", strongSecret, http.MethodGet, "?client_id=registered-0123456789abcdef0123456789abcdef", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := servertest.New(t, func(c *authorize.Config) {
				c.Registration = &client.Registration{InitialAccessToken: tt.initial, Storage: new(servertest.ClientStorage), Folder: "clients"}
			})
			send := func(address, method, query, token string) int {
				r := httptest.NewRequest(method, "/oauth2/register"+query, strings.NewReader(`{"redirect_uris":["https://app.example.org/cb"]}`))
				r.Header.Set("Content-Type", "application/json")
				r.Header.Set("Authorization", "Bearer "+token)
				w := httptest.NewRecorder()
				came(s, address).ServeHTTP(w, servertest.Secure(r))
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
