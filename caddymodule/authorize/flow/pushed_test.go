package flow_test

import (
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// The client gets a reference, which results in the same response to the browser as the request itself (RFC 9126 §2.2, §4).
func TestPushedRequest(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, nil))
	status, answer := authorizetest.Push(b, authorizetest.Request(authorizetest.PKCE()))
	if status != http.StatusCreated || answer.ExpiresIn != 90 ||
		!strings.HasPrefix(answer.RequestURI, "urn:ietf:params:oauth:request_uri:") || strings.Contains(answer.RequestURI, "app.example") {
		t.Fatalf("%d %+v", status, answer)
	}
	q := b.SignInAlice(authorizetest.PushedRequest(answer.RequestURI)).Query()
	form := authorizetest.CodeForm(q.Get("code"), url.Values{"code_verifier": {authorizetest.Verifier}})
	if got := b.RequestTokens(form); got.AccessToken == "" || q.Get("state") != "s" {
		t.Errorf("%v, %+v", q, got)
	}
}

// Confidential clients authenticate as at the token endpoint, and the secret is not forwarded.
func TestPushedRequestOfConfidentialClient(t *testing.T) {
	t.Parallel()
	q := authorizetest.Request(url.Values{"client_id": {"confidential"}, "redirect_uri": {authorizetest.Callback + "?tenant=1"}, "client_secret": {"s3cret/+ %"}})
	b := authorizetest.NewBrowser(t, authorizetest.New(t, nil))
	_, answer := authorizetest.Push(b, q)
	u := b.SignInAlice(url.Values{"client_id": {"confidential"}, "request_uri": {answer.RequestURI}})
	authorizetest.WantCode(t, u)
	for name, secret := range map[string]string{"a wrong secret": "wrong", "no secret": ""} {
		q.Set("client_secret", secret)
		if status, answer := authorizetest.Push(b, q); status != http.StatusUnauthorized || answer.Error != "invalid_client" {
			t.Errorf("%s: %d %+v", name, status, answer)
		}
	}
}

// The stored request contains no secret.
func TestPushedRequestKeepsNoSecret(t *testing.T) {
	t.Parallel()
	store := store.NewMemory(0, 0)
	b := authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) { c.Store = store }))
	authorizetest.Push(b, authorizetest.Request(url.Values{"client_id": {"confidential"}, "redirect_uri": {authorizetest.Callback + "?tenant=1"}, "client_secret": {"s3cret/+ %"}}))
	keys, err := store.List(t.Context(), "pushed:")
	if err != nil || len(keys) != 1 {
		t.Fatalf("%q, %v", keys, err)
	}
	if value, err := store.Get(t.Context(), keys[0]); err != nil || strings.Contains(string(value), "s3cret") {
		t.Errorf("%s, %v", value, err)
	}
}

func TestPushedRequestByBasic(t *testing.T) {
	t.Parallel()
	q := authorizetest.Request(url.Values{"client_id": {""}, "redirect_uri": {authorizetest.Callback + "?tenant=1"}})
	r := authorizetest.PostRequest("/oauth2/par", q)
	r.SetBasicAuth("confidential", "s3cret/+ %")
	authorizetest.WantStatus(t, authorizetest.NewBrowser(t, authorizetest.New(t, nil)).Send(r), http.StatusCreated)
}

// Errors in a pushed request are returned immediately as JSON.
func TestPushedRequestRefused(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		change url.Values
		want   string
	}{
		{"an unknown client", url.Values{"client_id": {"nobody"}}, "invalid_client"},
		{"another redirect URI", url.Values{"redirect_uri": {"https://evil.example/"}}, "invalid_request"},
		{"no redirect URI", url.Values{"redirect_uri": {""}}, "invalid_request"},
		{"an unknown scope", url.Values{"scope": {"nonsense"}}, "invalid_scope"},
		{"plain PKCE", url.Values{"code_challenge_method": {"plain"}, "code_challenge": {authorizetest.S256(authorizetest.Verifier)}}, "invalid_request"},
		{"a request object", url.Values{"request": {"eyJ"}}, "request_not_supported"},
		{"a request_uri", url.Values{"request_uri": {"urn:ietf:params:oauth:request_uri:x"}}, "invalid_request"},
		{"a parameter twice", url.Values{"scope": {"openid", "email"}}, "invalid_request"},
		{"over 10 KiB", url.Values{"state": {strings.Repeat("s", 6<<10)}, "nonce": {strings.Repeat("n", 6<<10)}}, "invalid_request"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			status, answer := authorizetest.Push(authorizetest.NewBrowser(t, authorizetest.New(t, nil)), authorizetest.Request(tt.change))
			if status < 400 || status > 401 || answer.Error != tt.want || answer.RequestURI != "" {
				t.Errorf("%d %+v", status, answer)
			}
		})
	}
	authorizetest.WantStatus(t, authorizetest.NewBrowser(t, authorizetest.New(t, nil)).Get("/oauth2/par?"+authorizetest.Request(nil).Encode()), http.StatusMethodNotAllowed, "GET")
}

// A reference can be used once, only by its client, and only for 90 seconds (RFC 9126 §2.2, §4, §7.1).
func TestPushedRequestValidity(t *testing.T) {
	t.Parallel()
	set := func(q url.Values, change func(uri string) string) { q.Set("request_uri", change(q.Get("request_uri"))) }
	tests := []struct {
		name string
		do   func(b *authorizetest.Browser, q url.Values)
		want int
	}{
		{"at once", func(*authorizetest.Browser, url.Values) {}, http.StatusFound},
		{"within 90 seconds", func(*authorizetest.Browser, url.Values) { time.Sleep(89 * time.Second) }, http.StatusFound},
		{"after 90 seconds", func(*authorizetest.Browser, url.Values) { time.Sleep(91 * time.Second) }, http.StatusBadRequest},
		{"a second time", func(b *authorizetest.Browser, q url.Values) { b.Authorize(q) }, http.StatusBadRequest},
		{"a second time, later", func(b *authorizetest.Browser, q url.Values) { b.Authorize(q); time.Sleep(89 * time.Second) }, http.StatusBadRequest},
		{"a second time, with another end", func(b *authorizetest.Browser, q url.Values) {
			b.Authorize(q)
			set(q, func(uri string) string { return uri + "\n" })
		}, http.StatusBadRequest},
		{"by another client", func(_ *authorizetest.Browser, q url.Values) { q.Set("client_id", "strict") }, http.StatusBadRequest},
		{"without client_id", func(_ *authorizetest.Browser, q url.Values) { q.Del("client_id") }, http.StatusBadRequest},
		{"with two client_ids", func(_ *authorizetest.Browser, q url.Values) { q.Add("client_id", "strict") }, http.StatusBadRequest},
		{"with two references", func(_ *authorizetest.Browser, q url.Values) { q.Add("request_uri", q.Get("request_uri")) }, http.StatusBadRequest},
		{"another reference", func(_ *authorizetest.Browser, q url.Values) { set(q, func(uri string) string { return uri + "x" }) }, http.StatusBadRequest},
		{"another beginning", func(_ *authorizetest.Browser, q url.Values) {
			set(q, func(uri string) string { return strings.Replace(uri, "uri:", "uri:A", 1) })
		}, http.StatusBadRequest},
		{"cut short", func(_ *authorizetest.Browser, q url.Values) { set(q, func(uri string) string { return uri[:60] }) }, http.StatusBadRequest},
	}
	for _, tt := range tests {
		for kind, form := range map[string]url.Values{"public": authorizetest.Request(nil), "confidential": authorizetest.ConfidentialPush(nil)} {
			t.Run(tt.name+"/"+kind, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := authorizetest.NewBrowser(t, authorizetest.New(t, nil))
					_, answer := authorizetest.Push(b, form)
					q := url.Values{"client_id": form["client_id"], "request_uri": {answer.RequestURI}}
					tt.do(b, q)
					r := b.Authorize(q)
					if r.StatusCode != tt.want || tt.want != http.StatusFound && r.Header.Get("Location") != "" {
						t.Errorf("status %d, sent to %q", r.StatusCode, r.Header.Get("Location"))
					}
				})
			})
		}
	}
}

// Other query parameters are ignored (RFC 9126 §4), regardless of their encoding. Only & separates
// parameters (URL Standard §5.1).
func TestPushedRequestBesideOtherParameters(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, nil))
	_, answer := authorizetest.Push(b, authorizetest.Request(nil))
	b.SignInAlice(authorizetest.Request(nil)) // starts a session
	r := b.Get("/oauth2/authorize?" + authorizetest.PushedRequest(answer.RequestURI).Encode() + "&state=x;y")
	if u := authorizetest.Location(t, r); u.Query().Get("code") == "" || u.Query().Get("state") != "s" {
		t.Errorf("%d to %s", r.StatusCode, u)
	}
}

// If a reference is used concurrently, exactly one use succeeds.
func TestPushedRequestUsedOnce(t *testing.T) {
	t.Parallel()
	server := authorizetest.New(t, nil)
	_, answer := authorizetest.Push(authorizetest.NewBrowser(t, server), authorizetest.Request(nil))
	var used atomic.Int64
	var tries sync.WaitGroup
	for range 50 {
		b := authorizetest.NewBrowser(t, server)
		tries.Go(func() {
			if b.Authorize(authorizetest.PushedRequest(answer.RequestURI)).StatusCode == http.StatusFound {
				used.Add(1)
			}
		})
	}
	if tries.Wait(); used.Load() != 1 {
		t.Errorf("used %d times", used.Load())
	}
}

// The longest request that a public client can send directly can also be pushed, because the URL of the sign-in page contains
// it too. POST behaves the same (SMART's authorize-post).
func TestLongPushedRequest(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) { c.AuthorizePOST = true }))
	long := authorizetest.Request(url.Values{"state": {strings.Repeat("s", 8<<10)}, "nonce": {strings.Repeat("n", 1800)}})
	_, answer := authorizetest.Push(b, long)
	reference := authorizetest.PushedRequest(answer.RequestURI)
	posted := b.Post("/oauth2/authorize", reference)
	if posted.StatusCode != http.StatusSeeOther || posted.Header.Get("Location") != "/oauth2/authorize?"+reference.Encode() {
		t.Errorf("%d to %q", posted.StatusCode, posted.Header.Get("Location"))
	}
	page := authorizetest.Location(t, b.Authorize(reference))
	if page.Path != "/oauth2/login" || len(reference.Encode()) > len(page.RawQuery)+200 {
		t.Errorf("a reference of %d bytes leads to a page with %d: %.100s", len(reference.Encode()), len(page.RawQuery), page)
	}
}

// Parameters next to the reference were not pushed and are ignored (RFC 9126 §4).
func TestPushedRequestCannotBeChanged(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, nil))
	_, answer := authorizetest.Push(b, authorizetest.Request(nil))
	q := authorizetest.PushedRequest(answer.RequestURI)
	q.Set("redirect_uri", "http://localhost:3000/callback")
	q.Set("scope", "openid user/*.rs")
	q.Set("state", "evil")
	u := b.SignInAlice(q)
	got := b.RequestTokens(authorizetest.CodeForm(u.Query().Get("code"), nil))
	if u.Query().Get("state") != "s" || !strings.HasPrefix(u.String(), authorizetest.Callback) || got.Scope != "openid" {
		t.Errorf("%s, %+v", u, got)
	}
}

func TestPushedRequestRequired(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) { c.Clients[0].RequirePushed = true }))
	authorizetest.WantError(t, authorizetest.Location(t, b.Authorize(authorizetest.Request(nil))), "invalid_request")
	_, answer := authorizetest.Push(b, authorizetest.Request(nil))
	authorizetest.WantCode(t, b.SignInAlice(authorizetest.PushedRequest(answer.RequestURI)))
}

// Pushed requests of public clients use no storage and block no other requests, regardless of how many there are.
func TestPushedRequestsUseNoStore(t *testing.T) {
	t.Parallel()
	store := store.NewMemory(0, 0)
	b := authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) { c.Store = store }))
	before, _ := store.Size()
	for range 10_001 {
		if status, answer := authorizetest.Push(b, authorizetest.Request(nil)); status != http.StatusCreated {
			t.Fatalf("%d %+v", status, answer)
		}
	}
	if n, _ := store.Size(); n != before {
		t.Errorf("the store holds %d entries", n-before)
	}
	strict := authorizetest.Request(authorizetest.PKCE())
	strict.Set("client_id", "strict")
	for _, form := range []url.Values{strict, authorizetest.ConfidentialPush(nil)} {
		if status, answer := authorizetest.Push(b, form); status != http.StatusCreated {
			t.Errorf("%s: %d %+v", form.Get("client_id"), status, answer)
		}
	}
}

// Pushed requests of confidential clients are limited, and the limit does not affect other clients.
func TestPushedRequestsAreBounded(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, nil))
	for range 10_000 {
		if status, answer := authorizetest.Push(b, authorizetest.ConfidentialPush(nil)); status != http.StatusCreated {
			t.Fatalf("%d %+v", status, answer)
		}
	}
	if status, answer := authorizetest.Push(b, authorizetest.ConfidentialPush(nil)); status != http.StatusServiceUnavailable || answer.Error != "temporarily_unavailable" {
		t.Errorf("%d %+v", status, answer)
	}
	if status, answer := authorizetest.Push(b, authorizetest.Request(nil)); status != http.StatusCreated {
		t.Errorf("a public client: %d %+v", status, answer)
	}
}
