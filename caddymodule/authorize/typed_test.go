package authorize_test

import (
	"bytes"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/servertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/totp"
)

// Nothing that is typed or sent reaches the log, in whichever field and however it is
// written: people type passwords where names belong. A client's scopes that it may not
// have do, and redirect URIs that nobody may register: their developer is to see them.
func TestNothingTypedIsLogged(t *testing.T) {
	t.Parallel()
	const marked = "MARKED"
	names := strings.Fields(`response_type client_id redirect_uri state nonce prompt max_age login_hint id_token_hint
		ui_locales acr_values claims aud resource response_mode code_challenge code_challenge_method identity_provider request
		request_uri username password factor code decision grant_type code_verifier refresh_token client_secret client_assertion
		client_assertion_type token token_type_hint post_logout_redirect_uri logout_token error error_description iss`)
	bases := map[string]url.Values{
		"/oauth2/authorize": servertest.Request(nil), "/oauth2/token": servertest.CodeForm("code", nil), "/oauth2/par": servertest.Request(nil),
		"/oauth2/revoke": {"client_id": {"app"}, "token": {"t"}}, "/oauth2/introspect": {"client_id": {"service"}, "client_secret": {"hush"}, "token": {"t"}},
		"/oauth2/login": {}, "/oauth2/login/hospital": {}, "/oauth2/callback/hospital": {}, "/oauth2/consent": {}, "/oauth2/select_account": {},
		"/oauth2/logout": {}, "/oauth2/logout/hospital": {}, "/oauth2/userinfo": {}, "/oauth2/register": {}, "/oauth2/backchannel_logout/hospital": {},
	}
	var log bytes.Buffer
	p := authorizetest.Start(t)
	b := servertest.NewBrowser(t, servertest.NewFederated(t, p, func(_ *people.IdentityProvider, c *authorize.Config) {
		c.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		c.Users[1].TOTPSecret = totp.NewSecret()
		c.Registration = &client.Registration{InitialAccessToken: servertest.InitialAccessToken, Storage: new(servertest.ClientStorage), Folder: "clients"}
		c.Lockout.Off = true
	}))
	b.Answer(servertest.Request(nil))
	check := func(what string) {
		t.Helper()
		if text := log.String(); strings.Contains(text, marked) || strings.Contains(text, "%zq") {
			t.Errorf("%s: %s", what, text)
		}
		log.Reset()
	}
	for path, base := range bases {
		for _, name := range names {
			for _, value := range []string{marked, marked + "\n \"{", "%zq", `{"` + marked + `":1}`, "a." + marked + ".b", "https://" + marked + ".example/%zz"} {
				q := url.Values{}
				maps.Copy(q, base)
				q[name] = []string{value}
				for _, encoded := range []string{q.Encode(), q.Encode() + "&x=%zq" + marked} {
					b.Get(path + "?" + encoded)
					r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(encoded))
					r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
					b.Send(r)
				}
				check(path + " " + name + "=" + value)
			}
		}
	}
	for _, user := range []string{marked, "alice", "bob", marked + "@hospital.example"} {
		b.SignIn(servertest.Request(url.Values{"prompt": {"login"}}), user, marked)
		check("sign-in of " + user)
	}
	to := b.SignIn(servertest.Request(url.Values{"prompt": {"login"}}), "bob", "other").Header.Get("Location")
	_, factor, _ := strings.Cut(to, "factor=")
	b.Post("/oauth2/login", url.Values{"factor": {factor}, "code": {marked}})
	check("second factor")
	for _, header := range []string{"Basic " + marked, "Bearer " + marked, marked, "Basic TUFSS0VEOk1BUktFRA=="} {
		for path := range bases {
			r := servertest.PostRequest(path, url.Values{"token": {marked}, "grant_type": {marked}})
			r.Header.Set("Authorization", header)
			r.Header.Set("User-Agent", marked)
			r.Header.Set("Origin", "https://"+marked)
			b.Send(r)
			check(path + " " + header)
		}
	}
	for _, text := range []string{`{"` + marked + `":1}`, `{"client_name":"` + marked, `["` + marked + `"]`, `{"redirect_uris":["https://x.example/"],"scope":"` + marked + `"}`, `{"redirect_uris":"` + marked + `"}`, `{"jwks":"` + marked + `","token_endpoint_auth_method":"private_key_jwt","redirect_uris":["https://x.example/"]}`} {
		r := httptest.NewRequest(http.MethodPost, "/oauth2/register", strings.NewReader(text))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+servertest.InitialAccessToken)
		b.Send(r)
		check("register " + text)
	}
}
