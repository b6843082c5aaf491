package fhirapp

import (
	"encoding/json"
	"fmt"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/brands"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

// UserAccessBrands is the organization behind the FHIR API, as apps show it to people who look for their records (SMART
// App Launch 2.2, User-access Brands). It is served at `{fhir_base}/.well-known/user-access-brands`, to which the SMART
// configuration links.
type UserAccessBrands struct {
	// A User Access Brands Bundle. It is checked by the rules of its profiles. Required.
	Bundle json.RawMessage `json:"bundle,omitempty"`

	// The identifier of this server's brand in the Bundle. Default: that of the brand to which the Endpoint with the
	// address of this FHIR API belongs.
	Primary *smart.Identifier `json:"primary,omitempty"`

	at option.Position // in the Caddyfile
}

// bundle returns the Bundle for package authorize, or nil if there are no brands.
func (b *UserAccessBrands) bundle(fhirBase string) (*brands.Bundle, error) {
	if b == nil {
		return nil, nil
	}
	read, err := brands.Read(b.Bundle, fhirBase, b.Primary)
	if err != nil {
		return nil, fmt.Errorf("user_access_brands: %w", err)
	}
	return read, nil
}
