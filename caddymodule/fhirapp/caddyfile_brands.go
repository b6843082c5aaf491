package fhirapp

import (
	"os"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/brands"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

// parseBrands reads the Bundle in a file into the configuration. Syntax:
//
//	user_access_brands <file> {
//		primary [<system>] <value>
//	}
func parseBrands(to **UserAccessBrands) option.Setter {
	return func(d *caddyfile.Dispenser) error {
		b := &UserAccessBrands{at: option.PositionOf(d)}
		*to = b
		var file string
		err := option.Word(&file, nil)(d)
		if err != nil {
			return err
		}
		if b.Bundle, err = os.ReadFile(file); err != nil {
			return d.Errf("user_access_brands: %v", err)
		}
		// The adapted configuration is JSON and contains the Bundle.
		if err := brands.CheckJSON(b.Bundle); err != nil {
			return d.Errf("user_access_brands %s: %v", file, err)
		}
		return option.Block{"primary": func(d *caddyfile.Dispenser) error {
			identifier, err := parseIdentifier(d)
			b.Primary = &identifier
			return err
		}}.Parse(d)
	}
}

// parseIdentifier reads an identifier, which is a URL unless a system is named.
func parseIdentifier(d *caddyfile.Dispenser) (smart.Identifier, error) {
	first, second, err := option.OneOrTwo(d)
	if second == "" {
		return smart.Identifier{System: brands.URISystem, Value: first}, err
	}
	return smart.Identifier{System: first, Value: second}, err
}
