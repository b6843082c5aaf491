package sandbox

import (
	"net/http"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
)

// AppID is the client_id of the app.
const AppID = "sandbox-app"

// appScopes are what the app asks for, beside the launch scope. It shows that it may read
// nothing else, so they must not be all.
var appScopes = []string{
	"openid", "fhirUser", client.OnlineAccess,
	"patient/Patient.rs", "patient/Condition.rs", "patient/Observation.rs", "patient/MedicationRequest.rs",
}

// App is the app as a client of an issuer.
func App(issuer string) client.Client {
	return client.Client{
		ID: AppID, Name: "Sandbox App", RedirectURIs: []string{issuer + endpoint.SandboxApp}, LaunchURI: issuer + endpoint.SandboxApp,
		Compat: []string{client.ErrorDescription}, Scopes: append([]string{"launch", "launch/patient"}, appScopes...),
	}
}

// LocalAppID is the client_id of an app that is registered nowhere, and runs on the person's own
// computer.
const LocalAppID = "sandbox-local-app"

// LocalApp is such an app as a client. It exists where the issuer is on that computer too: of other
// issuers any program there could get the code of a person who follows a link.
func LocalApp() client.Client {
	return client.Client{
		ID: LocalAppID, Name: "An app on this computer", RedirectURIs: []string{"http://localhost/"}, Local: true,
		Compat: []string{client.ErrorDescription, client.IgnoreUnknownScopes},
		Scopes: []string{"launch", "launch/patient", "launch/encounter", "fhirUser", client.OnlineAccess, "offline_access", "patient/*.rs", "user/*.rs"},
	}
}

// ServeApp serves the app's page, which is its launch URI and its redirect URI. The script
// does the rest.
func ServeApp(site *page.Site, issuer, fhirBase string) http.HandlerFunc {
	data := page.SandboxApp{ClientID: AppID, RedirectURI: issuer + endpoint.SandboxApp, FHIRBase: fhirBase, Scope: strings.Join(appScopes, " ")}
	return func(w http.ResponseWriter, r *http.Request) {
		site.Show(w, r, page.View{Template: "sandboxapp", Script: "sandboxapp", Policy: page.Policy{Connect: "'self'"}, Data: data})
	}
}
