package bearer

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/enforce"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/josetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/placement"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/relyingparty"
)

// The guard passes every claim that the authorization server needs in order to check a token.
func TestGuardForwardsAllClaims(t *testing.T) {
	var verified guard.Token
	from := reflect.ValueOf(&verified).Elem()
	for i := range from.NumField() {
		if field := from.Field(i); field.Kind() == reflect.String {
			field.SetString(from.Type().Field(i).Name)
		}
	}
	claims := reflect.ValueOf(toAccessToken(&verified))
	for i := range claims.NumField() {
		if name := claims.Type().Field(i).Name; claims.Field(i).String() != name {
			t.Errorf("%s is %q", name, claims.Field(i).String())
		}
	}
}

// If a guard rejects every request because the API has another path, this is logged once.
func TestMisplacedGuardIsLogged(t *testing.T) {
	t.Parallel()
	var text bytes.Buffer
	m := misplacement{logger: slog.New(slog.NewTextHandler(&text, nil))}
	for _, path := range []string{"/fhir/R4/Patient", "/fhir/R4", "/fhir/metadata", "/fhir/Patient"} {
		m.warn(httptest.NewRequest(http.MethodGet, path, nil), "/fhir/R4", fmt.Errorf("refused: %w", guard.ErrNoToken))
	}
	if logged := text.String(); strings.Count(logged, "\n") != 1 || !strings.Contains(logged, "path=/fhir/metadata fhir_base=/fhir/R4") {
		t.Errorf("logged %q", logged)
	}
}

// If an earlier handler strips the FHIR base from the path, the guard logs this once.
func TestGuardBehindRewriteIsLogged(t *testing.T) {
	t.Parallel()
	var text bytes.Buffer
	m := misplacement{logger: slog.New(slog.NewTextHandler(&text, nil))}
	original := httptest.NewRequest(http.MethodGet, "/fhir/R4/Patient", nil)
	r := httptest.NewRequest(http.MethodGet, "/Patient", nil)
	r = r.WithContext(context.WithValue(r.Context(), caddyhttp.OriginalRequestCtxKey, *original))
	m.warn(r, "/fhir/R4", guard.ErrNoToken)
	if logged := text.String(); !strings.Contains(logged, "put the rewrite after fhir_bearer") {
		t.Errorf("logged %q", logged)
	}
}

// fhirUser may be on this server, on another server, or of a type for which there are no user scopes.
func TestUserOf(t *testing.T) {
	t.Parallel()
	e := &scopeEnforcer{&enforce.Enforcer{BaseURL: "https://fhir.example.org/fhir/R4"}}
	for fhirUser, want := range map[string]string{
		"Patient/1": "Patient/1",
		"https://fhir.example.org/fhir/R4/Patient/1": "Patient/1",
		"https://other.example/r4/Patient/1":         "/",
		"https://other.example/r4/Practitioner/1":    "Practitioner/",
		"https://other.example/PractitionerRole/1":   "PractitionerRole/",
		// Without a valid id, the user is not a clinician.
		"Practitioner/":  "/",
		"Practitioner/*": "/",
		"Practitioner/" + strings.Repeat("1", 65): "/",
		"Patient/":              "/",
		"//evil/Practitioner/1": "/",
		"x/Practitioner/1":      "/",
		"https://fhir.example.org/fhir/R4/Practitioner/":  "/",
		"https://other.example/r4/Practitioner/":          "/",
		"https://other.example/r4/Practitioner/*":         "/",
		"https://other.example/r4/PractitionerX/1":        "/",
		"https://other.example/?x=/Practitioner/1":        "/",
		"https://other.example/Practitioner/1/_history/2": "/",
		"Gadget/1":             "/",
		"Patient/1/_history/2": "/",
		"":                     "/",
	} {
		if got := e.userReference(fhirUser).String(); got != want {
			t.Errorf("%q: %s, want %s", fhirUser, got, want)
		}
	}
}

// A key's alg is optional (RFC 7517 §4.4), and Entra ID omits it. A key without alg verifies every algorithm that is suitable
// for the key. A key with alg verifies only that algorithm.
func TestTrustedKeyWithoutAlgorithm(t *testing.T) {
	t.Parallel()
	private := josetest.NewRSA()
	const issuer, audience = "https://login.example", "api://fhir"
	verify := func(named, alg jose.SignatureAlgorithm) error {
		set, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: private.Public(), KeyID: "k1", Algorithm: string(named)}}})
		if err != nil {
			t.Fatal(err)
		}
		keys, err := relyingparty.NewInlineKeySet(set)
		if err != nil {
			t.Fatal(err)
		}
		token := josetest.SignClaims(t, jose.SigningKey{Algorithm: alg, Key: private}, josetest.Header{"kid": "k1"}, map[string]any{
			"iss": issuer, "sub": "u1", "aud": audience, "azp": "c1", "scope": "user/*.rs", "fhirUser": "Practitioner/1", "exp": time.Now().Add(time.Hour).Unix(),
		})
		g, err := guard.New(nil, []*guard.TrustedVerifier{{Issuer: issuer, Audience: audience, Keys: keySetAdapter{keys, relyingparty.ErrUnknownKey}}}, nil)
		if err == nil {
			_, err = g.Verify(t.Context(), token)
		}
		return err
	}
	for _, alg := range []jose.SignatureAlgorithm{jose.RS256, jose.RS512, jose.PS256, jose.PS384} {
		if err := verify("", alg); err != nil {
			t.Errorf("%s by a key that names no alg: %v", alg, err)
		}
		if err := verify(jose.RS384, alg); err == nil {
			t.Errorf("%s by a key for RS384", alg)
		}
	}
}

// Forged opaque tokens are counted for the network of the client IP address that Caddy determines.
func TestIntrospectorNetwork(t *testing.T) {
	t.Parallel()
	configured := Introspection{Endpoint: "https://idp.example/introspect", ClientID: "g", ClientSecret: "s", Audience: anyAudience}
	i, err := configured.newIntrospector(apiLocation{}, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for address, want := range map[string]string{
		"198.51.100.7":        "198.51.100.7",
		"2001:db8:1:2:3:4::5": "2001:db8:1:2::/64",
		"":                    "",
	} {
		ctx := context.WithValue(t.Context(), caddyhttp.VarsCtxKey, map[string]any{caddyhttp.ClientIPVarKey: address})
		if got := i.Network(ctx); got != want {
			t.Errorf("%q counts as %q", address, got)
		}
	}
}

// trustingSite returns the Caddyfile of a site without the global option fhir. Its fhir_bearer trusts another issuer.
func trustingSite(address, options string) string {
	return "{\n\tauto_https disable_redirects\n\tskip_install_trust\n}\n\n" + address + " {\n\tfhir_bearer {\n\t\ttrust https://login.example api\n\t\t" + options + "\n\t}\n\trespond ok\n}\n"
}

// Without the fhir app, links contain the site's URL or the configured URL. If there is neither, the configuration is rejected.
func TestURLOfAPIWithoutApp(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, address, options, want string }{
		{"a site's", "https://fhir.example", "", "https://fhir.example/fhir/R4"},
		{"with a port", "https://fhir.example:8443", "fhir_base /r4", "https://fhir.example:8443/r4"},
		{"on loopback without TLS", "http://127.0.0.1:8080", "", "http://127.0.0.1:8080/fhir/R4"},
		{"an IPv6 address", "https://[2001:db8::1]", "", "https://[2001:db8::1]/fhir/R4"},
		{"told", "http://:8080", "fhir_base https://fhir.example/r4", "https://fhir.example/r4"},
		{"configured, unlike the site's", "https://10.0.0.1:8443", "fhir_base https://fhir.example/fhir/R4", "https://fhir.example/fhir/R4"},
		{"unknown, and not needed", "http://:8080", "scopes off", ""},
		{"any name", "http://:8080", "", "error"},
		{"without TLS, so behind a proxy", "http://fhir.example:8080", "", "error"},
		{"two names", "https://a.example, https://b.example", "", "error"},
		{"any subdomain", "https://*.example", "", "error"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			bearer, err := startedBearer(t, string(caddyfile.Format([]byte(trustingSite(tt.address, tt.options)))))
			switch {
			case tt.want == "error":
				if err == nil || !strings.Contains(err.Error(), "set fhir_base https://") {
					t.Errorf("starts: %v", err)
				}
			case err != nil:
				t.Error(err)
			case tt.want != "":
				bearer.determineURL()
				if bearer.gate.enforcement.enforcer.BaseURL != tt.want || bearer.gate.metadata.Changes.BaseURL != tt.want {
					t.Errorf("%q, %q, want %q", bearer.gate.enforcement.enforcer.BaseURL, bearer.gate.metadata.Changes.BaseURL, tt.want)
				}
			}
		})
	}
}

// startedBearer returns the only fhir_bearer in a configuration after the checks that are made when the configuration starts.
func startedBearer(t *testing.T, text string) (*Bearer, error) {
	t.Helper()
	ctx := gatewaytest.New(t, text).Context
	sites, err := placement.LoadSites(ctx)
	if err != nil {
		t.Fatal(err)
	}
	app, err := ctx.App("http")
	if err != nil {
		t.Fatal(err)
	}
	for _, route := range app.(*caddyhttp.App).Servers["srv0"].Routes {
		if h := guardIn(route); h != nil {
			return h, sites.Start()
		}
	}
	t.Fatal("no fhir_bearer")
	return nil, nil
}

// guardIn returns the fhir_bearer in a route, or nil if there is none.
func guardIn(route caddyhttp.Route) *Bearer {
	for _, handler := range route.Handlers {
		switch h := handler.(type) {
		case *Bearer:
			return h
		case *caddyhttp.Subroute:
			for _, nested := range h.Routes {
				if found := guardIn(nested); found != nil {
					return found
				}
			}
		}
	}
	return nil
}
