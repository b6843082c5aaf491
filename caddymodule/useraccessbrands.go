package caddymodule

import (
	"encoding/json"
	"fmt"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/brands"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
)

// UserAccessBrands is the organization behind the FHIR API, as apps show it to people who look for their records (SMART
// App Launch 2.2, User-access Brands): a Bundle, or what one is made of. It is served at
// `{fhir_base}/.well-known/user-access-brands`, to which the SMART configuration links.
type UserAccessBrands struct {
	// A User Access Brands Bundle. It is checked by the rules of its profiles. Default: one is made of the other
	// fields.
	Bundle json.RawMessage `json:"bundle,omitempty"`

	// The identifier of this server's brand in the Bundle. Default: that of the brand to which the Endpoint with the
	// address of this FHIR API belongs.
	Primary *brands.Identifier `json:"primary,omitempty"`

	// The name by which people recognize the organization. Required without a Bundle.
	Name string `json:"name,omitempty"`

	// The organization's website, or `asked-declined` or `asked-unknown`. Required without a Bundle.
	Website string `json:"website,omitempty"`

	BrandLogo

	// Where the organization is. Default: nothing is said.
	Addresses []BrandAddress `json:"addresses,omitempty"`

	// Where people see their records themselves. Default: none.
	Portals []BrandPortal `json:"portals,omitempty"`

	// The https URL of a page for developers of apps. Required without a Bundle.
	Developers string `json:"developers,omitempty"`

	at option.Position // in the Caddyfile
}

// BrandLogo is a logo, best a square SVG.
type BrandLogo struct {
	// The https: or data: URL of the logo. Default: there is none.
	Logo string `json:"logo,omitempty"`

	// The URL of a page with the terms that apps must agree to before they show it. Default: there are none.
	LogoLicense string `json:"logo_license,omitempty"`
}

// BrandAddress is a place of the organization. A postal code or a state alone will do.
type BrandAddress struct {
	// Street and number. Default: none.
	Line []string `json:"line,omitempty"`

	// Default: none.
	City string `json:"city,omitempty"`

	// State or province. Default: none.
	State string `json:"state,omitempty"`

	// Default: none.
	PostalCode string `json:"postal_code,omitempty"`

	// By its ISO 3166 code. Default: none.
	Country string `json:"country,omitempty"`
}

// BrandPortal is a website where people see their records.
type BrandPortal struct {
	// By which people know it. Default: none.
	Name string `json:"name,omitempty"`

	// Its URL, or `asked-declined` or `asked-unknown`. Default: nothing is said.
	URL string `json:"url,omitempty"`

	// For whom it is, and what is in it, in Markdown. Default: none.
	Description string `json:"description,omitempty"`

	BrandLogo
}

// bundle returns the Bundle for package authorize, or nil if there are no brands.
func (b *UserAccessBrands) bundle(fhirBase string) (*brands.Bundle, error) {
	if b == nil {
		return nil, nil
	}
	made, err := b.make(fhirBase)
	if err != nil {
		return nil, fmt.Errorf("user_access_brands: %w", err)
	}
	return made, nil
}

func (b *UserAccessBrands) make(fhirBase string) (*brands.Bundle, error) {
	if len(b.Bundle) > 0 {
		return brands.Read(b.Bundle, fhirBase, b.Primary)
	}
	return brands.Make(b.brand(), fhirBase)
}

func (l BrandLogo) core() brands.Logo { return brands.Logo{Image: l.Logo, License: l.LogoLicense} }

func (b *UserAccessBrands) brand() brands.Brand {
	brand := brands.Brand{
		Name: b.Name, Website: b.Website, Logo: b.BrandLogo.core(), Endpoint: brands.Endpoint{Developers: b.Developers},
	}
	for _, a := range b.Addresses {
		brand.Addresses = append(brand.Addresses, brands.Address(a))
	}
	for _, p := range b.Portals {
		brand.Portals = append(brand.Portals, brands.Portal{Name: p.Name, Website: p.URL, Description: p.Description, Logo: p.BrandLogo.core()})
	}
	return brand
}
