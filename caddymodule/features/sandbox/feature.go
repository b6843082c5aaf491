package sandbox

import (
	"embed"
	"net/http"
	"slices"

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

// Sandbox serves a page at `/oauth2/launch_page` on which people launch apps as an EHR would, and an app to launch, with the
// client_id `sandbox-app`: for trying out. Where the issuer is on localhost, apps there need not be registered: their
// client_id is `sandbox-local-app`.
type Sandbox struct{}

// CaddyModule returns the Caddy module information.
func (*Sandbox) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "fhir.features.launch_page", New: func() caddy.Module { return new(Sandbox) }}
}

// Subdirectives implements [option.Feature]. Syntax:
//
//	launch_page
func (*Sandbox) Subdirectives() (fields option.Block, repeatable []string) {
	return option.Block{"launch_page": option.Bareword(new(bool))}, nil
}

// Configure implements [fhirapp.Feature].
func (s *Sandbox) Configure(app *fhirapp.App, c *authorize.Config) error {
	app.SetStartPage(launchPagePath)
	s.addTo(c)
	return nil
}

// addTo adds the feature and its clients to a server.
func (s *Sandbox) addTo(c *authorize.Config) {
	c.Features = append(c.Features, s)
	c.Clients = append(slices.Clip(c.Clients), ownApp(c.Issuer))
	if client.IsLocal(c.Issuer) {
		c.Clients = append(c.Clients, localApp())
	}
}

// Extend implements [authorize.Feature].
func (s *Sandbox) Extend(core *authorize.Core) error {
	c := core.Config
	core.LaunchesFromEHR = true
	core.SignInTargets[launcher] = signin.Target{Path: launchPagePath, Title: "SMART Sandbox", Keep: "app"}
	core.Handle(launchPagePath, newLaunchPage(core).serve, http.MethodGet, http.MethodPost)
	core.Handle(appPath, serveApp(core.Pages, c.Issuer, c.Issuer+c.FHIRBasePath), http.MethodGet)
	return nil
}

var (
	_ option.Feature    = (*Sandbox)(nil)
	_ fhirapp.Feature   = (*Sandbox)(nil)
	_ authorize.Feature = (*Sandbox)(nil)
)
