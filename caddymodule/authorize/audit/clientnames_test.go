package audit_test

import (
	"context"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
)

// refusedEvents keeps the refusals of a server.
type refusedEvents []audit.Event

// Record implements [authorize.Config].Audit.
func (r *refusedEvents) Record(_ context.Context, e audit.Event) {
	if e.Err != nil {
		*r = append(*r, e)
	}
}

// check checks that a request was refused, and that each event of it names the client.
func (r *refusedEvents) check(t *testing.T, name, clientID string, status int) {
	t.Helper()
	events := *r
	*r = nil
	if len(events) == 0 {
		t.Errorf("%s: no event, status %d", name, status)
	}
	for _, e := range events {
		if e.ClientID != clientID {
			t.Errorf("%s: the event names %q: %s %v", name, e.ClientID, e.Kind, e.Err)
		}
	}
}

// TestRefusalsNameClient sends rejected requests of each authentication method to each endpoint for clients: the audit trail
// names the client, whatever part of the request names it.
func TestRefusalsNameClient(t *testing.T) {
	t.Parallel()
	var trail refusedEvents
	server := authorizetest.New(t, func(c *authorize.Config) {
		c.Audit = trail.Record
		for i := range c.Clients {
			c.Clients[i].PostLogoutRedirectURIs = []string{authorizetest.AfterLogout}
		}
		c.Clients = append(c.Clients, client.Client{
			ID: "backend", GrantTypes: []string{"client_credentials"}, Scopes: []string{"system/*.rs"}, LaunchContext: true,
			RedirectURIs: []string{authorizetest.Callback}, JWKS: authorizetest.PublicKeys(jose.ES256, jose.RS256),
		}, client.Client{ID: "a client", Secret: "s3cret", RedirectURIs: []string{authorizetest.Callback}})
	})
	assertion := func(claims, header map[string]any) url.Values {
		return url.Values{"client_assertion_type": {authorizetest.AssertionType}, "client_assertion": {authorizetest.Assertion(t, jose.ES256, claims, header)}}
	}
	with := func(form url.Values, name, value string) url.Values {
		form = maps.Clone(form)
		form.Set(name, value)
		return form
	}
	used := assertion(nil, nil)
	authorizetest.NewBrowser(t, server).Post("/oauth2/token", with(used, "grant_type", "client_credentials"))
	trail = nil
	methods := map[string]struct {
		client string
		form   func() url.Values
		basic  []string
		proves bool // who the client is
	}{
		"assertion":               {"backend", func() url.Values { return assertion(nil, nil) }, nil, true},
		"assertion and client_id": {"backend", func() url.Values { return with(assertion(nil, nil), "client_id", "backend") }, nil, true},
		"expired assertion": {"backend", func() url.Values {
			return assertion(map[string]any{"exp": time.Now().Add(-time.Hour).Unix()}, nil)
		}, nil, false},
		"assertion for another server": {"backend", func() url.Values { return assertion(map[string]any{"aud": "https://x.example"}, nil) }, nil, false},
		"assertion without jti":        {"backend", func() url.Values { return assertion(map[string]any{"jti": nil}, nil) }, nil, false},
		"assertion without sub":        {"backend", func() url.Values { return assertion(map[string]any{"sub": nil}, nil) }, nil, false},
		"assertion without iss":        {"backend", func() url.Values { return assertion(map[string]any{"iss": nil}, nil) }, nil, false},
		"assertion by an unknown key":  {"backend", func() url.Values { return assertion(nil, map[string]any{"kid": "x"}) }, nil, false},
		"assertion of a wrong typ":     {"backend", func() url.Values { return assertion(nil, map[string]any{"typ": "at+jwt"}) }, nil, false},
		"used assertion":               {"backend", func() url.Values { return used }, nil, false},
		"assertion and no type":        {"backend", func() url.Values { return with(assertion(nil, nil), "client_assertion_type", "") }, nil, false},
		"assertion of a client without keys": {"service", func() url.Values {
			return assertion(map[string]any{"iss": "service", "sub": "service"}, nil)
		}, nil, false},
		"basic":                     {"confidential", nil, []string{"confidential", "s3cret/+ %"}, true},
		"basic, encoded":            {"a client", nil, []string{"a+client", "s3cret"}, true},
		"basic, wrong secret":       {"confidential", nil, []string{"confidential", "wrong"}, false},
		"basic, encoded and wrong":  {"a client", nil, []string{"a+client", "wrong"}, false},
		"basic and secret":          {"confidential", func() url.Values { return url.Values{"client_secret": {"x"}} }, []string{"confidential", "x"}, false},
		"post":                      {"confidential", func() url.Values { return url.Values{"client_id": {"confidential"}, "client_secret": {"s3cret/+ %"}} }, nil, true},
		"post, wrong secret":        {"confidential", func() url.Values { return url.Values{"client_id": {"confidential"}, "client_secret": {"wrong"}} }, nil, false},
		"confidential, no secret":   {"confidential", func() url.Values { return url.Values{"client_id": {"confidential"}} }, nil, false},
		"public":                    {"app", func() url.Values { return url.Values{"client_id": {"app"}} }, nil, true},
		"public, but with a secret": {"app", func() url.Values { return url.Values{"client_id": {"app"}, "client_secret": {"x"}} }, nil, false},
	}
	rejected := map[string]map[string]url.Values{ // even if the client authenticates
		"/oauth2/token":      {"no grant_type": {}, "unknown grant_type": {"grant_type": {"x"}}, "code that is none": {"grant_type": {"authorization_code"}, "code": {"x"}}},
		"/oauth2/par":        {"wrong redirect_uri": {"redirect_uri": {"https://x.example"}, "response_type": {"code"}}, "no redirect_uri": {}, "request_uri": {"request_uri": {"urn:x"}}},
		"/oauth2/revoke":     {"no token": {}},
		"/oauth2/introspect": {"no token": {}},
		"/oauth2/launch":     {"no app": {}},
	}
	for path, requests := range rejected {
		requests["a parameter twice"] = url.Values{"token": {"x", "y"}}
		for request, parameters := range requests {
			for name, m := range methods {
				form := maps.Clone(parameters)
				if m.form != nil {
					maps.Copy(form, m.form())
				}
				r := authorizetest.PostRequest(path, form)
				if m.basic != nil {
					r.SetBasicAuth(m.basic[0], m.basic[1])
				}
				response := authorizetest.NewBrowser(t, server).Send(r)
				trail.check(t, path+", "+request+", "+name, m.client, response.StatusCode)
			}
		}
	}
	for name, m := range methods { // what is right but for the client
		if m.proves {
			continue
		}
		for path, parameters := range map[string]url.Values{
			"/oauth2/token": {"grant_type": {"client_credentials"}}, "/oauth2/revoke": {"token": {"x"}}, "/oauth2/introspect": {"token": {"x"}},
		} {
			form := maps.Clone(parameters)
			if m.form != nil {
				maps.Copy(form, m.form())
			}
			r := authorizetest.PostRequest(path, form)
			if m.basic != nil {
				r.SetBasicAuth(m.basic[0], m.basic[1])
			}
			response := authorizetest.NewBrowser(t, server).Send(r)
			trail.check(t, path+", "+name, m.client, response.StatusCode)
		}
	}
}

// TestBrowserRefusalsNameClient does the same for endpoints that browsers are sent to, for access tokens, and refresh tokens without
// a client_id.
func TestBrowserRefusalsNameClient(t *testing.T) {
	t.Parallel()
	var trail refusedEvents
	server := authorizetest.New(t, func(c *authorize.Config) {
		authorizetest.WithNewcomers(authorizetest.Newcomer(func(c *client.Client) { c.Waits = true }))(c)
		c.AuthorizePOST, c.Audit = true, trail.Record
		c.Clients[0].PostLogoutRedirectURIs = []string{authorizetest.AfterLogout}
		c.Clients[2].RequirePushed = true
	})
	b := authorizetest.NewBrowser(t, server)
	hint := authorizetest.NewBrowser(t, server).Tokens(nil).IDToken
	r := authorizetest.PostRequest("/oauth2/token", url.Values{"grant_type": {"client_credentials"}})
	r.SetBasicAuth("service", "hush")
	token := authorizetest.Decode[authorizetest.TokenResponse](t, b.Send(r)).AccessToken
	bearer := func(path string, form url.Values) *http.Request {
		r := authorizetest.PostRequest(path, form)
		r.Header.Set("Authorization", "Bearer "+token)
		return r
	}
	get := func(target string) *http.Request {
		return authorizetest.Secure(httptest.NewRequest(http.MethodGet, target, nil))
	}
	authorize := func(change url.Values) *http.Request {
		return get("/oauth2/authorize?" + authorizetest.Request(change).Encode())
	}
	trail = nil
	const wrong = "https://app.example.org/callback/WRONG"
	for _, tt := range []struct {
		name, client string
		request      *http.Request
		sent         bool // a redirect URI that is not registered
	}{
		{"wrong redirect_uri", "app", authorize(url.Values{"redirect_uri": {wrong}}), true},
		{"no redirect_uri", "app", authorize(url.Values{"redirect_uri": {""}}), false},
		{"redirect_uri twice", "app", get("/oauth2/authorize?" + authorizetest.Request(nil).Encode() + "&redirect_uri=x"), false},
		{"unknown scope", "app", authorize(url.Values{"scope": {"x"}}), false},
		{"malformed query", "app", get("/oauth2/authorize?client_id=app&state=%"), false},
		{"pushed request that is none", "app", get("/oauth2/authorize?client_id=app&request_uri=urn:ietf:params:oauth:request_uri:x"), false},
		{"pushed request, sealed, that is none", "app", get("/oauth2/authorize?client_id=app&request_uri=urn:ietf:params:oauth:request_uri:x.y"), false},
		{"pushed request, twice", "app", get("/oauth2/authorize?client_id=app&request_uri=urn:ietf:params:oauth:request_uri:x&request_uri=y"), false},
		{"not pushed", "strict", authorize(url.Values{"client_id": {"strict"}}), false},
		{"request object", "app", authorize(url.Values{"request": {"x.y.z"}}), false},
		{"waits for approval", authorizetest.NewcomerID, authorize(url.Values{"client_id": {authorizetest.NewcomerID}}), false},
		{"posted, twice", "app", authorizetest.PostRequest("/oauth2/authorize", url.Values{"client_id": {"app"}, "scope": {"a", "b"}}), false},
		{"posted with a query", "app", authorizetest.PostRequest("/oauth2/authorize?x=y", url.Values{"client_id": {"app"}}), false},

		{"logout, wrong address", "app", get("/oauth2/logout?client_id=app&post_logout_redirect_uri=" + url.QueryEscape(wrong)), true},
		{"logout by a hint, wrong address", "app", get("/oauth2/logout?id_token_hint=" + hint + "&post_logout_redirect_uri=" + url.QueryEscape(wrong)), true},
		{"logout, hint that is none", "app", get("/oauth2/logout?client_id=app&id_token_hint=x"), false},
		{"logout, a parameter twice", "app", get("/oauth2/logout?client_id=app&state=x&state=y"), false},

		{"userinfo without openid", "service", bearer("/oauth2/userinfo", nil), false},
		{"introspection by a token, no token named", "service", bearer("/oauth2/introspect", nil), false},

		{"pushed, wrong redirect_uri", "app", authorizetest.PostRequest("/oauth2/par", authorizetest.Request(url.Values{"redirect_uri": {wrong}})), true},
		{"pushed, waits for approval", authorizetest.NewcomerID, authorizetest.PostRequest("/oauth2/par", authorizetest.Request(url.Values{"client_id": {authorizetest.NewcomerID}, "client_secret": {authorizetest.NewcomerSecret}})), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			response := authorizetest.NewBrowser(t, server).Send(tt.request)
			shown, err := io.ReadAll(response.Body)
			authorizetest.NoError(t, err)
			events := trail
			trail.check(t, tt.name, tt.client, response.StatusCode)
			if strings.Contains(string(shown)+response.Header.Get("Location"), "WRONG") {
				t.Errorf("the response shows the URI: %s", shown)
			}
			for _, e := range events {
				if want := map[bool]string{true: wrong}[tt.sent]; e.SentURI != want {
					t.Errorf("the event has the URI %q, want %q", e.SentURI, want)
				}
				if tt.sent && (e.ClosestURI == "" || strings.Contains(e.ClosestURI, "localhost")) {
					t.Errorf("the closest is %q", e.ClosestURI)
				}
			}
		})
	}
}

// TestRedirectOfRefusal logs and keeps the URI bounded and escaped, with the registered one that shares most with it.
func TestRedirectOfRefusal(t *testing.T) {
	t.Parallel()
	var kept audit.Refusals
	server := authorizetest.New(t, func(c *authorize.Config) {
		c.Clients[0].RedirectURIs = []string{"https://other.example/callback", "https://app.example.org/callback", "https://app.example.org/cb"}
		c.Audit = func(_ context.Context, e audit.Event) { kept.Note(c.Issuer, e) }
	})
	for sent, want := range map[string]audit.Redirect{
		"https://app.example.org/callback/":          {SentURI: "https://app.example.org/callback/", ClosestURI: "https://app.example.org/callback"},
		"http://app.example.org/callback":            {SentURI: "http://app.example.org/callback", ClosestURI: "https://app.example.org/callback"},
		"https://other.example/callback?x=\x1b[1m\n": {SentURI: `https://other.example/callback?x=\x1b[1m\n`, ClosestURI: "https://other.example/callback"},
		"https://app.example.org/" + strings.Repeat("x", 5000): {
			SentURI: "https://app.example.org/" + strings.Repeat("x", 256-24), ClosestURI: "https://app.example.org/callback",
		},
	} {
		authorizetest.NewBrowser(t, server).Authorize(authorizetest.Request(url.Values{"redirect_uri": {sent}}))
		all := kept.Of(authorizetest.Issuer, "app")
		if len(all) == 0 || all[len(all)-1].Redirect != want {
			t.Errorf("%q: %+v", sent, all)
		}
	}
}
