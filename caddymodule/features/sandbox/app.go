package sandbox

import (
	"net/http"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
)

// appID is the client_id of the app.
const appID = "sandbox-app"

// appScopes are the scopes that the app requests, in addition to the launch scope. It shows that it may read
// nothing else, so they must not be all.
var appScopes = []string{
	"openid", "fhirUser", client.OnlineAccess,
	"patient/Patient.rs", "patient/Condition.rs", "patient/Observation.rs", "patient/MedicationRequest.rs",
}

// ownApp returns the app as a client of an issuer.
func ownApp(issuer string) client.Client {
	return client.Client{
		ID: appID, Name: "Sandbox App", RedirectURIs: []string{issuer + appPath}, LaunchURI: issuer + appPath,
		Compat: []string{client.ErrorDescription}, Scopes: append([]string{"launch", "launch/patient"}, appScopes...),
	}
}

// localAppID is the client_id of an app that is registered nowhere, and runs on the person's own
// computer.
const localAppID = "sandbox-local-app"

// localApp returns such an app as a client. It exists where the issuer is on that computer too: of other
// issuers any program there could get the code of a person who follows a link.
func localApp() client.Client {
	return client.Client{
		ID: localAppID, Name: "An app on this computer", RedirectURIs: []string{"http://localhost/"}, Local: true,
		Compat: []string{client.ErrorDescription, client.IgnoreUnknownScopes},
		Scopes: []string{"launch", "launch/patient", "launch/encounter", "fhirUser", client.OnlineAccess, "offline_access", "patient/*.rs", "user/*.rs"},
	}
}

// serveApp serves the app's page, which is its launch URI and its redirect URI. The script
// does the rest.
func serveApp(site *page.Site, issuer, fhirBase string) http.HandlerFunc {
	data := appData{ClientID: appID, RedirectURI: issuer + appPath, FHIRBase: fhirBase, Scope: strings.Join(appScopes, " ")}
	return func(w http.ResponseWriter, r *http.Request) {
		site.Show(w, r, page.View{Template: "sandboxapp", Script: "sandboxapp", Policy: page.Policy{Connect: "'self'"}, Data: data})
	}
}

// appData is the data of templates/sandboxapp.html and its script.
type appData struct {
	ClientID    string // the client_id
	RedirectURI string // where answers are sent
	FHIRBase    string // the address of the FHIR API
	Scope       string // requested scopes, without the launch scope
}
