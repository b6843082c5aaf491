package client_test

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/servertest"
)

// registeredTokens signs alice in to an app with a secret that registered itself.
func registeredTokens(b *servertest.Browser, c servertest.RegistrationResponse, change url.Values) servertest.TokenResponse {
	b.T.Helper()
	q := servertest.Request(nil)
	q.Set("client_id", c.ID)
	maps.Copy(q, change)
	_, sealed := b.OpenForm(b.SignIn(q, "alice", "right"))
	answer := servertest.Location(b.T, b.Post("/oauth2/consent", servertest.Decision(sealed, "allow")))
	return b.RequestTokens(servertest.CodeForm(answer.Query().Get("code"), url.Values{"client_id": {c.ID}, "client_secret": {c.Secret}}))
}

// RFC 9700 §2.1.1: a confidential app may check the nonce instead of PKCE, where the operator
// lets it. A public one always needs PKCE.
func TestRegisteredClientsWithoutPKCE(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		pkce, method string
		asked        bool
	}{
		{"", "client_secret_post", true}, {client.PKCERequired, "client_secret_post", true},
		{client.PKCEOptional, "client_secret_post", false}, {client.PKCEOptional, "none", true},
	} {
		b := servertest.NewBrowser(t, servertest.New(t, servertest.RegisteringWith(func(r *client.Registration) { r.PKCE = tt.pkce })))
		_, c := servertest.Register(b, servertest.ClientMetadata(map[string]any{"token_endpoint_auth_method": tt.method}), servertest.InitialAccessToken)
		q := servertest.Request(url.Values{"client_id": {c.ID}})
		if u := servertest.Location(t, b.Authorize(q)); (u.Query().Get("error") == "invalid_request") != tt.asked {
			t.Errorf("%+v: %s", tt, u)
		}
	}
	b := servertest.NewBrowser(t, servertest.New(t, servertest.RegisteringWith(func(r *client.Registration) { r.PKCE = client.PKCEOptional })))
	_, c := servertest.Register(b, servertest.ClientMetadata(servertest.WithSecret), servertest.InitialAccessToken)
	if got := registeredTokens(b, c, nil); got.AccessToken == "" {
		t.Errorf("%+v", got)
	}
}

// OpenID Connect Core §5.3.2: an app that asks for it gets userinfo as a JWT, which passes for
// no other token.
func TestRegisteredUserinfoIsSigned(t *testing.T) {
	t.Parallel()
	b := servertest.NewBrowser(t, servertest.New(t, servertest.RegisteringWith(func(r *client.Registration) { r.PKCE = client.PKCEOptional })))
	metadata := servertest.ClientMetadata(servertest.WithSecret)
	metadata["userinfo_signed_response_alg"] = "RS256"
	_, c := servertest.Register(b, metadata, servertest.InitialAccessToken)
	tokens := registeredTokens(b, c, nil)
	r := b.Userinfo(tokens.AccessToken)
	signed := servertest.Body(t, r)
	if kind := r.Header.Get("Content-Type"); kind != "application/jwt" || r.Header.Get("Cache-Control") != "no-store" {
		t.Fatalf("%d %v: %s", r.StatusCode, r.Header, signed)
	}
	want := map[string]any{"iss": servertest.Issuer, "aud": c.ID, "sub": "alice"}
	if got := b.Claims(signed); !maps.Equal(got, want) {
		t.Errorf("claims %v", got)
	}
	if b.TokenWorks(signed) {
		t.Error("it passes for an access token")
	}
	q := servertest.Request(url.Values{"client_id": {c.ID}, "prompt": {"none"}, "id_token_hint": {signed}})
	if u := servertest.Location(t, b.Authorize(q)); u.Query().Get("error") != "invalid_request" {
		t.Errorf("as id_token_hint: %s", u)
	}
}

// OpenID Connect Back-Channel Logout §2.2: an app may register where it is told of a sign-out.
func TestRegisteredClientIsToldOfSignOut(t *testing.T) {
	t.Parallel()
	told := make(chan string, 1)
	party := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { told <- r.PostFormValue("logout_token") }))
	t.Cleanup(party.Close)
	s := servertest.New(t, servertest.RegisteringWith(func(r *client.Registration) {
		r.PKCE, r.Transport = client.PKCEOptional, party.Client().Transport
	}))
	b := servertest.NewBrowser(t, s)
	metadata := servertest.ClientMetadata(servertest.WithSecret)
	metadata["backchannel_logout_uri"], metadata["backchannel_logout_session_required"] = party.URL, true
	_, c := servertest.Register(b, metadata, servertest.InitialAccessToken)
	read := servertest.Decode[map[string]any](t, servertest.ManageClient(b, http.MethodGet, c.URI, c.AccessToken))
	if read["backchannel_logout_uri"] != party.URL || read["backchannel_logout_session_required"] != true {
		t.Errorf("registered: %v", read)
	}
	sid := b.Claims(registeredTokens(b, c, nil).IDToken)["sid"]
	if _, err := s.EndSessions(t.Context(), "alice"); err != nil {
		t.Fatal(err)
	}
	if got := b.Claims(<-told); got["aud"] != c.ID || got["sid"] != sid || sid == nil {
		t.Errorf("logout token %v, session %v", got, sid)
	}
}
