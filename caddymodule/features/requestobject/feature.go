package requestobject

import (
	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/fhirapp"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fairqueue"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
)

func init() {
	caddy.RegisterModule(new(Reader))
	caddy.RegisterModule(new(Client))
}

// Reader reads the request objects of clients that may send them. It is always on.
type Reader struct{}

// CaddyModule returns the Caddy module information.
func (*Reader) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "fhir.features.request_objects", New: func() caddy.Module { return new(Reader) }}
}

// AlwaysOn implements [fhirapp.AlwaysOn].
func (*Reader) AlwaysOn() {}

// Configure implements [fhirapp.Feature].
func (r *Reader) Configure(_ *fhirapp.App, c *authorize.Config) error {
	c.Features = append(c.Features, r)
	return nil
}

// Extend implements [authorize.Feature].
func (*Reader) Extend(core *authorize.Core) error {
	core.OpenRequest = (&reader{issuer: core.Config.Issuer, turns: fairqueue.New(fetchesAtOnce)}).open
	core.Describe(func(m *authorize.Metadata) {
		has := core.Clients.Any
		if m.RequestParameter = has(func(c *client.Client) bool { return c.RequestObjects.Allowed }); m.RequestParameter {
			m.RequestAlgorithms = client.RequestObjectAlgorithms()
		}
		m.RequestObjectRequired = has(func(c *client.Client) bool { return c.RequestObjects.Required }) &&
			!has(func(c *client.Client) bool { return len(c.ResponseTypes) > 0 && !c.RequestObjects.Required })
	})
	return nil
}

// Client lets a client put authorization requests into request objects by value (OpenID Connect Core §6): unsigned, or signed by a
// key in its jwks or jwks_uri.
type Client struct {
	// Refuse authorization requests of the client that are not in a signed request object (RFC 9101 §10.5) with `exp`, `nbf`
	// and `aud`, which expires at most 60 minutes after `nbf`. Parameters beside the object are ignored, except SMART's
	// `aud`. Needs jwks or jwks_uri. Default: false.
	Required bool `json:"required,omitempty"`
}

// CaddyModule returns the Caddy module information.
func (*Client) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "fhir.client.request_objects", New: func() caddy.Module { return new(Client) }}
}

// Subdirectives implements [option.Feature]. Syntax:
//
//	request_objects [required]
func (c *Client) Subdirectives() (fields option.Block, repeatable []string) {
	return option.Block{"request_objects": func(d *caddyfile.Dispenser) error {
		if d.CountRemainingArgs() == 0 {
			return nil
		}
		return option.Only("required", &c.Required)(d)
	}}, nil
}

// ConfigureClient implements [fhirapp.ClientFeature].
func (c *Client) ConfigureClient(to *client.Client) {
	to.RequestObjects.Allowed, to.RequestObjects.Required = true, c.Required
}

var (
	_ fhirapp.AlwaysOn      = (*Reader)(nil)
	_ authorize.Feature     = (*Reader)(nil)
	_ option.Feature        = (*Client)(nil)
	_ fhirapp.ClientFeature = (*Client)(nil)
)
