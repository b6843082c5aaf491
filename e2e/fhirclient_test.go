package e2e

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/go-jose/go-jose/v4"
)

// ashby is a patient of the sample records who can sign in.
const ashby = `user ashby {
			password_hash $2a$10$ItlMyMTaHOapU0jOlqAKDeKxwtj3jMQrwFNvdsOH7fXf5Z8O4Sjjy
			name "Nora Ashby"
			fhir_user Patient/p01
		}
		`

const ehr = `client epicish {
			secret ehr-secret-for-tests-0123456789
			grant_type client_credentials
			scope system/*.rs
			launch_context
		}
		`

// Apps with npm fhirclient in Chromium work as they do with Epic or Cerner: in a standalone launch and an EHR launch, with
// different kinds of clients.
func TestFHIRClient(t *testing.T) {
	app, key := newSMARTApp(t), newClientKey(t, jose.ES384)
	keys := filepath.Join(t.TempDir(), "keys.json")
	if err := os.WriteFile(keys, publicKeys(t, key), 0o600); err != nil {
		t.Fatal(err)
	}
	g := app.gateway(t, "gateway-fhirclient", "", ashby, ehr, app.client("public"),
		app.client("symmetric", "secret secret-of-the-app-0123456789"), app.client("asymmetric", "jwks "+keys))
	secret := map[string]any{"clientSecret": "secret-of-the-app-0123456789"}
	private := map[string]any{"clientPrivateJwk": key}
	for _, test := range []struct {
		name, client, user, launch string
		options                    map[string]any
		noRefresh                  bool // fhirclient does not support refreshing for this client
	}{
		{"standalone, public, a clinician", "public", userName, "", nil, false},
		{"standalone, public, a patient", "public", "ashby", "", nil, false},
		{"standalone, with a secret", "symmetric", userName, "", secret, false},
		{"standalone, with a key", "asymmetric", "ashby", "", private, true},
		{"from a record, public", "public", userName, "p01", nil, false},
		{"from a record, with a secret", "symmetric", userName, "p01", secret, false},
		{"from a record, with a key", "asymmetric", userName, "p01", private, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx := newBrowser(t)
			a := &launchedApp{ctx, g}
			app.launchWith(t, appOptions(g, test.client, test.launch != "", test.options))
			address := app.URL + "/launch.html"
			if test.launch != "" {
				address = g.registerLaunch(t, test.client, test.user, test.launch)
			}
			a.open(t, address, test.user)
			if test.user == userName && test.launch == "" {
				perform(t, withShortTimeout(t, ctx), chromedp.WaitVisible("//strong[text()='Nora Ashby']"), chromedp.Click("//button[contains(., 'Nora Ashby')]"), confirmPatient())
			}
			perform(t, withShortTimeout(t, ctx), chromedp.WaitVisible(chromedp.ID("ready")))
			a.readsItsPatient(t, "p01", "Ashby")
			a.seesNobodyElse(t, "p02")
			if !test.noRefresh {
				a.refreshes(t)
				a.readsItsPatient(t, "p01", "Ashby")
				a.seesNobodyElse(t, "p02")
			}
		})
	}
}

// appOptions returns the options of FHIR.oauth2.authorize. fromRecord selects an EHR launch, in which the app gets the FHIR
// server from its URL.
func appOptions(g *gateway, client string, fromRecord bool, more map[string]any) map[string]any {
	options := map[string]any{"clientId": client, "redirectUri": "app.html", "scope": "launch openid fhirUser offline_access patient/*.rs"}
	if !fromRecord {
		options["iss"], options["scope"] = g.issuer+"/fhir/R4", "launch/patient openid fhirUser offline_access patient/*.rs"
	}
	maps.Copy(options, more)
	return options
}

// registerLaunch registers a launch like an EHR and returns the URL that opens the app.
func (g *gateway) registerLaunch(t *testing.T, app, user, patient string) string {
	t.Helper()
	form := url.Values{"app": {app}, "user": {user}, "patient": {patient}, "need_patient_banner": {"false"}}
	r := newRequest(t, http.MethodPost, g.issuer+"/oauth2/launch", form.Encode())
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.SetBasicAuth("epicish", "ehr-secret-for-tests-0123456789")
	var launch struct {
		URL string `json:"launch_url"`
	}
	send(t, g.client, r).is(t, http.StatusCreated).decode(t, &launch)
	return launch.URL
}

// launchedApp is an app that runs in a browser.
type launchedApp struct {
	ctx     context.Context
	gateway *gateway
}

// open opens the app and signs a user in.
func (a *launchedApp) open(t *testing.T, address, user string) {
	t.Helper()
	perform(t, withShortTimeout(t, a.ctx),
		chromedp.Navigate(address), chromedp.WaitVisible(chromedp.ID("username")),
		chromedp.Evaluate[chromedp.Void]("username.select()"), // a launch for a user prefills the user name
		chromedp.KeyEvent(user+kb.Tab+userPassword+kb.Enter),
	)
}

// evaluate evaluates a script in the app and returns the result as text; for an error, "failed: " and the message.
func (a *launchedApp) evaluate(t *testing.T, script string) string {
	t.Helper()
	return readValue(t, withShortTimeout(t, a.ctx), chromedp.Evaluate[string]("(async () => String(await ("+script+")))().catch((e) => 'failed: ' + e.message)", chromedp.EvalAwaitPromise))
}

// readsItsPatient checks that the app can read the full record of its patient.
func (a *launchedApp) readsItsPatient(t *testing.T, id, family string) {
	t.Helper()
	if got := a.evaluate(t, "client.patient.id"); got != id {
		t.Errorf("launched for %q, want %q", got, id)
	}
	if got := a.evaluate(t, "client.patient.read().then((p) => p.name[0].family)"); got != family {
		t.Errorf("reads %q, want %q", got, family)
	}
	var all struct{ Total json.Number }
	a.gateway.fhir(t, a.gateway.serviceToken(t), http.MethodGet, "Observation?_summary=count&patient="+id, "").is(t, http.StatusOK).decode(t, &all)
	script := "client.patient.request('Observation?_count=7', { pageLimit: 0, flat: true }).then((list) => new Set(list.map((o) => o.id)).size)"
	if got := a.evaluate(t, script); got != all.Total.String() || got == "0" {
		t.Errorf("reads %s observations page by page, want %s", got, all.Total)
	}
}

// seesNobodyElse checks that the app cannot read another patient's record.
func (a *launchedApp) seesNobodyElse(t *testing.T, id string) {
	t.Helper()
	if got := a.evaluate(t, "client.request('Patient/"+id+"').then((p) => p.id)"); !strings.HasPrefix(got, "failed: ") {
		t.Errorf("reads the Patient %q", got)
	}
	for _, query := range []string{"Observation?patient=" + id, "Observation?subject=Patient/" + id, "Patient?_id=" + id, "Patient?_count=100"} {
		got := a.evaluate(t, "client.request('"+query+"', { flat: true }).then((list) => JSON.stringify(list))")
		if strings.Contains(got, "Patient/"+id+`"`) || strings.Contains(got, `"id":"`+id+`"`) {
			t.Errorf("%s: %.200s", query, got)
		}
	}
}

func (a *launchedApp) refreshes(t *testing.T) {
	t.Helper()
	before := a.evaluate(t, "client.state.tokenResponse.access_token")
	after := a.evaluate(t, "client.refresh().then((state) => state.tokenResponse.access_token)")
	if after == before || strings.HasPrefix(after, "failed: ") {
		t.Errorf("refreshed: %s", after)
	}
}
