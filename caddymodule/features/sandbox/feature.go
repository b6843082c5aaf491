package sandbox

import (
	"embed"
	"net/http"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/signin"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/fhirapp"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
)

// Paths of the launch page and the app.
const (
	launchPagePath = "/oauth2/launch_page"
	appPath        = "/oauth2/sandbox_app"
)

//go:embed scripts templates texts.json
var files embed.FS

func init() {
	caddy.RegisterModule(new(Sandbox))
	endpoint.Register("launch_page")
	endpoint.Register("sandbox_app")
	page.AddFiles(files)
}

// Sandbox serves a page at `/oauth2/launch_page` on which users launch apps as an EHR would, and an app to launch, with
// the client_id `sandbox-app`. It is intended for evaluation. If the issuer is on localhost, apps on localhost can be used
// without registration, with the client_id `sandbox-local-app`.
type Sandbox struct{}

// CaddyModule returns the Caddy module information.
func (*Sandbox) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "fhir.features.launch_page", New: func() caddy.Module { return new(Sandbox) }}
}

// Subdirectives implements [option.Feature]. Syntax:
//
//	launch_page
func (*Sandbox) Subdirectives() (fields option.Block, repeatable []string) {
	return option.Block{"launch_page": option.Flag(new(bool))}, nil
}

// Configure implements [fhirapp.Feature].
func (s *Sandbox) Configure(app *fhirapp.App, c *authorize.Config) error {
	app.SetStartPage(launchPagePath)
	s.addToConfig(c)
	return nil
}

// addToConfig adds the feature and its clients to a configuration.
func (s *Sandbox) addToConfig(c *authorize.Config) {
	c.Features = append(c.Features, s)
	c.Clients = append(slices.Clip(c.Clients), newSandboxApp(c.Issuer))
	if client.IsLocal(c.Issuer) {
		c.Clients = append(c.Clients, localApp())
	}
}

// Extend implements [authorize.Feature].
func (s *Sandbox) Extend(core *authorize.Core) error {
	c := core.Config
	core.SupportsEHRLaunch = true
	core.SignInTargets[launchPageID] = signin.Target{Path: launchPagePath, Title: "Launch an app", PreservedParameter: "app"}
	core.Handle(launchPagePath, newLaunchPage(core).serve, http.MethodGet, http.MethodPost)
	core.Handle(appPath, newAppHandler(core.Pages, c.Issuer, c.Issuer+c.FHIRBasePath), http.MethodGet)
	return nil
}

var (
	_ option.Feature    = (*Sandbox)(nil)
	_ fhirapp.Feature   = (*Sandbox)(nil)
	_ authorize.Feature = (*Sandbox)(nil)
)

// appID is the client_id of the sandbox app.
const appID = "sandbox-app"

// appScopes are the scopes that the app requests, in addition to the launch scope. Some data is deliberately excluded, so that
// the app can demonstrate that it cannot read this data.
var appScopes = []string{
	"openid", "fhirUser", client.OnlineAccess,
	"patient/Patient.rs", "patient/Condition.rs", "patient/Observation.rs", "patient/MedicationRequest.rs",
}

// newSandboxApp returns the client of the sandbox app. Its URIs are at the issuer.
func newSandboxApp(issuer string) client.Client {
	return client.Client{
		ID: appID, Name: "Sandbox app", RedirectURIs: []string{issuer + appPath}, LaunchURI: issuer + appPath,
		Compat: []string{client.CompatErrorDescription}, Scopes: append([]string{"launch", "launch/patient"}, appScopes...),
	}
}

// localAppID is the client_id of unregistered apps on the user's computer.
const localAppID = "sandbox-local-app"

// localApp returns the client of unregistered apps. It requires an issuer on the same computer: with a remote issuer, any
// program on the user's computer could get the code when the user follows a link.
func localApp() client.Client {
	return client.Client{
		ID: localAppID, Name: "An app on this computer", RedirectURIs: []string{"http://localhost/"}, AllowsLocalRedirects: true,
		Compat: []string{client.CompatErrorDescription, client.CompatIgnoreUnknownScopes},
		Scopes: []string{"launch", "launch/patient", "launch/encounter", "fhirUser", client.OnlineAccess, "offline_access", "patient/*.rs", "user/*.rs"},
	}
}

// newAppHandler returns the handler of the app's page, which is both its launch URI and its redirect URI. The script implements
// the app.
func newAppHandler(site *page.Site, issuer, fhirBase string) http.HandlerFunc {
	data := appData{ClientID: appID, RedirectURI: issuer + appPath, FHIRBase: fhirBase, Scope: strings.Join(appScopes, " ")}
	return func(w http.ResponseWriter, r *http.Request) {
		site.Show(w, r, page.View{Template: "sandboxapp", Script: "sandboxapp", Policy: page.Policy{Connect: "'self'"}, Data: data})
	}
}

// appData is the data of templates/sandboxapp.html and its script.
type appData struct {
	ClientID    string // client_id of the sandbox app
	RedirectURI string // redirect URI of the sandbox app
	FHIRBase    string // address of the FHIR API
	Scope       string // requested scopes, without the launch scope
}
