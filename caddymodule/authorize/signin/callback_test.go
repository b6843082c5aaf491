package signin_test

import (
	"context"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
)

// What a provider may send the browser back with (RFC 6749 §4.1.2.1, OpenID
// Connect Core §3.1.2.6, RFC 9207), and what the client hears of it.
func TestProviderAnswers(t *testing.T) {
	t.Parallel()
	same := func(url.Values) {}
	tests := []struct {
		name   string
		change func(url.Values)
		want   string // the error; "" for a code, "page" for none
	}{
		{"as it was", same, ""},
		{"the person said no", declines("access_denied"), "access_denied"},
		{"nobody is signed in there, and prompt is none", declines("login_required"), "login_required"},
		{"the person would have to do something", declines("interaction_required"), "interaction_required"},
		{"the person would have to consent", declines("consent_required"), "consent_required"},
		{"the person would have to choose", declines("account_selection_required"), "account_selection_required"},
		{"acr_values that it cannot meet", declines("unmet_authentication_requirements"), "unmet_authentication_requirements"},
		{"too busy", declines("temporarily_unavailable"), "temporarily_unavailable"},
		{"broken", declines("server_error"), "server_error"},
		{"a mistake of ours", declines("invalid_request"), "server_error"},
		{"a client that it does not know", declines("unauthorized_client"), "server_error"},
		{"no code of a standard", declines("user_cancelled_authorize"), "server_error"},
		{"markup", declines("<script>alert(1)</script>"), "server_error"},
		{"line breaks", declines("access_denied\r\nSet-Cookie: a=b"), "server_error"},
		{"an error without end", declines(strings.Repeat("x", 5000)), "server_error"},
		{"an error and a code", func(q url.Values) { q.Set("error", "access_denied") }, "access_denied"},
		{"neither an error nor a code", func(q url.Values) { q.Del("code") }, "server_error"},
		{"a code that is none", func(q url.Values) { q.Set("code", "x") }, "invalid_request"},
		{"no iss, though it announces one", func(q url.Values) { q.Del("iss") }, "server_error"},
		{"another's iss", func(q url.Values) { q.Set("iss", "https://login.attacker.example") }, "server_error"},
		{"another's iss, with an error", func(q url.Values) {
			declines("access_denied")(q)
			q.Set("iss", "https://login.attacker.example")
		}, "server_error"},
		{"two codes", func(q url.Values) { q.Add("code", "x") }, "page"},
		{"two states", func(q url.Values) { q.Add("state", "x") }, "page"},
		{"no state", func(q url.Values) { q.Del("state") }, "page"},
		{"an empty state", func(q url.Values) { q.Set("state", "") }, "page"},
		{"the client's state", func(q url.Values) { q.Set("state", "s") }, "page"},
		{"an error without a state", func(q url.Values) { declines("access_denied")(q); q.Del("state") }, "page"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := providertest.Start(t)
			b := authorizetest.NewBrowser(t, authorizetest.NewFederated(t, p, nil))
			back := authorizetest.ProviderAnswer(b)
			q := back.Query()
			tt.change(q)
			r := b.Get(back.Path + "?" + q.Encode())
			if tt.want == "page" {
				if text := authorizetest.Body(t, r); r.StatusCode != http.StatusBadRequest || r.Header.Get("Location") != "" || strings.Contains(text, "access_denied") {
					t.Errorf("status %d, sent to %q: %s", r.StatusCode, r.Header.Get("Location"), text)
				}
				return
			}
			got := authorizetest.Location(t, r).Query()
			if got.Get("error") != tt.want || (got.Get("code") != "") != (tt.want == "") || got.Get("state") != "s" || got.Get("iss") != authorizetest.Issuer {
				t.Errorf("sent with %v", got)
			}
			if (b.Cookies["__Host-fhir-session"] != "") != (tt.want == "") {
				t.Errorf("cookies %v", b.Cookies)
			}
		})
	}
}

func declines(code string) func(url.Values) {
	return func(q url.Values) {
		q.Del("code")
		q.Set("error", code)
		q.Set("error_description", "<b>the provider's words</b>")
	}
}

// We ask for the answer in the query; in a form it is not taken, because other
// sites can post one (OAuth 2.0 Form Post Response Mode §4).
func TestPostedCallback(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	b := authorizetest.NewBrowser(t, authorizetest.NewFederated(t, p, nil))
	back := authorizetest.ProviderAnswer(b)
	if r := b.Post(back.Path, back.Query()); r.StatusCode != http.StatusMethodNotAllowed || r.Header.Get("Allow") != http.MethodGet {
		t.Errorf("status %d, Allow %q", r.StatusCode, r.Header.Get("Allow"))
	}
	authorizetest.WantCode(t, authorizetest.Location(t, b.Get(back.RequestURI())), "spent by it")
}

// The errors of providers go to the redirect URI's query for each flow of the
// interface, with state and iss, once (interface §7, RFC 9207 §2).
func TestFederatedErrorsOfEachFlow(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	p.Fail(providertest.Token, providertest.Status(http.StatusInternalServerError))
	server := authorizetest.NewFederated(t, p, nil)
	for name, change := range map[string]url.Values{
		"code":                        nil,
		"token":                       {"response_type": {"token"}},
		"token, without openid":       {"response_type": {"token"}, "scope": {"demo.read"}},
		"a state that needs encoding": {"state": {"a b+c&d=ü"}},
		"no state":                    {"state": {""}},
	} {
		t.Run(name, func(t *testing.T) {
			asked := authorizetest.Request(authorizetest.ByProvider("hospital"))
			maps.Copy(asked, change)
			b := authorizetest.NewBrowser(t, server)
			u := authorizetest.Location(t, b.Follow(b.Authorize(asked)))
			want := url.Values{
				"error": {"invalid_request"}, "error_description": {"General Hospital Error - 500 error getting token"},
				"iss": {authorizetest.Issuer}, "state": asked["state"],
			}
			if asked.Get("state") == "" {
				want.Del("state")
			}
			if got := u.Query().Encode(); got != want.Encode() || u.Fragment != "" {
				t.Errorf("sent with %s#%s, want %s", got, u.Fragment, want.Encode())
			}
		})
	}
}

// A silent sign-in at the provider is no way to show a page all the same: the
// linked person's second factor needs one (OpenID Connect Core §3.1.2.1).
func TestSilentSignInWithSecondFactor(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	var trail authorizetest.AuditTrail
	b := authorizetest.NewBrowser(t, authorizetest.NewFederated(t, p, func(idp *people.IdentityProvider, c *authorize.Config) {
		idp.LinkEmail, c.Audit = true, trail.Record
		c.Users[0].Email, c.Users[0].TOTPSecret = "alice@hospital.example", authorizetest.TOTPSecret
	}))
	got := authorizetest.Federate(b, url.Values{"prompt": {"none"}}).Query()
	if got.Get("error") != "login_required" || got.Get("state") != "s" || b.Cookies["__Host-fhir-session"] != "" {
		t.Errorf("sent with %v", got)
	}
	if want := "sign-in login_required hospital user=alice client=app scope="; trail.Take() != want {
		t.Errorf("events, want %s", want)
	}
}

// A flood of answers that are made up leaves nothing behind here: neither a code that
// the provider does not know, nor an error, nor a browser that leaves.
func TestMadeUpAnswersAreNotKept(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	server := authorizetest.NewFederated(t, p, nil)
	for i, change := range []func(url.Values){
		declines("access_denied"), func(q url.Values) { q.Set("code", "x") }, func(q url.Values) { q.Set("iss", "https://x.example") },
	} {
		b := authorizetest.NewBrowser(t, server)
		back := authorizetest.ProviderAnswer(b)
		before := maps.Clone(b.Cookies)
		q := back.Query()
		change(q)
		authorizetest.Location(t, b.Get(back.Path+"?"+q.Encode()))
		b.Cookies = before
		authorizetest.WantCode(t, authorizetest.Location(t, b.Get(back.RequestURI())), i)
		b.Cookies = before
		authorizetest.WantStatus(t, b.Get(back.RequestURI()), http.StatusBadRequest, "the right answer once more")
	}
}

// Who goes away while we wait for the provider is no failure of the provider or
// ours.
func TestBrowserLeaves(t *testing.T) {
	t.Parallel()
	for name, endpoint := range map[string]providertest.Endpoint{
		"on the way there": providertest.Discovery, "on the way back": providertest.Token,
	} {
		t.Run(name, func(t *testing.T) {
			p := providertest.Start(t)
			var trail authorizetest.AuditTrail
			server := authorizetest.NewFederated(t, p, func(_ *people.IdentityProvider, c *authorize.Config) { c.Audit = trail.Record })
			b := authorizetest.NewBrowser(t, server)
			next := authorizetest.Location(t, b.Authorize(authorizetest.Request(authorizetest.ByProvider("hospital"))))
			if endpoint == providertest.Token {
				next = authorizetest.ProviderAnswer(b)
			}
			ctx, cancel := context.WithCancel(t.Context())
			p.Fail(endpoint, func(w http.ResponseWriter, r *http.Request) {
				cancel()
				providertest.Silent(w, r)
			})
			b.Send(httptest.NewRequest(http.MethodGet, next.RequestURI(), nil).WithContext(ctx))
			authorizetest.Equal(t, trail.Take(), "")
			if endpoint != providertest.Token {
				return
			}
			p.Fail(endpoint, nil)
			authorizetest.WantCode(t, authorizetest.Location(t, b.Get(next.RequestURI())))
		})
	}
}

// The rows of the interface's §7 about providers, each reached by a real fault,
// and everything else that can go wrong there, which is server_error without a
// word.
func TestFederatedErrors(t *testing.T) {
	t.Parallel()
	type change = func(*testing.T, *providertest.Provider)
	fail := func(at providertest.Endpoint, fault providertest.Fault) change {
		return func(_ *testing.T, p *providertest.Provider) { p.Fail(at, fault) }
	}
	tamper := func(with func(*providertest.IDToken)) change {
		return func(_ *testing.T, p *providertest.Provider) {
			p.Change(func(s *providertest.Settings) { s.IDToken = with })
		}
	}
	declined := func(code string) change {
		return func(_ *testing.T, p *providertest.Provider) {
			p.Change(func(s *providertest.Settings) { s.AuthorizationError = code })
		}
	}
	const token, keys = providertest.Token, providertest.Keys
	tests := []struct {
		name               string
		change             change
		error, description string
	}{
		{"SYN dropped", func(t *testing.T, p *providertest.Provider) { p.Drop(t, token) }, "invalid_request", "Timeout occurred in calling IdP token endpoint"},
		{"accepted and silent", fail(token, providertest.Silent), "invalid_request", "Timeout occurred in calling IdP token endpoint"},
		{"JWKS hanging", fail(keys, providertest.Silent), "invalid_request", "Timeout in calling jwks uri"},
		{"JWKS stalled", fail(keys, providertest.Stall), "invalid_request", "Timeout in calling jwks uri"},
		{"500", fail(token, providertest.Status(500)), "invalid_request", "General Hospital Error - 500 error getting token"},
		{"400 with JSON error", fail(token, providertest.ErrorResponse(400, "invalid_grant")), "invalid_request", "General Hospital Error - 400 error getting token"},
		{"HTML instead of JSON", fail(token, providertest.HTML), "invalid_request", "General Hospital Error - 200 error getting token"},
		{"RST at once", fail(token, providertest.ResetAtOnce), "invalid_request", "Connection reset"},
		{"RST in the middle", fail(token, providertest.Reset), "invalid_request", "Connection reset"},
		{"body stalled", fail(token, providertest.Stall), "invalid_request", "Read timed out"},
		{"10 MB of JSON", fail(token, providertest.Huge), "server_error", ""},
		{"discovery down", fail(providertest.Discovery, providertest.Status(503)), "server_error", ""},
		{"discovery reset", fail(providertest.Discovery, providertest.ResetAtOnce), "invalid_request", "Connection reset"},
		{"unknown kid", tamper(providertest.UnknownKey), "server_error", ""},
		{"alg none", tamper(providertest.AlgorithmNone), "server_error", ""},
		{"HS256 with the public key", tamper(providertest.HS256WithPublicKey), "server_error", ""},
		{"wrong nonce", tamper(providertest.WrongNonce), "server_error", ""},
		{"wrong audience", tamper(providertest.WrongAudience), "server_error", ""},
		{"wrong issuer", tamper(providertest.WrongIssuer), "server_error", ""},
		{"expired", tamper(providertest.Expired), "server_error", ""},
		{"azp of another", tamper(providertest.OtherAuthorizedParty), "server_error", ""},
		{"the person said no", declined("access_denied"), "access_denied", ""},
		{"prompt none, and not signed in there", declined("login_required"), "login_required", ""},
		{"an error about us", declined("invalid_scope"), "server_error", ""},
		{"an error with markup", declined("<script>"), "server_error", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := providertest.Start(t)
			tt.change(t, p)
			b := authorizetest.NewBrowser(t, authorizetest.NewFederated(t, p, func(idp *people.IdentityProvider, _ *authorize.Config) {
				idp.Timeout = 10 * time.Second
				if strings.Contains(tt.description, "imed out") || strings.Contains(tt.description, "Timeout") {
					idp.Timeout = time.Second // the case waits for it
				}
			}))
			q := authorizetest.Federate(b, nil).Query()
			if q.Get("error") != tt.error || q.Get("error_description") != tt.description || len(q["error_description"]) > 1 {
				t.Errorf("error %q, description %q; want %q, %q", q.Get("error"), q["error_description"], tt.error, tt.description)
			}
			if q.Get("state") != "s" || q.Has("code") || b.Cookies["__Host-fhir-session"] != "" {
				t.Errorf("parameters %v, cookies %v", q, b.Cookies)
			}
		})
	}
}

// "<provider name> Error - <status code> <provider error code>"
func TestGoogleError(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	p.Fail(providertest.Token, providertest.ErrorResponse(400, "invalid_grant"))
	b := authorizetest.NewBrowser(t, authorizetest.NewFederated(t, p, func(idp *people.IdentityProvider, _ *authorize.Config) {
		idp.Name, idp.Google = "Google", true
	}))
	authorizetest.Equal(t, authorizetest.Federate(b, nil).Query().Get("error_description"), "Google Error - 400 invalid_grant")
}

// "The <provider name> is the idp's name, or its key where it has none."
func TestProviderWithoutName(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	p.Fail(providertest.Token, providertest.Status(502))
	b := authorizetest.NewBrowser(t, authorizetest.NewFederated(t, p, func(idp *people.IdentityProvider, _ *authorize.Config) { idp.Name = "" }))
	authorizetest.Equal(t, authorizetest.Federate(b, nil).Query().Get("error_description"), "hospital Error - 502 error getting token")
}

// A provider that cannot be reached costs nobody the other ways to sign in. Where there
// are none, or the request wants that one, the app is told (interface §7).
func TestProviderDown(t *testing.T) {
	t.Parallel()
	untrusted := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(untrusted.Close)
	silent, failing := failingIssuer(t, providertest.ResetAtOnce), failingIssuer(t, providertest.Status(http.StatusBadGateway))
	tests := []struct {
		name    string
		issuer  string
		idps    []string
		request url.Values
		page    bool
	}{
		{"beside passwords", silent, nil, nil, true},
		{"answers with a failure", failing, nil, nil, true},
		{"shows a certificate that nobody trusts", untrusted.URL, nil, nil, true},
		{"beside another provider", silent, []string{"down", "hospital"}, nil, true},
		{"by the domain of an address", silent, nil, url.Values{"login_hint": {"a@clinic.example"}}, true},
		{"the client allows no other", silent, []string{"down"}, nil, false},
		{"the request wants no other", silent, nil, authorizetest.ByProvider("down"), false},
		{"the request wants no page", silent, nil, url.Values{"login_hint": {"a@clinic.example"}, "prompt": {"none"}}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := providertest.Start(t)
			down := people.IdentityProvider{Key: "down", Name: "The Clinic", Issuer: tt.issuer, ClientID: "c", ClientSecret: "s", Domains: []string{"clinic.example"}}
			b := authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) {
				c.IdentityProviders = []people.IdentityProvider{down, authorizetest.Hospital(p)}
				c.Clients[0].IdentityProviders = tt.idps
			}))
			to := authorizetest.Location(t, b.Authorize(authorizetest.Request(tt.request)))
			if to.Path == "/oauth2/login" {
				to.Path = "/oauth2/login/down" // the link on the page
			}
			response := b.Get(to.String())
			page := authorizetest.Body(t, response)
			if !tt.page {
				if to := authorizetest.Location(t, response); !strings.HasPrefix(to.String(), authorizetest.Callback) || to.Query().Get("error") == "" {
					t.Errorf("sent to %s", to)
				}
				return
			}
			if response.StatusCode != http.StatusServiceUnavailable || !strings.Contains(page, "The Clinic cannot be reached at the moment.") {
				t.Fatalf("%d: %s", response.StatusCode, page)
			}
			if tt.idps != nil {
				return
			}
			sealed := authorizetest.Field(t, page, "request")
			u := authorizetest.Location(t, b.Post("/oauth2/login", url.Values{"request": {sealed}, "username": {"alice"}, "password": {"right"}}))
			authorizetest.WantCode(t, u, "by a password")
		})
	}
}

// failingIssuer is an issuer without a discovery document.
func failingIssuer(t *testing.T, fault providertest.Fault) string {
	t.Helper()
	p := providertest.Start(t)
	p.Fail(providertest.Discovery, fault)
	return p.Issuer
}
