package brands

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/fhirapp"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/rawjson"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

func init() {
	caddy.RegisterModule(new(UserAccessBrands))
	endpoint.Register("user-access-brands")
}

// UserAccessBrands describes the organization behind the FHIR API, as apps show it to users who look for their records (SMART
// App Launch 2.2, User-access Brands). The description is served at `{fhir_base}/.well-known/user-access-brands`, and the SMART
// configuration links to it.
type UserAccessBrands struct {
	// The User Access Brands Bundle, which must conform to the profiles. Required.
	Bundle json.RawMessage `json:"bundle,omitempty"`

	// The identifier of this server's brand in the Bundle. Default: the identifier of the brand with an Endpoint at the address
	// of this FHIR API.
	Primary *smart.Identifier `json:"primary,omitempty"`

	position option.Position // position in the Caddyfile
	bundle   *Bundle         // validated content of the field Bundle
}

// CaddyModule returns the Caddy module information.
func (*UserAccessBrands) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "fhir.features.user_access_brands", New: func() caddy.Module { return new(UserAccessBrands) }}
}

// Subdirectives implements [option.Feature]. Syntax:
//
//	user_access_brands <file> {
//		primary [<system>] <value>
//	}
func (b *UserAccessBrands) Subdirectives() (fields option.Block, repeatable []string) {
	return option.Block{"user_access_brands": b.parse}, nil
}

// parse reads the Bundle from a file and embeds it in the configuration.
func (b *UserAccessBrands) parse(d *caddyfile.Dispenser) error {
	b.position = option.PositionOf(d)
	var file string
	err := option.Word(&file, nil)(d)
	if err != nil {
		return err
	}
	if b.Bundle, err = os.ReadFile(file); err != nil {
		return d.Errf("user_access_brands: %v", err)
	}
	// The adapted configuration is JSON and embeds the Bundle.
	if err := rawjson.Check(b.Bundle); err != nil {
		return d.Errf("user_access_brands %s: %v", file, err)
	}
	return option.Block{"primary": func(d *caddyfile.Dispenser) error {
		identifier, err := parseIdentifier(d)
		b.Primary = &identifier
		return err
	}}.Parse(d)
}

// parseIdentifier parses an identifier. If there is no system, the value is a URL.
func parseIdentifier(d *caddyfile.Dispenser) (smart.Identifier, error) {
	first, second, err := option.ParseOneOrTwo(d)
	if second == "" {
		return smart.Identifier{System: URISystem, Value: first}, err
	}
	return smart.Identifier{System: first, Value: second}, err
}

// CheckParsed implements [fhirapp.CheckedFeature].
func (b *UserAccessBrands) CheckParsed(_, fhirBase string) error {
	if _, err := Parse(b.Bundle, fhirBase, b.Primary); err != nil {
		return b.position.Wrap(fmt.Errorf("user_access_brands: %w", err))
	}
	return nil
}

// Configure implements [fhirapp.Feature].
func (b *UserAccessBrands) Configure(app *fhirapp.App, c *authorize.Config) (err error) {
	c.Features = append(c.Features, b)
	b.bundle, err = Parse(b.Bundle, app.Issuer+app.FHIRBase, b.Primary)
	return err
}

// Extend implements [authorize.Feature].
func (b *UserAccessBrands) Extend(core *authorize.Core) error {
	core.HandlePublic(core.Config.FHIRBasePath+Path, b.bundle.ServeHTTP, http.MethodGet, http.MethodHead)
	core.ExtendSMART(func(c *smart.Configuration) {
		c.UserAccessBrandBundle, c.UserAccessBrandIdentifier = core.Config.Issuer+core.Config.FHIRBasePath+Path, b.bundle.Primary()
	})
	return nil
}

var (
	_ option.Feature         = (*UserAccessBrands)(nil)
	_ fhirapp.Feature        = (*UserAccessBrands)(nil)
	_ fhirapp.CheckedFeature = (*UserAccessBrands)(nil)
)

// Path is the path of the Bundle below the FHIR base, next to the SMART configuration.
const Path = "/.well-known/user-access-brands"

// ServeHTTP serves the Bundle.
func (b *Bundle) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/fhir+json")
	w.Header().Set("Cache-Control", "public, max-age=600")
	w.Header().Set("ETag", b.etag)
	http.ServeContent(w, r, "", b.timestamp, bytes.NewReader(b.content))
}

// newETag returns a weak entity tag for a text.
func newETag(text []byte) string {
	sum := sha256.Sum256(text)
	return `W/"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`
}
