package requestobject_test

import (
	"encoding/base64"
	"encoding/json"
	"flag"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/features/requestobject"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/josetest"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/authorization"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores/file"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores/memory"
)

// objectClaims returns the claims of a request object for an authorization request.
func objectClaims(change map[string]any) map[string]any {
	claims := map[string]any{
		"response_type": "code", "client_id": "app", "redirect_uri": authorizetest.Callback, "scope": "openid", "state": "inside", "nonce": "n",
	}
	maps.Copy(claims, change)
	maps.DeleteFunc(claims, func(_ string, v any) bool { return v == nil })
	return claims
}

func unsignedObject(t *testing.T, claims map[string]any, signature string) string {
	t.Helper()
	text, err := json.Marshal(claims)
	authorizetest.NoError(t, err)
	encode := base64.RawURLEncoding.EncodeToString
	return encode([]byte(`{"alg":"none"}`)) + "." + encode(text) + "." + signature
}

func signedObject(t *testing.T, alg jose.SignatureAlgorithm, claims map[string]any) string {
	t.Helper()
	all := map[string]any{"iss": nil, "sub": nil, "aud": nil, "exp": nil, "jti": nil}
	maps.Copy(all, claims)
	return authorizetest.Assertion(t, alg, all, nil)
}

func newServer(t *testing.T, change func(*authorize.Config)) *authorize.Server {
	t.Helper()
	return authorizetest.New(t, func(c *authorize.Config) {
		change(c)
		c.Features = append(c.Features, new(requestobject.Reader))
	})
}

func withRequestObjects(c *authorize.Config) {
	c.Clients[0].RequestObjects.Allowed = true
	c.Clients = append(c.Clients, client.Client{
		ID: "signing", RedirectURIs: []string{authorizetest.Callback}, JWKS: authorizetest.PublicKeys(jose.RS256),
		RequestObjects: client.RequestObjects{Allowed: true, Algorithm: "RS256"},
	})
}

// The parameters in a request object take precedence. Parameters that it lacks are used from outside (OpenID Connect Core §6.1,
// RFC 9101).
func TestRequestObjectByValue(t *testing.T) {
	t.Parallel()
	s := newServer(t, withRequestObjects)
	for name, object := range map[string]string{
		"unsigned":       unsignedObject(t, objectClaims(nil), ""),
		"with iss, aud":  unsignedObject(t, objectClaims(map[string]any{"iss": "app", "aud": []string{authorizetest.Issuer}, "exp": time.Now().Add(time.Minute).Unix()}), ""),
		"in JSON":        unsignedObject(t, objectClaims(map[string]any{"max_age": 1000, "claims": map[string]any{"id_token": map[string]any{"acr": nil}}}), ""),
		"by another key": unsignedObject(t, objectClaims(map[string]any{"unknown": []string{"x"}}), ""),
	} {
		q := authorizetest.Request(url.Values{"request": {object}, "redirect_uri": {authorizetest.Callback + "_invalid"}, "state": {""}})
		if u := authorizetest.NewBrowser(t, s).SignInAlice(q); u.Query().Get("code") == "" || u.Query().Get("state") != "inside" || !strings.HasPrefix(u.String(), authorizetest.Callback+"?") {
			t.Errorf("%s: %s", name, u)
		}
	}
	q := authorizetest.Request(url.Values{"client_id": {"signing"}, "request": {signedObject(t, jose.RS256, objectClaims(map[string]any{"client_id": "signing"}))}})
	if u := authorizetest.NewBrowser(t, s).SignInAlice(q); u.Query().Get("code") == "" || u.Query().Get("state") != "inside" {
		t.Errorf("signed: %s", u)
	}
}

// If a request object is invalid, the error response uses the response_mode and state in the object.
func TestRequestObjectRefused(t *testing.T) {
	t.Parallel()
	plain := func(change map[string]any) string { return unsignedObject(t, objectClaims(change), "") }
	mine := map[string]any{"client_id": "signing"}
	b := authorizetest.NewBrowser(t, newServer(t, withRequestObjects))
	for name, tt := range map[string]struct {
		client, object, want string
	}{
		"not allowed":            {"implicit", plain(map[string]any{"client_id": "implicit"}), "request_not_supported"},
		"no JWT":                 {"app", "eyJ", "invalid_request_object"},
		"no JSON":                {"app", "eyJhbGciOiJub25lIn0.e30x.", "invalid_request_object"},
		"another issuer":         {"app", plain(map[string]any{"iss": "strict"}), "invalid_request_object"},
		"a client assertion":     {"app", plain(map[string]any{"sub": "app"}), "invalid_request_object"},
		"for another server":     {"app", plain(map[string]any{"aud": "https://other.example"}), "invalid_request_object"},
		"expired":                {"app", plain(map[string]any{"exp": time.Now().Add(-time.Minute).Unix()}), "invalid_request_object"},
		"of tomorrow":            {"app", plain(map[string]any{"nbf": time.Now().Add(time.Hour).Unix()}), "invalid_request_object"},
		"another in it":          {"app", plain(map[string]any{"request": "x"}), "invalid_request_object"},
		"an address in it":       {"app", plain(map[string]any{"request_uri": "https://app.example.org/r"}), "invalid_request_object"},
		"of another client":      {"app", plain(map[string]any{"client_id": "strict"}), "invalid_request_object"},
		"another response type":  {"app", plain(map[string]any{"response_type": "token"}), "invalid_request_object"},
		"a list of states":       {"app", plain(map[string]any{"scope": []string{"openid"}}), "invalid_request_object"},
		"a signature of nothing": {"app", unsignedObject(t, objectClaims(nil), "eA"), "invalid_request_object"},
		"signed without keys":    {"app", signedObject(t, jose.RS256, objectClaims(nil)), "invalid_request_object"},
		"not signed":             {"signing", plain(mine), "invalid_request_object"},
		"signed in another way":  {"signing", signedObject(t, jose.PS256, objectClaims(mine)), "invalid_request_object"},
		"changed after signing":  {"signing", replacePayload(signedObject(t, jose.RS256, objectClaims(mine)), plain(map[string]any{"client_id": "signing", "scope": "openid email"})), "invalid_request_object"},
		"unknown scope":          {"app", plain(map[string]any{"scope": "nonsense"}), "invalid_scope"},
		"longer than a query":    {"app", plain(map[string]any{"state": strings.Repeat("x", 6000)}) + strings.Repeat(" ", 9000), "invalid_request"},
	} {
		q := authorizetest.Request(url.Values{"client_id": {tt.client}, "request": {tt.object}, "state": {""}})
		if tt.client == "implicit" {
			q.Set("response_type", "token")
		}
		u := authorizetest.Location(t, b.Authorize(q))
		if got := u.Query(); got.Get("error") != tt.want || got.Has("code") || !strings.HasPrefix(u.String(), authorizetest.Callback) {
			t.Errorf("%s: %s", name, u)
		}
	}
	both := authorizetest.Request(url.Values{"request": {plain(nil)}, "request_uri": {"https://app.example.org/r"}})
	authorizetest.WantError(t, authorizetest.Location(t, b.Authorize(both)), "invalid_request", "value and address")
	object := plain(map[string]any{"iss": "strict", "response_mode": "form_post"})
	page := authorizetest.Body(t, b.Authorize(authorizetest.Request(url.Values{"request": {object}, "state": {""}})))
	if form := authorizetest.ReadForm(page); form.Action != authorizetest.Callback || form.Fields.Get("error") != "invalid_request_object" || form.Fields.Get("state") != "inside" {
		t.Errorf("by form_post: %s", page)
	}
}

// replacePayload returns object with the claims of the JWT other.
func replacePayload(object, other string) string {
	parts, others := strings.Split(object, "."), strings.Split(other, ".")
	return parts[0] + "." + others[1] + "." + parts[2]
}

// objectServer serves a request object over TLS and counts requests.
func objectServer(t *testing.T, answer func() string) (*httptest.Server, *atomic.Int64) {
	asked := new(atomic.Int64)
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.URL.Path == "/elsewhere" {
			http.Redirect(w, r, "/object", http.StatusFound)
			return
		}
		_, _ = w.Write([]byte(answer()))
	}))
	t.Cleanup(s.Close)
	return s, asked
}

// A registered request_uri is fetched once; other addresses are not fetched (OpenID Connect Core §6.2). A client's keys for
// request objects do not replace its secret.
func TestRequestObjectByReference(t *testing.T) {
	t.Parallel()
	var object string
	app, asked := objectServer(t, func() string { return object + "\n" })
	newcomer := authorizetest.SelfRegisteredClient(func(c *client.Client) {
		c.PKCE, c.Transport, c.JWKS = client.PKCEOptional, app.Client().Transport, authorizetest.PublicKeys(jose.RS256)
		c.RequestObjects = client.RequestObjects{
			Allowed: true, Algorithm: "RS256", URIs: []string{app.URL + "/object#hash", app.URL + "/elsewhere"}, KeysOnly: true,
		}
	})
	b := authorizetest.NewBrowser(t, newServer(t, authorizetest.WithSelfRegistered(newcomer)))
	object = signedObject(t, jose.RS256, objectClaims(map[string]any{"client_id": authorizetest.SelfRegisteredID, "iss": authorizetest.SelfRegisteredID, "aud": authorizetest.Issuer}))
	q := url.Values{"client_id": {authorizetest.SelfRegisteredID}, "response_type": {"code"}, "scope": {"openid"}, "redirect_uri": {authorizetest.Callback}, "request_uri": {app.URL + "/object"}}
	_, sealed := b.OpenForm(b.SignIn(q, "alice", "right"))
	u := authorizetest.Location(t, b.Post("/oauth2/consent", authorizetest.DecisionForm(sealed, "allow")))
	if u.Query().Get("code") == "" || u.Query().Get("state") != "inside" || asked.Load() != 1 {
		t.Errorf("%s, %d requests", u, asked.Load())
	}
	authorizetest.Equal(t, authorizetest.TryAssertion(b, authorizetest.SelfRegisteredID, jose.RS256), "invalid_client", "by its keys alone")
	for uri, fetched := range map[string]int64{app.URL + "/other": 0, app.URL + "/elsewhere": 1, "https://other.example/object": 0} {
		asked.Store(0)
		q.Set("request_uri", uri)
		if u := authorizetest.Location(t, b.Authorize(q)); u.Query().Get("error") != "invalid_request_uri" || asked.Load() != fetched {
			t.Errorf("%s: %s, %d requests", uri, u, asked.Load())
		}
	}
}

// requestObjectFaults returns invalid request objects of the client "signing". The request has no parameters except client_id.
func requestObjectFaults(t *testing.T) map[string]string {
	claims := func(change map[string]any) map[string]any {
		all := map[string]any{
			"client_id": "signing", "iss": "signing", "aud": authorizetest.Issuer,
			"nbf": time.Now().Unix(), "exp": time.Now().Add(time.Minute).Unix(),
		}
		maps.Copy(all, change)
		return objectClaims(all)
	}
	with := func(name string, value any) string {
		return signedObject(t, jose.RS256, claims(map[string]any{name: value}))
	}
	hmac := func(key string) string {
		return josetest.SignClaims(t, jose.SigningKey{Algorithm: jose.HS256, Key: []byte(key)}, josetest.Header{"kid": "RS256"}, claims(nil))
	}
	encode := base64.RawURLEncoding.EncodeToString
	good := signedObject(t, jose.RS256, claims(nil))
	return map[string]string{
		"expired":                     with("exp", time.Now().Add(-time.Minute).Unix()),
		"not valid yet":               with("nbf", time.Now().Add(time.Hour).Unix()),
		"exp is not a number":         with("exp", "tomorrow"),
		"for another server":          with("aud", "https://other.example"),
		"for another endpoint":        with("aud", authorizetest.Issuer+"/oauth2/par"),
		"of another issuer":           with("iss", "strict"),
		"of another client":           with("client_id", "app"),
		"an assertion of the client":  with("sub", "signing"),
		"a request in it":             with("request", good),
		"a request_uri in it":         with("request_uri", "https://app.example.org/r"),
		"a pushed request_uri in it":  with("request_uri", "urn:ietf:params:oauth:request_uri:x"),
		"a list of scopes":            with("scope", []string{"openid"}),
		"another algorithm":           signedObject(t, jose.PS256, claims(nil)),
		"signed by another key":       signedObject(t, jose.RS384, claims(nil)),
		"a signature of other claims": replacePayload(good, with("scope", "openid email")),
		"a signature cut off":         good[:strings.LastIndexByte(good, '.')+1],
		"HS256 with the client_id":    hmac(strings.Repeat("signing", 8)),
		"HS256 with the public key":   hmac(string(authorizetest.PublicKeys(jose.RS256))),
		"alg none":                    unsignedObject(t, claims(nil), ""),
		"alg none with a signature":   unsignedObject(t, claims(nil), "eA"),
		"alg NONE":                    encode([]byte(`{"alg":"NONE"}`)) + "." + strings.Split(good, ".")[1] + ".",
		"typ of an access token":      authorizetest.Assertion(t, jose.RS256, claims(nil), map[string]any{"typ": "at+jwt"}),
		"a critical header":           authorizetest.Assertion(t, jose.RS256, claims(nil), map[string]any{"crit": []string{"b64"}, "b64": false}),
		"no JWT":                      "eyJ",
		"two parts":                   strings.Join(strings.Split(good, ".")[:2], "."),
		"five parts, as if encrypted": good + ".e30.e30",
		"a header that is no JSON":    encode([]byte("x")) + good[strings.IndexByte(good, '.'):],
		"claims that are a list":      signedText(t, `[]`),
		"claims that are no JSON":     signedText(t, `{`),
		"a claim twice":               signedText(t, `{"client_id":"signing","client_id":"app"}`),
	}
}

func signedText(t *testing.T, claims string) string {
	t.Helper()
	return josetest.Sign(t, jose.SigningKey{Algorithm: jose.RS256, Key: authorizetest.AssertionKeys()[jose.RS256]}, josetest.Header{"kid": "RS256"}, []byte(claims))
}

// pushSigned pushes a request object of a client with keys. It returns the status and the response.
func pushSigned(b *authorizetest.Browser, id string, form url.Values) (int, authorizetest.PushResponse) {
	b.T.Helper()
	all := url.Values{
		"client_id": {id}, "client_assertion_type": {authorizetest.AssertionType},
		"client_assertion": {authorizetest.Assertion(b.T, jose.RS256, map[string]any{"iss": id, "sub": id}, nil)},
	}
	maps.Copy(all, form)
	return authorizetest.Push(b, all)
}

// An invalid request object returns invalid_request_object, even if the redirect URI is only in the object (RFC 9101 §6, RFC
// 9126 §2.3). The browser is not redirected based on an unverified object.
func TestRequestObjectAtFault(t *testing.T) {
	t.Parallel()
	for clients, change := range map[string]func(*authorize.Config){
		"request objects accepted": withRequestObjects,
		"request objects required": withRequiredObjects,
	} {
		b := authorizetest.NewBrowser(t, newServer(t, change))
		for name, object := range requestObjectFaults(t) {
			t.Run(clients+"/"+name, func(t *testing.T) {
				status, pushed := pushSigned(b, "signing", url.Values{"request": {object}})
				if status != http.StatusBadRequest || pushed.Error != "invalid_request_object" || pushed.RequestURI != "" {
					t.Errorf("PAR: %d %+v", status, pushed)
				}
				r := b.Authorize(url.Values{"client_id": {"signing"}, "request": {object}})
				if text := authorizetest.Body(t, r); r.StatusCode != http.StatusBadRequest || r.Header.Get("Location") != "" || strings.Contains(text, "one redirect_uri") {
					t.Errorf("authorize: %d %s", r.StatusCode, text)
				}
				q := url.Values{"client_id": {"signing"}, "request": {object}, "redirect_uri": {authorizetest.Callback}, "response_type": {"code"}, "scope": {"openid"}}
				authorizetest.WantError(t, authorizetest.Location(t, b.Authorize(q)), "invalid_request_object", name)
			})
		}
	}
}

func withRequiredObjects(c *authorize.Config) {
	c.Clients = append(c.Clients, client.Client{
		ID: "signing", RedirectURIs: []string{authorizetest.Callback}, JWKS: authorizetest.PublicKeys(jose.RS256), Scopes: []string{"patient/*.rs"},
		RequestObjects: client.RequestObjects{Allowed: true, Required: true},
	})
}

// If a client must send signed request objects, its other requests are rejected (FAPI 1.0 Advanced §5.2.2, RFC 9101 §10.5).
func TestRequiredRequestObject(t *testing.T) {
	t.Parallel()
	s := newServer(t, withRequiredObjects)
	now := time.Now()
	object := func(change map[string]any) url.Values {
		claims := map[string]any{"client_id": "signing", "aud": authorizetest.Issuer, "nbf": now.Unix(), "exp": now.Add(time.Minute).Unix()}
		maps.Copy(claims, change)
		return url.Values{"client_id": {"signing"}, "request": {signedObject(t, jose.RS256, objectClaims(claims))}}
	}
	beside := func(q url.Values, change url.Values) url.Values { maps.Copy(q, change); return q }
	outside := url.Values{"client_id": {"signing"}, "redirect_uri": {authorizetest.Callback}, "response_type": {"code"}, "scope": {"openid"}}
	for name, tt := range map[string]struct {
		request url.Values
		want    string // expected error; "" if a code is expected
	}{
		"signed":                       {object(nil), ""},
		"of an hour":                   {object(map[string]any{"exp": now.Add(time.Hour).Unix()}), ""},
		"of an hour, nearly over":      {object(map[string]any{"nbf": now.Add(-50 * time.Minute).Unix(), "exp": now.Add(10 * time.Minute).Unix()}), ""},
		"aud in a list":                {object(map[string]any{"aud": []string{authorizetest.Issuer, "https://other.example"}}), ""},
		"SMART's aud beside it":        {beside(object(nil), url.Values{"aud": {authorizetest.FHIRBase}}), ""},
		"without exp":                  {object(map[string]any{"exp": nil}), "invalid_request_object"},
		"without nbf":                  {object(map[string]any{"nbf": nil}), "invalid_request_object"},
		"without aud":                  {object(map[string]any{"aud": nil}), "invalid_request_object"},
		"without client_id":            {object(map[string]any{"client_id": nil}), "invalid_request_object"},
		"longer than an hour":          {object(map[string]any{"exp": now.Add(time.Hour + time.Second).Unix()}), "invalid_request_object"},
		"of all time":                  {object(map[string]any{"nbf": 1, "exp": int64(1) << 60}), "invalid_request_object"},
		"without a request object":     {outside, "invalid_request"},
		"unsigned":                     {beside(object(nil), url.Values{"request": {unsignedObject(t, objectClaims(map[string]any{"client_id": "signing"}), "")}}), "invalid_request_object"},
		"another FHIR server's aud":    {beside(object(nil), url.Values{"aud": {"https://evil.example/fhir"}}), "invalid_request"},
		"redirect URI beside it alone": {beside(object(map[string]any{"redirect_uri": nil}), url.Values{"redirect_uri": {authorizetest.Callback}}), "invalid_request"},
		"response type beside it":      {beside(object(map[string]any{"response_type": nil}), url.Values{"response_type": {"code"}}), "invalid_request"},
	} {
		t.Run(name, func(t *testing.T) {
			b := authorizetest.NewBrowser(t, s)
			status, pushed := pushSigned(b, "signing", tt.request)
			if tt.want != "" {
				if status != http.StatusBadRequest || pushed.Error != tt.want {
					t.Errorf("PAR: %d %+v", status, pushed)
				}
				if r := b.Authorize(tt.request); r.StatusCode != http.StatusBadRequest && authorizetest.Location(t, r).Query().Get("error") != tt.want {
					t.Errorf("authorize: %d %v", r.StatusCode, r.Header)
				}
				return
			}
			authorizetest.WantCode(t, b.SignInAlice(tt.request))
			authorizetest.WantCode(t, authorizetest.NewBrowser(t, s).SignInAlice(url.Values{"client_id": {"signing"}, "request_uri": {pushed.RequestURI}}))
		})
	}
}

// Parameters outside a required request object are ignored, in both successful and failed requests.
func TestParametersBesideRequiredRequestObject(t *testing.T) {
	t.Parallel()
	s := newServer(t, withRequiredObjects)
	claims := map[string]any{"client_id": "signing", "aud": authorizetest.Issuer, "nbf": time.Now().Unix(), "exp": time.Now().Add(time.Minute).Unix(), "state": nil}
	q := url.Values{"client_id": {"signing"}, "request": {signedObject(t, jose.RS256, objectClaims(claims))}, "state": {"evil"}, "scope": {"openid patient/*.rs"}, "prompt": {"none"}}
	u := authorizetest.NewBrowser(t, s).SignInAlice(q)
	if u.Query().Get("code") == "" || u.Query().Has("state") {
		t.Errorf("%s", u)
	}
}

// The server metadata requires signed request objects if all clients must send them (RFC 9101 §10.5).
func TestDiscoveryRequiresRequestObjects(t *testing.T) {
	t.Parallel()
	signing := func(c *client.Client) {
		c.JWKS, c.RequestObjects = authorizetest.PublicKeys(jose.RS256), client.RequestObjects{Allowed: true, Required: true}
	}
	web := client.Client{ID: "web", RedirectURIs: []string{authorizetest.Callback}}
	backend := client.Client{ID: "backend", Secret: "s", GrantTypes: []string{"client_credentials"}, Scopes: []string{"system/*.rs"}}
	required := web
	required.ID = "signing"
	signing(&required)
	for name, tt := range map[string]struct {
		clients   []client.Client
		registers bool
		want      bool
	}{
		"no client":                        {nil, false, false},
		"one that must":                    {[]client.Client{required}, false, true},
		"one that must, and a backend":     {[]client.Client{required, backend}, false, true},
		"one that must, and one that may":  {[]client.Client{required, web}, false, false},
		"one that must, and registrations": {[]client.Client{required}, true, false},
	} {
		b := authorizetest.NewBrowser(t, newServer(t, func(c *authorize.Config) {
			if tt.registers {
				authorizetest.WithSelfRegistered()(c)
			}
			c.Clients = tt.clients
		}))
		got, there := authorizetest.Decode[map[string]any](t, b.Get("/.well-known/openid-configuration"))["require_signed_request_object"]
		if there != tt.want || tt.want && got != true {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestMain(m *testing.M) { os.Exit(gatewaytest.Main(m)) }

var update = flag.Bool("update", false, "write the golden file anew")

func TestAdapt(t *testing.T) {
	t.Parallel()
	gatewaytest.CheckGolden(t, "testdata/adapt.caddyfiletest", *update)
}

// Caddyfile errors contain the line number and the invalid word.
func TestCaddyfileErrors(t *testing.T) {
	t.Parallel()
	client := func(lines string) string { return gatewaytest.AppCaddyfile("client app {\n\t\t\t" + lines + "\n\t\t}") }
	gatewaytest.CaddyfileErrors{
		{"unknown word", client("request_objects always"), 5, "always"},
		{"two words", client("request_objects required required"), 5, "required"},
		{"twice", client("request_objects\n\t\t\trequest_objects"), 6, "duplicate request_objects"},
		{"required without keys", client("request_objects required"), 6, "must be signed"},
	}.Check(t)
}

// A server configured by a Caddyfile reads the request objects of the clients that may use them.
func TestGateway(t *testing.T) {
	t.Parallel()
	g := gatewaytest.New(t, gatewaytest.AuthorizationServer("client app {\n\t\t\tredirect_uri https://app.example.org/callback\n\t\t\trequest_objects\n\t\t}"))
	if text := gatewaytest.ReadBody(t, g.Get("/.well-known/openid-configuration", "")); !strings.Contains(text, `"request_parameter_supported":true`) {
		t.Error(text)
	}
	r := g.Get("/oauth2/authorize?client_id=app&response_type=code&redirect_uri=https://app.example.org/callback&request=eyJ", "")
	if to := r.Header.Get("Location"); !strings.Contains(to, "error=invalid_request_object") {
		t.Errorf("%d to %q", r.StatusCode, to)
	}
}
