package authorize_test

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
)

// request is a request to an endpoint of a server configured by [withAllFeatures].
type request struct {
	name string

	// prepare performs the preceding steps and returns a function that creates the request, repeatedly if needed.
	prepare func(b *authorizetest.Browser, p *providertest.Provider) func() *http.Request
	expectation
}

// expectation is the expected response and effect of a request.
type expectation struct {
	good   func(*http.Response) bool // success criterion; nil if the request uses neither store nor keys
	stays  string                    // kinds of entries that may change on failure, e.g. indexes that list missing entries
	during outageResponse            // response during a store outage
	row    string                    // row in docs/evidence/replicas.md with the number of round trips
	once   bool                      // exactly one of several identical concurrent requests succeeds
}

var ok, toApp = hasStatus(http.StatusOK), redirectsTo(authorizetest.Callback + "?code=")

// requests contains requests to all endpoints.
var requests = []request{
	{"token: a code for all tokens", func(b *authorizetest.Browser, _ *providertest.Provider) func() *http.Request {
		return newPost("/oauth2/token", authorizetest.CodeForm(b.Code(authorizetest.WithOfflineAccess(nil)), nil))
	}, expectation{good: ok, stays: "families", during: unavailable, row: "a code exchanged, with a refresh token", once: true}},
	{"token: a code", func(b *authorizetest.Browser, _ *providertest.Provider) func() *http.Request {
		return newPost("/oauth2/token", authorizetest.CodeForm(b.Code(nil), nil))
	}, expectation{good: ok, stays: "families", row: "a code exchanged"}},
	{"token: a code of a client that requires consent", func(b *authorizetest.Browser, _ *providertest.Provider) func() *http.Request {
		q := authorizetest.Request(url.Values{"client_id": {"careful"}, "scope": {"openid offline_access"}})
		code := b.Allow(b.SignIn(q, "alice", "right"), "*").Query().Get("code")
		return newPost("/oauth2/token", authorizetest.CodeForm(code, url.Values{"client_id": {"careful"}}))
	}, expectation{good: ok, stays: "families", row: "a code exchanged, of a client that requires consent"}},
	{"token: a code for tokens that end with the session", func(b *authorizetest.Browser, _ *providertest.Provider) func() *http.Request {
		return newPost("/oauth2/token", authorizetest.CodeForm(b.Code(url.Values{"scope": {"openid online_access"}}), nil))
	}, expectation{good: ok, stays: "families"}},
	{"token: a code after a federated sign-in", func(b *authorizetest.Browser, _ *providertest.Provider) func() *http.Request {
		return newPost("/oauth2/token", authorizetest.CodeForm(authorizetest.SignInAtProvider(b, authorizetest.WithOfflineAccess(nil)).Query().Get("code"), nil))
	}, expectation{good: ok, stays: "session sessions upstream-sessions session-client apps account kept-account person families upstream upstream-due upstream-of"}},
	{"token: a code, by an assertion", func(b *authorizetest.Browser, _ *providertest.Provider) func() *http.Request {
		code := b.Code(url.Values{"client_id": {"backend"}, "scope": {"openid offline_access"}})
		return newPost("/oauth2/token", withAssertion(b.T, authorizetest.CodeForm(code, nil)))
	}, expectation{good: ok, stays: "families"}},
	{"token: a refresh token", func(b *authorizetest.Browser, _ *providertest.Provider) func() *http.Request {
		return newPost("/oauth2/token", authorizetest.RefreshForm(b.Tokens(authorizetest.WithOfflineAccess(nil)).RefreshToken, nil))
	}, expectation{good: ok, during: unavailable, row: "a refresh", once: true}},
	{"token: a refresh token that ends with the session", func(b *authorizetest.Browser, _ *providertest.Provider) func() *http.Request {
		return newPost("/oauth2/token", authorizetest.RefreshForm(b.Tokens(url.Values{"scope": {"openid online_access"}}).RefreshToken, nil))
	}, expectation{good: ok, row: "a refresh, `online_access`"}},
	{"token: a refresh token that ends with the session, without client_id", func(b *authorizetest.Browser, _ *providertest.Provider) func() *http.Request {
		refresh := b.Tokens(url.Values{"scope": {"openid online_access"}}).RefreshToken
		return newPost("/oauth2/token", authorizetest.RefreshForm(refresh, url.Values{"client_id": {""}}))
	}, expectation{good: ok}},
	{"token: client credentials", func(*authorizetest.Browser, *providertest.Provider) func() *http.Request {
		return newPost("/oauth2/token", url.Values{"grant_type": {"client_credentials"}, "client_id": {"service"}, "client_secret": {"hush"}})
	}, expectation{good: ok}},
	{"token: client credentials, by an assertion", func(b *authorizetest.Browser, _ *providertest.Provider) func() *http.Request {
		return newPost("/oauth2/token", authorizetest.AssertionForm(authorizetest.Assertion(b.T, jose.ES256, nil, nil), nil))
	}, expectation{good: ok, during: unavailable, row: "client credentials, by a key", once: true}},

	{"authorize: code", func(b *authorizetest.Browser, _ *providertest.Provider) func() *http.Request {
		b.SignInAlice(authorizetest.Request(nil))
		return newAuthorization(authorizetest.Request(nil))
	}, expectation{good: toApp, stays: "session-client apps", during: temporarilyUnavailable, row: "a code in a session"}},
	{"authorize: code, without openid", func(b *authorizetest.Browser, _ *providertest.Provider) func() *http.Request {
		b.SignInAlice(authorizetest.Request(nil))
		return newAuthorization(authorizetest.Request(url.Values{"scope": {"demo.read"}}))
	}, expectation{good: toApp, stays: "session-client apps"}},
	{"authorize: token", func(b *authorizetest.Browser, _ *providertest.Provider) func() *http.Request {
		b.SignInAlice(authorizetest.Request(nil))
		return newAuthorization(authorizetest.Request(url.Values{"response_type": {"token"}}))
	}, expectation{good: redirectsTo("access_token="), stays: "session-client apps"}},
	{"authorize: id_token", func(b *authorizetest.Browser, _ *providertest.Provider) func() *http.Request {
		b.SignInAlice(authorizetest.Request(nil))
		return newAuthorization(authorizetest.Request(url.Values{"response_type": {"id_token"}, "nonce": {"n"}}))
	}, expectation{good: redirectsTo("id_token="), stays: "session-client apps"}},
	{"authorize: to the sign-in page", func(*authorizetest.Browser, *providertest.Provider) func() *http.Request {
		return newAuthorization(authorizetest.Request(nil))
	}, expectation{good: redirectsTo("/oauth2/login?request="), during: goesOn, row: "authorization request, to the sign-in page"}},
	{"authorize: to the consent page", func(b *authorizetest.Browser, _ *providertest.Provider) func() *http.Request {
		b.SignInAlice(authorizetest.Request(nil))
		return newAuthorization(authorizetest.Request(url.Values{"client_id": {"careful"}}))
	}, expectation{good: redirectsTo("/oauth2/consent?request=")}},
	{"authorize: pushed by a public client", func(b *authorizetest.Browser, _ *providertest.Provider) func() *http.Request {
		b.SignInAlice(authorizetest.Request(nil))
		_, answer := authorizetest.Push(b, authorizetest.Request(nil))
		return newAuthorization(authorizetest.PushedRequest(answer.RequestURI))
	}, expectation{good: toApp, stays: "session-client apps", row: "a code in a session, of a pushed request", once: true}},
	{"authorize: pushed by a confidential client", func(b *authorizetest.Browser, _ *providertest.Provider) func() *http.Request {
		b.SignInAlice(authorizetest.Request(nil))
		_, answer := authorizetest.Push(b, authorizetest.ConfidentialPush(nil))
		return newAuthorization(url.Values{"client_id": {"confidential"}, "request_uri": {answer.RequestURI}})
	}, expectation{good: redirectsTo("code="), stays: "session-client apps", once: true}},
	{"authorize: pushed, to the sign-in page", func(b *authorizetest.Browser, _ *providertest.Provider) func() *http.Request {
		_, answer := authorizetest.Push(b, authorizetest.ConfidentialPush(nil))
		return newAuthorization(url.Values{"client_id": {"confidential"}, "request_uri": {answer.RequestURI}})
	}, expectation{good: redirectsTo("/oauth2/login?request="), stays: "session-client apps", during: unavailable}},
	{"authorize: pushed, to the account page", func(b *authorizetest.Browser, _ *providertest.Provider) func() *http.Request {
		b.SignInAlice(authorizetest.Request(nil))
		_, answer := authorizetest.Push(b, authorizetest.ConfidentialPush(url.Values{"prompt": {"select_account"}}))
		return newAuthorization(url.Values{"client_id": {"confidential"}, "request_uri": {answer.RequestURI}})
	}, expectation{good: redirectsTo("/oauth2/select_account?request="), stays: "session-client apps"}},

	{"authorize: launched", func(b *authorizetest.Browser, _ *providertest.Provider) func() *http.Request {
		b.SignInAlice(authorizetest.Request(nil))
		launch := authorizetest.Decode[map[string]any](b.T, b.Post("/oauth2/launch", authorizetest.LaunchForm(url.Values{"app": {"launched"}})))["launch"].(string)
		return newAuthorization(authorizetest.Request(url.Values{"client_id": {"launched"}, "scope": {"launch openid patient/*.rs"}, "launch": {launch}}))
	}, expectation{good: toApp, stays: "session-client apps", once: true}},

	{"login: the page", func(b *authorizetest.Browser, _ *providertest.Provider) func() *http.Request {
		return newGet(authorizetest.Location(b.T, b.Authorize(authorizetest.Request(nil))).String())
	}, expectation{good: ok, during: temporarilyUnavailable, row: "the sign-in page"}},
	{"login: a password", func(b *authorizetest.Browser, _ *providertest.Provider) func() *http.Request {
		_, sealed := b.OpenForm(b.Authorize(authorizetest.Request(nil)))
		return newPost("/oauth2/login", signInForm(sealed, "alice", "right"))
	}, expectation{good: toApp, stays: "session sessions upstream-sessions session-client apps", during: temporarilyUnavailable, row: "a password, with the code"}},
	{"login: a password again", func(b *authorizetest.Browser, _ *providertest.Provider) func() *http.Request {
		b.SignInAlice(authorizetest.Request(nil))
		_, sealed := b.OpenForm(b.Authorize(authorizetest.Request(url.Values{"prompt": {"login"}})))
		return newPost("/oauth2/login", signInForm(sealed, "alice", "right"))
	}, expectation{good: toApp, stays: "session sessions upstream-sessions session-client apps"}},
	{"login: another person's password", func(b *authorizetest.Browser, _ *providertest.Provider) func() *http.Request {
		b.SignInAlice(authorizetest.Request(nil))
		_, sealed := b.OpenForm(b.Authorize(authorizetest.Request(url.Values{"prompt": {"login"}})))
		return newPost("/oauth2/login", signInForm(sealed, "bob", "other"))
	}, expectation{good: toApp, stays: "session sessions upstream-sessions session-client apps cutoff ended-sessions"}},
	{"login: the first of two factors", func(b *authorizetest.Browser, _ *providertest.Provider) func() *http.Request {
		_, sealed := b.OpenForm(b.Authorize(authorizetest.Request(nil)))
		return newPost("/oauth2/login", signInForm(sealed, "carol", "third"))
	}, expectation{good: redirectsTo("/oauth2/login?factor="), stays: "session sessions upstream-sessions session-client apps"}},
	{"login: the second factor", func(b *authorizetest.Browser, _ *providertest.Provider) func() *http.Request {
		factor := b.OpenSecondFactor(b.SignIn(authorizetest.Request(nil), "carol", "third"))
		return newPost("/oauth2/login", url.Values{"factor": {factor}, "code": {authorizetest.CurrentOTP()}})
	}, expectation{good: toApp, stays: "session sessions upstream-sessions session-client apps", during: unavailable}},
	{"login: the second factor, after an earlier code", func(b *authorizetest.Browser, _ *providertest.Provider) func() *http.Request {
		b.SendOTP(b.OpenSecondFactor(b.SignIn(authorizetest.Request(nil), "carol", "third")), authorizetest.OTP(authorizetest.TOTPSecret, time.Now().Add(-30*time.Second)))
		factor := b.OpenSecondFactor(b.SignIn(authorizetest.Request(url.Values{"prompt": {"login"}}), "carol", "third"))
		return newPost("/oauth2/login", url.Values{"factor": {factor}, "code": {authorizetest.CurrentOTP()}})
	}, expectation{good: toApp, stays: "session sessions upstream-sessions session-client apps"}},
	{"login: away to a provider", func(b *authorizetest.Browser, _ *providertest.Provider) func() *http.Request {
		return newGet(authorizetest.Location(b.T, b.Authorize(authorizetest.Request(authorizetest.SelectProvider("hospital")))).String())
	}, expectation{good: redirectsTo("state="), stays: "session sessions upstream-sessions session-client apps"}},
	{"callback", func(b *authorizetest.Browser, p *providertest.Provider) func() *http.Request {
		return newGet("/oauth2/callback/hospital?" + callbackParameters(b, p, nil).Encode())
	}, expectation{good: toApp, stays: "session sessions upstream-sessions session-client apps account kept-account person used-state upstream upstream-due upstream-of", during: temporarilyUnavailable}},
	{"callback, to the consent page", func(b *authorizetest.Browser, p *providertest.Provider) func() *http.Request {
		return newGet("/oauth2/callback/hospital?" + callbackParameters(b, p, url.Values{"client_id": {"careful"}}).Encode())
	}, expectation{good: redirectsTo("/oauth2/consent?request="), stays: "session sessions upstream-sessions session-client apps account kept-account person used-state upstream upstream-due upstream-of"}},

	{"consent", func(b *authorizetest.Browser, _ *providertest.Provider) func() *http.Request {
		_, sealed := b.OpenForm(b.SignIn(authorizetest.Request(url.Values{"client_id": {"careful"}}), "alice", "right"))
		return newPost("/oauth2/consent", authorizetest.DecisionForm(sealed, "allow"))
	}, expectation{good: toApp, stays: "consent consents session-client apps", during: unavailable}},
	{"select account", func(b *authorizetest.Browser, _ *providertest.Provider) func() *http.Request {
		b.SignInAlice(authorizetest.Request(nil))
		_, sealed := b.OpenForm(b.Authorize(authorizetest.Request(url.Values{"prompt": {"select_account"}})))
		return newPost("/oauth2/select_account", authorizetest.DecisionForm(sealed, "continue"))
	}, expectation{good: toApp, stays: "session-client apps", during: unavailable}},

	{"pushed request of a public client", func(*authorizetest.Browser, *providertest.Provider) func() *http.Request {
		return newPost("/oauth2/par", authorizetest.Request(nil))
	}, expectation{good: hasStatus(http.StatusCreated), row: "a pushed request"}},
	{"pushed request of a confidential client", func(*authorizetest.Browser, *providertest.Provider) func() *http.Request {
		return newPost("/oauth2/par", authorizetest.ConfidentialPush(nil))
	}, expectation{good: hasStatus(http.StatusCreated), during: unavailable}},
	{"pushed request, by an assertion", func(b *authorizetest.Browser, _ *providertest.Provider) func() *http.Request {
		form := withAssertion(b.T, authorizetest.Request(nil))
		form.Del("grant_type")
		return newPost("/oauth2/par", form)
	}, expectation{good: hasStatus(http.StatusCreated)}},

	{"revoke: an access token", func(b *authorizetest.Browser, _ *providertest.Provider) func() *http.Request {
		return newPost("/oauth2/revoke", url.Values{"client_id": {"app"}, "token": {b.Tokens(nil).AccessToken}})
	}, expectation{good: ok, stays: "token revoked refresh", during: unavailable, row: "an access token revoked"}},
	{"revoke: a refresh token", func(b *authorizetest.Browser, _ *providertest.Provider) func() *http.Request {
		return newPost("/oauth2/revoke", url.Values{"client_id": {"app"}, "token": {b.Tokens(authorizetest.WithOfflineAccess(nil)).RefreshToken}})
	}, expectation{good: ok, stays: "token revoked refresh", row: "a refresh token revoked"}},
	{"introspect, by an assertion", func(b *authorizetest.Browser, _ *providertest.Provider) func() *http.Request {
		return newPost("/oauth2/introspect", withAssertion(b.T, url.Values{"token": {b.Tokens(nil).AccessToken}}))
	}, expectation{good: ok, during: unavailable}},

	{"logout, by a hint", func(b *authorizetest.Browser, _ *providertest.Provider) func() *http.Request {
		q := url.Values{"id_token_hint": {b.Tokens(nil).IDToken}, "post_logout_redirect_uri": {authorizetest.PostLogoutRedirectURI}}
		return newGet("/oauth2/logout?" + q.Encode())
	}, expectation{good: redirectsTo(authorizetest.PostLogoutRedirectURI), stays: "cutoff", during: unavailable, row: "signing out by `id_token_hint`"}},
	{"logout, by a hint without a cookie", func(b *authorizetest.Browser, _ *providertest.Provider) func() *http.Request {
		hint := b.Tokens(nil).IDToken
		clear(b.Cookies)
		return newGet("/oauth2/logout?" + url.Values{"id_token_hint": {hint}}.Encode())
	}, expectation{good: ok, stays: "cutoff"}},
	{"logout, by the page", func(b *authorizetest.Browser, _ *providertest.Provider) func() *http.Request {
		b.SignInAlice(authorizetest.Request(nil))
		sealed := authorizetest.FieldValue(b.T, authorizetest.Body(b.T, b.Get("/oauth2/logout")), "request")
		return newPost("/oauth2/logout", url.Values{"request": {sealed}})
	}, expectation{good: ok, stays: "cutoff"}},
	{"logout, at the provider too", func(b *authorizetest.Browser, p *providertest.Provider) func() *http.Request {
		q := url.Values{"id_token_hint": {authorizetest.FederatedTokens(b, nil).IDToken}}
		return newGet("/oauth2/logout?" + q.Encode())
	}, expectation{good: redirectsTo("post_logout_redirect_uri="), stays: "cutoff"}},
	{"logout, by the provider", func(b *authorizetest.Browser, p *providertest.Provider) func() *http.Request {
		authorizetest.SignInAtProvider(b, nil)
		return newPost("/oauth2/backchannel_logout/hospital", url.Values{"logout_token": {p.LogoutToken()}})
	}, expectation{good: ok, stays: "cutoff session session-client ended-sessions upstream-ended", during: refusedByStore}}, // partial revocations remain

	{"account: an app's end", func(b *authorizetest.Browser, _ *providertest.Provider) func() *http.Request {
		b.Tokens(authorizetest.WithOfflineAccess(nil))
		sealed := authorizetest.FieldValue(b.T, authorizetest.AccountPage(b, ""), "request")
		return newPost("/oauth2/account", url.Values{"request": {sealed}, "action": {"end_app"}, "target": {"app"}})
	}, expectation{good: redirectsTo("done=end_app"), stays: "cutoff refresh session-client"}}, // partial revocations remain
	{"account: an authenticator app", func(b *authorizetest.Browser, _ *providertest.Provider) func() *http.Request {
		authorizetest.SignInToAccount(b, "alice", "right")
		form, _ := authorizetest.AppEnrollmentForm(b)
		return newPost("/oauth2/account", form)
	}, expectation{good: ok, stays: "lockout"}},

	{"account", func(b *authorizetest.Browser, _ *providertest.Provider) func() *http.Request {
		authorizetest.SignInToAccount(b, "alice", "right")
		return newGet("/oauth2/account")
	}, expectation{good: ok, during: unavailable}},

	{"userinfo", func(b *authorizetest.Browser, _ *providertest.Provider) func() *http.Request {
		return withBearer(b.Tokens(nil).AccessToken, newGet("/oauth2/userinfo"))
	}, expectation{good: ok, during: unavailable, row: "userinfo"}},
	{"introspect, by an access token", func(b *authorizetest.Browser, _ *providertest.Provider) func() *http.Request {
		access := b.Tokens(nil).AccessToken
		return withBearer(access, newPost("/oauth2/introspect", url.Values{"token": {access}}))
	}, expectation{good: ok, row: "introspection, by an access token"}},
	{"launch", func(*authorizetest.Browser, *providertest.Provider) func() *http.Request {
		return newPost("/oauth2/launch", authorizetest.LaunchForm(nil))
	}, expectation{good: hasStatus(http.StatusCreated), during: unavailable}},

	{"keys", document(endpoint.JWKS), expectation{during: goesOn}},
	{"openid-configuration", document("/.well-known/openid-configuration"), expectation{during: goesOn}},
	{"oauth-authorization-server", document("/.well-known/oauth-authorization-server"), expectation{during: goesOn}},
	{"smart-configuration", document("/fhir/R4/.well-known/smart-configuration"), expectation{during: goesOn}},
	{"style.json", document(endpoint.SMARTStyle), expectation{during: goesOn}},
}

// withAllFeatures enables all stateful parts, including refresh tokens and identity providers.
func withAllFeatures(c *authorize.Config) {
	authorizetest.AllowAllFlows(c)
	authorizetest.WithResourceServer(c)
	authorizetest.WithEHR(c)
	c.Records = new(authorizetest.FHIRServer)
	c.Users = append(c.Users, people.User{ID: "carol", PasswordHash: "third", TOTPSecret: authorizetest.TOTPSecret})
	c.Clients[0].PostLogoutRedirectURIs = []string{authorizetest.PostLogoutRedirectURI}
	c.Clients = append(c.Clients, client.Client{
		ID: "careful", PKCE: client.PKCEOptional, RedirectURIs: []string{authorizetest.Callback}, Consent: client.ConsentRequired,
		Scopes: []string{"offline_access"},
	}, client.Client{
		ID: "backend", RedirectURIs: []string{authorizetest.Callback}, Scopes: []string{"system/*.rs", "offline_access"},
		GrantTypes: []string{"client_credentials", "authorization_code"}, JWKS: authorizetest.PublicKeys(jose.ES256),
	}, client.Client{
		ID: "launched", PKCE: client.PKCEOptional, RedirectURIs: []string{authorizetest.Callback}, LaunchURI: "https://app.example.org/launch",
		Scopes: []string{"launch", "patient/*.rs"},
	})
}

// newPost returns a function that creates a POST of a form.
func newPost(path string, form url.Values) func() *http.Request {
	return func() *http.Request { return authorizetest.PostRequest(path, form) }
}

func newGet(target string) func() *http.Request {
	return func() *http.Request { return httptest.NewRequest(http.MethodGet, target, nil) }
}

func newAuthorization(q url.Values) func() *http.Request {
	return newGet("/oauth2/authorize?" + q.Encode())
}

// withAssertion adds client authentication by a signed assertion.
func withAssertion(t testing.TB, form url.Values) url.Values {
	maps.Copy(form, authorizetest.AssertionForm(authorizetest.Assertion(t, jose.ES256, nil, nil), url.Values{"grant_type": {form.Get("grant_type")}, "scope": {form.Get("scope")}}))
	form.Del("client_id")
	return form
}

func hasStatus(status int) func(*http.Response) bool {
	return func(r *http.Response) bool { return r.StatusCode == status }
}

// redirectsTo reports whether a response redirects to a URL that contains a text.
func redirectsTo(text string) func(*http.Response) bool {
	return func(r *http.Response) bool { return strings.Contains(r.Header.Get("Location"), text) }
}

// document returns requests for a public document.
func document(path string) func(*authorizetest.Browser, *providertest.Provider) func() *http.Request {
	return func(*authorizetest.Browser, *providertest.Provider) func() *http.Request { return newGet(path) }
}

// withBearer adds an access token to a request.
func withBearer(access string, request func() *http.Request) func() *http.Request {
	return func() *http.Request {
		r := request()
		r.Header.Set("Authorization", "Bearer "+access)
		return r
	}
}

func signInForm(sealed, user, password string) url.Values {
	return url.Values{"request": {sealed}, "username": {user}, "password": {password}}
}

// callbackParameters returns the provider's callback parameters for a sign-in.
func callbackParameters(b *authorizetest.Browser, p *providertest.Provider, change url.Values) url.Values {
	q := authorizetest.Request(change)
	q.Set("identity_provider", "hospital")
	there := authorizetest.Location(b.T, b.Get(authorizetest.Location(b.T, b.Authorize(q)).String()))
	return p.Authorize(b.T, there.String())
}
