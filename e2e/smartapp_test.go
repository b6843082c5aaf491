package e2e

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
)

// smartApp serves node/smartapp, minimal pages that use npm fhirclient in a browser.
type smartApp struct{ *httptest.Server }

// smartScopes are the scopes that the apps in these tests request.
const smartScopes = "launch launch/patient fhirUser offline_access patient/*.rs"

// newSMARTApp starts the app in the gateway's domain.
func newSMARTApp(t *testing.T) *smartApp {
	t.Helper()
	app := &smartApp{singlePageApp(t)}
	app.launchWith(t, nil)
	return app
}

func (app *smartApp) redirectURI() string { return app.URL + "/app.html" }

// launchWith makes the app call FHIR.oauth2.authorize with the given options.
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

// client returns a Caddyfile client block for the app.
func (app *smartApp) client(id string, lines ...string) string {
	lines = append([]string{"redirect_uri " + app.redirectURI(), "launch_uri " + app.URL + "/launch.html", "scope " + smartScopes}, lines...)
	return "client " + id + " {\n\t\t\t" + strings.Join(lines, "\n\t\t\t") + "\n\t\t}\n\t\t"
}

// gateway starts a gateway with the given client blocks in front of the FHIR server at backendAddress. If backendAddress is "",
// it uses the sample records.
func (app *smartApp) gateway(t *testing.T, name, backendAddress string, clients ...string) *gateway {
	t.Helper()
	address := strings.Replace(mustFreeAddress(t), "localhost", "login"+localDomain, 1)
	return startTestGatewayAt(t, name, address, backendAddress, "client demo-app", strings.Join(clients, "")+"client demo-app")
}
