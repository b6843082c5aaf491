package caddymodule

import (
	"os"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/brands"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
)

// parseBrands reads the brands: those of a file, whose contents become part of the configuration, or what a Bundle is
// made of. Syntax:
//
//	user_access_brands <file> {
//		primary [<system>] <value>
//	}
//
//	user_access_brands {
//		name <words>
//		website <url>|asked-declined|asked-unknown
//		logo <url> [<license url>]
//		address { … }
//		portal [<name>] { … }
//		developers <url>
//	}
func parseBrands(to **UserAccessBrands) option.Setter {
	return func(d *caddyfile.Dispenser) error {
		b := &UserAccessBrands{at: option.PositionOf(d)}
		*to = b
		if d.CountRemainingArgs() > 0 {
			return b.parseFile(d)
		}
		return b.parseBlock(d)
	}
}

func (b *UserAccessBrands) parseFile(d *caddyfile.Dispenser) error {
	var file string
	if err := option.Word(&file, nil)(d); err != nil {
		return err
	}
	var err error
	if b.Bundle, err = os.ReadFile(file); err != nil {
		return d.Errf("user_access_brands: %v", err)
	}
	// The Caddyfile becomes JSON, of which this will be a part.
	if err := brands.CheckJSON(b.Bundle); err != nil {
		return d.Errf("user_access_brands %s: %v", file, err)
	}
	return option.Block{"primary": func(d *caddyfile.Dispenser) error {
		identifier, err := parseIdentifier(d)
		b.Primary = &identifier
		return err
	}}.Parse(d)
}

// parseIdentifier reads an identifier, which is a URL unless a system is named.
func parseIdentifier(d *caddyfile.Dispenser) (brands.Identifier, error) {
	first, second, err := option.OneOrTwo(d)
	if second == "" {
		return brands.Identifier{System: brands.URISystem, Value: first}, err
	}
	return brands.Identifier{System: first, Value: second}, err
}

func (b *UserAccessBrands) parseBlock(d *caddyfile.Dispenser) error {
	err := option.Block{
		"name":       option.Word(&b.Name, nil),
		"website":    option.Word(&b.Website, brands.CheckWebsite),
		"logo":       b.BrandLogo.parse,
		"address":    b.parseAddress,
		"portal":     b.parsePortal,
		"developers": option.Word(&b.Developers, brands.CheckPage),
	}.Parse(d, "address", "portal")
	switch {
	case err != nil:
		return err
	case b.Name == "":
		return d.Err("user_access_brands needs a name, or a file")
	case b.Website == "":
		return d.Err("user_access_brands needs a website: its URL, or asked-declined or asked-unknown")
	case b.Developers == "":
		return d.Err("user_access_brands needs developers, the URL of a page for developers of apps")
	}
	return nil
}

// parse reads a logo, and the page with its terms.
func (l *BrandLogo) parse(d *caddyfile.Dispenser) (err error) {
	if l.Logo, l.LogoLicense, err = option.OneOrTwo(d); err != nil {
		return err
	}
	return option.WithLine(d, brands.CheckLogo(l.Logo, l.LogoLicense))
}

// parseAddress reads an address.
func (b *UserAccessBrands) parseAddress(d *caddyfile.Dispenser) error {
	if d.NextArg() {
		return d.ArgErr()
	}
	var a BrandAddress
	err := option.Block{
		"line":        option.Words(&a.Line, nil),
		"city":        option.Word(&a.City, nil),
		"state":       option.Word(&a.State, nil),
		"postal_code": option.Word(&a.PostalCode, nil),
		"country":     option.Word(&a.Country, nil),
	}.Parse(d)
	b.Addresses = append(b.Addresses, a)
	return err
}

// parsePortal reads a portal.
func (b *UserAccessBrands) parsePortal(d *caddyfile.Dispenser) error {
	var p BrandPortal
	if d.CountRemainingArgs() > 0 {
		if err := option.Word(&p.Name, nil)(d); err != nil {
			return err
		}
	}
	err := option.Block{
		"url":         option.Word(&p.URL, brands.CheckWebsite),
		"description": option.Word(&p.Description, nil),
		"logo":        p.BrandLogo.parse,
	}.Parse(d)
	b.Portals = append(b.Portals, p)
	return err
}
