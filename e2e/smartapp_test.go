package e2e

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
)

// smartApp is node/smartapp: npm fhirclient in a browser, with minimal pages around it.
type smartApp struct{ *httptest.Server }

// smartScopes are the scopes of the tests' apps.
const smartScopes = "launch launch/patient fhirUser offline_access patient/*.rs"

// newSMARTApp starts the app in the gateway's domain.
func newSMARTApp(t *testing.T) *smartApp {
	t.Helper()
	app := &smartApp{singlePageApp(t)}
	app.launchWith(t, nil)
	return app
}

func (app *smartApp) redirectURI() string { return app.URL + "/app.html" }

// launchWith serves the app with options for FHIR.oauth2.authorize.
func (app *smartApp) launchWith(t *testing.T, options map[string]any) {
	t.Helper()
	text, err := json.Marshal(options)
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("node/smartapp/launch.html")
	if err != nil {
		t.Fatal(err)
	}
	launch := strings.Replace(string(page), "OPTIONS", string(text), 1)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /fhir-client.js", func(w http.ResponseWriter, r *http.Request) {
		http.ServeFile(w, r, "node/node_modules/fhirclient/build/fhir-client.min.js")
	})
	mux.HandleFunc("GET /app.html", func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, "node/smartapp/app.html") })
	mux.HandleFunc("GET /launch.html", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write([]byte(launch)) // write errors mean that the browser has disconnected
	})
	app.Config.Handler = mux
}

// client returns a client block for the app.
func (app *smartApp) client(id string, lines ...string) string {
	lines = append([]string{"redirect_uri " + app.redirectURI(), "launch_uri " + app.URL + "/launch.html", "scope " + smartScopes}, lines...)
	return "client " + id + " {\n\t\t\t" + strings.Join(lines, "\n\t\t\t") + "\n\t\t}\n\t\t"
}

// gateway starts a gateway with clients at which the app can be launched, in front of a FHIR server; without an
// address, in front of the sample records.
func (app *smartApp) gateway(t *testing.T, name, backendAddress string, clients ...string) *gateway {
	t.Helper()
	address := strings.Replace(mustFreeAddress(t), "localhost", "login"+ownDomain, 1)
	return startTestGatewayAt(t, name, address, backendAddress, "client demo-app", strings.Join(clients, "")+"client demo-app")
}
