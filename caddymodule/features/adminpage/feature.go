package adminpage

import (
	"embed"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/browser"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/scopelimit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/signin"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/fhirapp"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fairqueue"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
)

const path = "/oauth2/admin"

//go:embed templates texts.json
var files embed.FS

func init() {
	caddy.RegisterModule(new(AdminPage))
	endpoint.Register("admin")
	page.AddFiles(files)
}

// AdminPage serves a page at `/oauth2/admin` on which administrators approve self-registered apps and manage the clients and
// users in the store.
type AdminPage struct {
	// The custom scope required to open the page, such as `fhir-admin`. People to whom a row of `scope_limits` grants this
	// scope are administrators once they have signed in with a second factor. Required.
	Scope string `json:"scope,omitempty"`

	app *fhirapp.App
}

// CaddyModule returns the Caddy module information.
func (*AdminPage) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "fhir.features.admin_page", New: func() caddy.Module { return new(AdminPage) }}
}

// Subdirectives implements [option.Feature]. Syntax:
//
//	admin_page <scope>
func (p *AdminPage) Subdirectives() (fields option.Block, repeatable []string) {
	return option.Block{"admin_page": option.Word(&p.Scope, checkScope)}, nil
}

// checkScope returns an error if the scope is not a custom scope.
func checkScope(scope string) error {
	if err := scopelimit.CheckCustomScope(scope); err != nil {
		return fmt.Errorf("admin_page: %w", err)
	}
	return nil
}

// Configure implements [fhirapp.Feature].
func (p *AdminPage) Configure(app *fhirapp.App, c *authorize.Config) error {
	grantsAccess := func(l scopelimit.Row) bool { return slices.Contains(l.Scopes, p.Scope) }
	if !slices.ContainsFunc(c.ScopeLimits, grantsAccess) {
		c.Logger.Warn("admin_page has no administrators: grant its scope with scope_limit, for example scope_limit idp local group <name> <scope>", "scope", p.Scope)
	}
	p.app = app
	c.Features = append(c.Features, p)
	return checkScope(p.Scope)
}

// Extend implements [authorize.Feature].
func (p *AdminPage) Extend(core *authorize.Core) error {
	manager, ok := fhirapp.FeatureOf[fhirapp.EntryManager](p.app)
	if !ok {
		return errors.New("admin_page: this build has no feature that manages clients and users: add one, such as caddymodule/features/roster")
	}
	p.register(core, managedStore{manager})
	return nil
}

func (p *AdminPage) register(core *authorize.Core, entries Store) {
	sealer := &browser.Sealer{Keys: core.Config.Keys}
	a := &admin{core, p.Scope, entries, sealer, &signin.SessionHeader{Sealer: sealer, Sessions: core.Sessions}, fairqueue.New(1)}
	core.SignInTargets[sealPurpose] = signin.Target{Path: path, ACR: oauth2.ACRMultiFactor}
	core.Handle(path, a.serve, http.MethodGet, http.MethodPost)
}

var (
	_ option.Feature    = (*AdminPage)(nil)
	_ fhirapp.Feature   = (*AdminPage)(nil)
	_ authorize.Feature = (*AdminPage)(nil)
)
