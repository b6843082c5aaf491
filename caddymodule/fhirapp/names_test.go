package fhirapp

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2/caddyconfig"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
)

// A nameSource is a source of names. It reports whether it accepts a name that could be the sub of a token.
type nameSource struct {
	takes   func(t *testing.T, name string) bool
	foreign bool // the sub is issued by another issuer
	spaces  bool // whether spaces within a name are rejected
}

// jsonOf returns the JSON encoding of an object.
func jsonOf(t *testing.T, object any) string {
	t.Helper()
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// adapts reports whether a Caddyfile with the option in its fhir block is valid.
func adapts(t *testing.T, head, option string) bool {
	_, _, err := caddyconfig.GetAdapter("caddyfile").Adapt(
		[]byte("{\n\tfhir {\n\t\tissuer https://x.example\n\t\t"+head+" {\n\t\t\t"+option+"\n\t\t}\n\t}\n}\n"), map[string]any{"filename": "Caddyfile"})
	return err == nil
}

// provisions reports whether the app can be provisioned from a JSON configuration.
func provisions(t *testing.T, app *App) bool {
	app.Issuer = "https://x.example"
	_, _, err := provisionApp(t, app)
	return err == nil
}

// nameSources returns all sources of names that can become the sub of a token.
func nameSources(t *testing.T) map[string]nameSource {
	newTestServer(t)
	foreign := gatewaytest.NewIssuer(t)
	var introspected string
	introspection := gatewaytest.Backend(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, introspected)
	}))
	var arrived string
	backend := gatewaytest.Backend(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		arrived = r.Header.Get("X-Authenticated-User")
		w.Header().Set("Content-Type", "application/fhir+json")
		_, _ = io.WriteString(w, `{"resourceType":"Bundle","type":"searchset"}`)
	}))
	guarded := newGateway(t, `{
	auto_https disable_redirects
	skip_install_trust
}

https://localhost:8443 {
	fhir_bearer {
		trust `+foreign.URL+` api://fhir
		introspect http://`+introspection+` {
			client_id gateway
			client_secret s3cret
			audience any
		}
	}
	reverse_proxy `+backend+` {
		header_up X-Authenticated-User {http.auth.user.id}
	}
}
`)
	passes := func(t *testing.T, token, name string) bool {
		r := guarded.Get("/fhir/R4/Patient", token)
		if r.StatusCode == http.StatusOK && arrived != name {
			t.Errorf("the FHIR server reads %q", arrived)
		}
		return r.StatusCode == http.StatusOK
	}
	claims := func(name string, more map[string]any) map[string]any {
		all := map[string]any{
			"iss": foreign.URL, "sub": name, "aud": "api://fhir", "client_id": "c1", "scope": "user/*.rs", "fhirUser": "Practitioner/1",
			"exp": time.Now().Add(time.Hour).Unix(), "iat": time.Now().Unix(),
		}
		maps.Copy(all, more)
		return all
	}
	idp := providertest.Start(t)
	federated := exampleGateway(t, nil, "client demo-app {", "idp hospital {\n\t\t\tissuer "+idp.Issuer+"\n\t\t\tclient_id "+providertest.ClientID+
		"\n\t\t\tclient_secret \""+providertest.ClientSecret+"\"\n\t\t\tsub oid\n\t\t}\n\t\tclient demo-app {")
	var signIns int
	return map[string]nameSource{
		"Caddyfile, user": {takes: func(t *testing.T, name string) bool {
			return adapts(t, "user `"+name+"`", "password_hash "+bcryptOfX)
		}},
		"Caddyfile, client": {takes: func(t *testing.T, name string) bool {
			return adapts(t, "client `"+name+"`", "redirect_uri https://x.example/cb")
		}},
		"JSON, user": {takes: func(t *testing.T, name string) bool {
			return provisions(t, &App{Users: []User{{Name: name, PasswordHash: bcryptOfX}}})
		}},
		"JSON, client": {takes: func(t *testing.T, name string) bool {
			return provisions(t, &App{Clients: []Client{{Settings: client.Settings{ID: name}}}})
		}},
		"identity provider, mapped sub": {spaces: true, takes: func(t *testing.T, name string) bool {
			signIns++
			idp.Change(func(s *providertest.Settings) {
				s.People = []providertest.Person{{Subject: strings.Repeat("s", signIns), Claims: map[string]any{"oid": name}}}
			})
			request := gatewaytest.DemoRequest()
			request.Set("identity_provider", "hospital")
			browser := federated.NewBrowser()
			r := browser.Get("/oauth2/authorize?"+request.Encode(), "")
			for strings.HasPrefix(r.Header.Get("Location"), "/") {
				r = browser.Get(r.Header.Get("Location"), "")
			}
			return browser.Get("/oauth2/callback/hospital?"+idp.Authorize(t, r.Header.Get("Location")).Encode(), "").StatusCode == http.StatusFound
		}},
		"trusted issuer, sub": {foreign: true, takes: func(t *testing.T, name string) bool {
			return passes(t, foreign.Sign(t, claims(name, nil)), name)
		}},
		"trusted issuer, client_id": {foreign: true, takes: func(t *testing.T, name string) bool {
			return passes(t, foreign.Sign(t, claims("u", map[string]any{"client_id": name})), "u")
		}},
		"introspection, sub": {foreign: true, takes: func(t *testing.T, name string) bool {
			signIns++
			introspected = jsonOf(t, claims(name, map[string]any{"active": true}))
			return passes(t, strings.Repeat("t", signIns), name)
		}},
		"introspection, client_id in place of a sub": {foreign: true, takes: func(t *testing.T, name string) bool {
			signIns++
			introspected = jsonOf(t, map[string]any{"active": true, "client_id": name, "scope": "user/*.rs", "fhirUser": "Practitioner/1"})
			return passes(t, strings.Repeat("t", signIns), name)
		}},
	}
}

// TestNames sends each name through each nameSource. Names are rejected if HTTP would alter them, or if another principal of
// the issuer could have the same name.
func TestNames(t *testing.T) {
	all := nameSources(t)
	for _, at := range slices.Sorted(maps.Keys(all)) {
		e := all[at]
		t.Run(at, func(t *testing.T) {
			for name, text := range gatewaytest.InvalidNames {
				if e.takes(t, text) {
					t.Errorf("%s is accepted", name)
				}
			}
			for name, text := range gatewaytest.ReservedNames {
				if e.takes(t, text) != e.foreign {
					t.Errorf("%s is accepted: %v", name, !e.foreign)
				}
			}
			for name, text := range gatewaytest.ValidNames {
				if want := !e.spaces || !strings.Contains(text, " "); e.takes(t, text) != want {
					t.Errorf("%s is accepted: %v", name, !want)
				}
			}
		})
	}
}
