package authorize_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/browser"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/servertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/tokenclaim"
)

// earlierRecords are what a version without versions of records stored on 1 January 2000,
// when the bubbles of synctest begin, and what it gave people and clients for it.
type earlierRecords struct {
	Store, Durable map[string]string
	Code, Refresh  string
	Launch         string // the handle
	UsedCode       string `json:"used_code"` // that Refresh was given for
	Revoked        string // the jti of an access token of a grant that was revoked
	Session        string // the cookie

	inFlight, durable *store.Memory
}

func readRecords(t *testing.T, name string) *earlierRecords {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "records", name))
	r := &earlierRecords{inFlight: store.NewMemory(0, 0), durable: store.NewMemory(0, 0)}
	if err == nil {
		err = json.Unmarshal(text, r)
	}
	servertest.NoError(t, err)
	for in, entries := range map[*store.Memory]map[string]string{r.inFlight: r.Store, r.durable: r.Durable} {
		for key, value := range entries {
			servertest.NoError(t, in.Put(t.Context(), key, []byte(value), time.Hour))
		}
	}
	return r
}

// browser is one of a server that found the records, in which alice is signed in.
func (r *earlierRecords) browser(t *testing.T) *servertest.Browser {
	b := servertest.NewBrowser(t, servertest.New(t, func(c *authorize.Config) {
		withoutGrace(c)
		servertest.Refreshing(c)
		c.Store, c.Durable = r.inFlight, r.durable
	}))
	b.Cookies[browser.SessionCookie] = r.Session
	return b
}

// What an earlier version stored is read as it was meant.
func TestEarlierRecords(t *testing.T) {
	t.Parallel()
	for name, check := range map[string]func(*testing.T, *earlierRecords, *servertest.Browser){
		"a code": func(t *testing.T, r *earlierRecords, b *servertest.Browser) {
			if got := b.RequestTokens(servertest.CodeForm(r.Code, nil)); got.Refresh == "" {
				t.Errorf("%+v", got)
			}
		},
		"a used code": func(t *testing.T, r *earlierRecords, b *servertest.Browser) {
			servertest.Equal(t, b.RequestTokens(servertest.CodeForm(r.UsedCode, nil)).Error, "invalid_grant")
			servertest.CheckDead(b, r.Refresh)
		},
		"a refresh token": func(t *testing.T, r *earlierRecords, b *servertest.Browser) {
			if got := b.Refresh(b.Refresh(r.Refresh, nil).Refresh, nil); got.AccessToken == "" {
				t.Errorf("%+v", got)
			}
		},
		"a session": func(t *testing.T, _ *earlierRecords, b *servertest.Browser) {
			if b.CodeOfSession(nil) == "" {
				t.Error("nobody is signed in")
			}
		},
		"a consent": func(t *testing.T, _ *earlierRecords, b *servertest.Browser) {
			if r := b.Authorize(servertest.Request(url.Values{"client_id": {"careful"}})); !leadsTo("code=")(r) {
				t.Errorf("to %s", r.Header.Get("Location"))
			}
		},
		"a launch": func(t *testing.T, r *earlierRecords, b *servertest.Browser) {
			q := servertest.Request(url.Values{"client_id": {"launched"}, "scope": {"launch openid patient/*.rs"}, "launch": {r.Launch}})
			if r := b.Authorize(q); !leadsTo("code=")(r) {
				t.Errorf("to %s", r.Header.Get("Location"))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := readRecords(t, "two-stores.json")
				check(t, r, r.browser(t))
			})
		})
	}
}

// So are revocations, where there were two stores, and where there was one.
func TestEarlierRevocations(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"two-stores.json", "one-store.json"} {
		synctest.Test(t, func(t *testing.T) {
			r := readRecords(t, name)
			if r.inFlight = store.NewMemory(0, 0); name == "one-store.json" { // or a restart forgot them
				r.inFlight = readRecords(t, name).inFlight
				r.durable = r.inFlight
			}
			s := servertest.New(t, func(c *authorize.Config) { c.Store, c.Durable = r.inFlight, r.durable })
			if revoked, err := s.Revoked(t.Context(), r.Revoked); !revoked || err != nil {
				t.Errorf("%s: %t, %v", name, revoked, err)
			}
			if revoked, err := s.Revoked(t.Context(), "another.token"); revoked || err != nil {
				t.Errorf("%s: another: %t, %v", name, revoked, err)
			}
		})
	}
}

// And people of identity providers.
func TestEarlierAccount(t *testing.T) {
	t.Parallel()
	r := readRecords(t, "federated.json")
	s := servertest.New(t, func(c *authorize.Config) {
		c.Store, c.Durable = r.inFlight, r.durable
		c.IdentityProviders = []people.IdentityProvider{{
			Key: "hospital", Name: "Hospital", Issuer: "http://127.0.0.1:37015", ClientID: "gateway", ClientSecret: "secret",
		}}
	})
	for key := range r.Durable {
		_, sub, _ := strings.Cut(key, ":")
		holder, err := s.Holder(t.Context(), tokenclaim.AccessToken{ID: "a.b", Subject: sub, ClientID: "app", Scope: "openid", Provider: "hospital"})
		if holder == nil || err != nil {
			t.Errorf("%s: %v, %v", key, holder, err)
		}
	}
}

// A record of a later format is an error of ours, and says so; it is not taken for one of
// this.
func TestLaterRecord(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := readRecords(t, "two-stores.json")
		for _, kind := range []string{"code", "refresh", "session", "launch"} {
			in := map[bool]*store.Memory{true: r.inFlight, false: r.durable}[kind == "code" || kind == "launch"]
			keys, err := in.List(t.Context(), kind+":")
			if err != nil || len(keys) == 0 {
				t.Fatalf("%s: %q, %v", kind, keys, err)
			}
			for _, key := range keys {
				value, err := in.Get(t.Context(), key)
				if err == nil {
					err = in.Put(t.Context(), key, append([]byte(`{"v":2,`), value[1:]...), time.Hour)
				}
				servertest.NoError(t, err)
			}
		}
		b := r.browser(t)
		launched := servertest.Request(url.Values{"client_id": {"launched"}, "scope": {"launch openid"}, "launch": {r.Launch}})
		for name, answer := range map[string]*http.Response{
			"a code":          b.Post("/oauth2/token", servertest.CodeForm(r.Code, nil)),
			"a refresh token": b.Post("/oauth2/token", servertest.RefreshForm(r.Refresh, nil)),
			"a session":       b.Authorize(servertest.Request(nil)),
			"a launch":        b.Authorize(launched),
		} {
			if !isFailure("", answer) {
				t.Errorf("%s: %d to %q", name, answer.StatusCode, answer.Header.Get("Location"))
			}
		}
	})
}
