package signin_test

import (
	"context"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/servertest"
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
			p := authorizetest.Start(t)
			b := servertest.NewBrowser(t, servertest.NewFederated(t, p, nil))
			back := servertest.ProviderAnswer(b)
			q := back.Query()
			tt.change(q)
			r := b.Get(back.Path + "?" + q.Encode())
			if tt.want == "page" {
				if text := servertest.Body(t, r); r.StatusCode != http.StatusBadRequest || r.Header.Get("Location") != "" || strings.Contains(text, "access_denied") {
					t.Errorf("status %d, sent to %q: %s", r.StatusCode, r.Header.Get("Location"), text)
				}
				return
			}
			got := servertest.Location(t, r).Query()
			if got.Get("error") != tt.want || (got.Get("code") != "") != (tt.want == "") || got.Get("state") != "s" || got.Get("iss") != servertest.Issuer {
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
	p := authorizetest.Start(t)
	b := servertest.NewBrowser(t, servertest.NewFederated(t, p, nil))
	back := servertest.ProviderAnswer(b)
	if r := b.Post(back.Path, back.Query()); r.StatusCode != http.StatusMethodNotAllowed || r.Header.Get("Allow") != http.MethodGet {
		t.Errorf("status %d, Allow %q", r.StatusCode, r.Header.Get("Allow"))
	}
	servertest.WantCode(t, servertest.Location(t, b.Get(back.RequestURI())), "spent by it")
}

// The errors of providers go to the redirect URI's query for each flow of the
// interface, with state and iss, once (interface §7, RFC 9207 §2).
func TestFederatedErrorsOfEachFlow(t *testing.T) {
	t.Parallel()
	p := authorizetest.Start(t)
	p.Fail(authorizetest.Token, authorizetest.Status(http.StatusInternalServerError))
	server := servertest.NewFederated(t, p, nil)
	for name, change := range map[string]url.Values{
		"code":                        nil,
		"token":                       {"response_type": {"token"}},
		"token, without openid":       {"response_type": {"token"}, "scope": {"demo.read"}},
		"a state that needs encoding": {"state": {"a b+c&d=ü"}},
		"no state":                    {"state": {""}},
	} {
		t.Run(name, func(t *testing.T) {
			asked := servertest.Request(servertest.ByProvider("hospital"))
			maps.Copy(asked, change)
			b := servertest.NewBrowser(t, server)
			u := servertest.Location(t, b.Follow(b.Authorize(asked)))
			want := url.Values{
				"error": {"invalid_request"}, "error_description": {"General Hospital Error - 500 error getting token"},
				"iss": {servertest.Issuer}, "state": asked["state"],
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
	p := authorizetest.Start(t)
	var trail servertest.AuditTrail
	b := servertest.NewBrowser(t, servertest.NewFederated(t, p, func(idp *people.IdentityProvider, c *authorize.Config) {
		idp.LinkEmail, c.Audit = true, trail.Record
		c.Users[0].Email, c.Users[0].TOTPSecret = "alice@hospital.example", servertest.TOTPSecret
	}))
	got := servertest.Federate(b, url.Values{"prompt": {"none"}}).Query()
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
	p := authorizetest.Start(t)
	server := servertest.NewFederated(t, p, nil)
	for i, change := range []func(url.Values){
		declines("access_denied"), func(q url.Values) { q.Set("code", "x") }, func(q url.Values) { q.Set("iss", "https://x.example") },
	} {
		b := servertest.NewBrowser(t, server)
		back := servertest.ProviderAnswer(b)
		before := maps.Clone(b.Cookies)
		q := back.Query()
		change(q)
		servertest.Location(t, b.Get(back.Path+"?"+q.Encode()))
		b.Cookies = before
		servertest.WantCode(t, servertest.Location(t, b.Get(back.RequestURI())), i)
		b.Cookies = before
		servertest.WantStatus(t, b.Get(back.RequestURI()), http.StatusBadRequest, "the right answer once more")
	}
}

// Who goes away while we wait for the provider is no failure of the provider or
// ours.
func TestBrowserLeaves(t *testing.T) {
	t.Parallel()
	for name, endpoint := range map[string]authorizetest.Endpoint{
		"on the way there": authorizetest.Discovery, "on the way back": authorizetest.Token,
	} {
		t.Run(name, func(t *testing.T) {
			p := authorizetest.Start(t)
			var trail servertest.AuditTrail
			server := servertest.NewFederated(t, p, func(_ *people.IdentityProvider, c *authorize.Config) { c.Audit = trail.Record })
			b := servertest.NewBrowser(t, server)
			next := servertest.Location(t, b.Authorize(servertest.Request(servertest.ByProvider("hospital"))))
			if endpoint == authorizetest.Token {
				next = servertest.ProviderAnswer(b)
			}
			ctx, cancel := context.WithCancel(t.Context())
			p.Fail(endpoint, func(w http.ResponseWriter, r *http.Request) {
				cancel()
				authorizetest.Silent(w, r)
			})
			b.Send(httptest.NewRequest(http.MethodGet, next.RequestURI(), nil).WithContext(ctx))
			servertest.Equal(t, trail.Take(), "")
			if endpoint != authorizetest.Token {
				return
			}
			p.Fail(endpoint, nil)
			servertest.WantCode(t, servertest.Location(t, b.Get(next.RequestURI())))
		})
	}
}
