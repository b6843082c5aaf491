package registration

import (
	"net/http"
	"net/url"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/fhirapp"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/httporigin"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirbase"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/scopeoption"
)

func init() {
	caddy.RegisterModule(new(Registration))
	endpoint.Register("register")
}

// CaddyModule returns the Caddy module information.
func (*Registration) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "fhir.features.registration", New: func() caddy.Module { return new(Registration) }}
}

// Subdirectives implements [option.Feature]. Syntax:
//
//	registration {
//		initial_access_token <token>
//		scope <scope...>
//		pkce required|optional
//		approval required
//		request_objects
//	}
func (r *Registration) Subdirectives() (fields option.Block, repeatable []string) {
	return option.Block{"registration": r.parse}, nil
}

func (r *Registration) parse(d *caddyfile.Dispenser) error {
	if d.NextArg() {
		return d.ArgErr()
	}
	err := option.Block{
		"initial_access_token": option.Word(&r.InitialAccessToken, option.CheckPlaceholders),
		"scope":                scopeoption.Words(&r.Scopes, CheckScope),
		"pkce":                 option.Word(&r.PKCE, option.OneOf(client.PKCERequired, client.PKCEOptional)),
		"approval":             option.Only("required", &r.Approval),
		"request_objects":      option.Bareword(&r.RequestObjects),
	}.Parse(d)
	if err == nil && r.InitialAccessToken == "" {
		err = d.Err("registration needs an initial_access_token")
	}
	return err
}

// transport makes requests to what clients register (jwks_uri, request_uris, logo_uri, backchannel_logout_uri): at public
// addresses only, since anyone who can register a client could otherwise make this server send requests to its own network.
// Where the issuer is on this computer, for trying out, clients may be there too. Nil is the default.
func transport(issuer string) http.RoundTripper {
	if u, err := url.Parse(issuer); err == nil && httporigin.IsLoopback(u.Hostname()) {
		return http.DefaultTransport
	}
	return nil
}

// Configure implements [fhirapp.Feature].
func (r *Registration) Configure(app *fhirapp.App, c *authorize.Config) (err error) {
	if r.InitialAccessToken, err = option.ResolveSecret("initial_access_token", r.InitialAccessToken); err != nil {
		return err
	}
	r.Storage, r.Folder, r.Store = app.Storage(), "fhir/clients/"+fhirbase.StorageName(app.Issuer), app.SharedStore()
	r.Transport = transport(app.Issuer)
	c.Features = append(c.Features, r)
	return nil
}

var (
	_ option.Feature       = (*Registration)(nil)
	_ fhirapp.Feature      = (*Registration)(nil)
	_ fhirapp.ClientSource = (*Registration)(nil)
	_ authorize.Feature    = (*Registration)(nil)
	_ client.Source        = (*Registration)(nil)
)
