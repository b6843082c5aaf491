package registration_test

import (
	"bytes"
	"encoding/json"
	"image"
	"image/png"
	"maps"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/features/registration"
)

// The server sends requests to registered addresses only outside its own network, unless the operator allows others (RFC 7591
// §5, RFC 9700 §4.10). Keys for request objects do not replace the client secret.
func TestRegisteredAddresses(t *testing.T) {
	t.Parallel()
	var logo bytes.Buffer
	authorizetest.NoError(t, png.Encode(&logo, image.NewGray(image.Rect(0, 0, 2, 2))))
	for name, inside := range map[string]bool{"public addresses only": false, "all addresses": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			body := logo.Bytes()
			app, requests := keyServer(t, func() []byte { return body })
			b := authorizetest.NewBrowser(t, authorizetest.New(t, registeringWith(func(r *registration.Registration) {
				if r.PKCE, r.RequestObjects = client.PKCEOptional, true; inside {
					r.Transport = app.Client().Transport
				}
			})))
			metadata := clientMetadata(map[string]any{
				"logo_uri": app.URL + "/logo.png", "policy_uri": app.URL + "/policy", "tos_uri": app.URL + "/terms#new", "request_uris": []string{app.URL + "/object"},
				"request_object_signing_alg": "RS256", "jwks": json.RawMessage(authorizetest.PublicKeys(jose.RS256)),
			})
			maps.Copy(metadata, withSecret)
			_, c := register(b, metadata, initialAccessToken)
			authorizetest.WantStatus(t, b.Get("/oauth2/client_logo?client_id="+c.ID), map[bool]int{true: http.StatusOK, false: http.StatusNotFound}[inside], "logo")
			object := authorizetest.Assertion(t, jose.RS256, map[string]any{
				"iss": c.ID, "sub": nil, "jti": nil, "aud": authorizetest.Issuer, "nbf": time.Now().Unix(), "client_id": c.ID, "response_type": "code",
				"scope": "openid", "redirect_uri": authorizetest.Callback,
			}, nil)
			body = []byte(object)
			q := url.Values{"client_id": {c.ID}, "response_type": {"code"}, "scope": {"openid"}, "redirect_uri": {authorizetest.Callback}, "request_uri": {app.URL + "/object"}}
			to := authorizetest.Location(t, b.Authorize(q))
			if refused := to.Query().Get("error") == "invalid_request_uri"; refused == inside || requests.Load() != map[bool]int64{true: 2}[inside] {
				t.Errorf("to %s, %d requests", to, requests.Load())
			}
			if inside {
				authorizetest.WantText(t, authorizetest.Body(t, b.Get(to.String())), `href="`+app.URL+`/policy"`, `href="`+app.URL+`/terms#new"`, `src="/oauth2/client_logo?client_id=`+c.ID+`"`)
			}
			authorizetest.Equal(t, authorizetest.TryAssertion(b, c.ID, jose.RS256), "invalid_client", "by its keys alone")
		})
	}
}

// Self-registered native apps may use loopback redirect URIs (OpenID Connect Dynamic Client Registration §2, application_type).
func TestRegisteredNativeApp(t *testing.T) {
	t.Parallel()
	s := authorizetest.New(t, registering(new(clientStorage)))
	for kind, status := range map[string]int{"native": http.StatusCreated, "web": http.StatusBadRequest, "other": http.StatusBadRequest} {
		answer, c := register(authorizetest.NewBrowser(t, s), clientMetadata(map[string]any{
			"redirect_uris": []string{"http://127.0.0.1/cb"}, "token_endpoint_auth_method": "none", "application_type": kind, "client_name": nil, "scope": nil,
		}), initialAccessToken)
		if answer.StatusCode != status || status == http.StatusCreated && c.ApplicationType != "native" {
			t.Errorf("%s: %d %+v", kind, answer.StatusCode, c)
		}
	}
}
