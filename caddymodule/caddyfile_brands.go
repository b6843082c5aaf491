package caddymodule

import (
	"os"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/brands"
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
//		alias <words...>
//		website <url>|asked-declined|asked-unknown
//		identifier [<system>] <value>
//		logo <url> [<license url>]
//		category prov|ins|laboratory|imaging|pharmacy|health-information-network|health-data-aggregator...
//		address { … }
//		portal [<name>] { … }
//		developers <url>
//	}
func parseBrands(to **UserAccessBrands) setter {
	return func(d *caddyfile.Dispenser) error {
		b := &UserAccessBrands{at: positionOf(d)}
		*to = b
		if d.CountRemainingArgs() > 0 {
			return b.parseFile(d)
		}
		return b.parseBlock(d)
	}
}

func (b *UserAccessBrands) parseFile(d *caddyfile.Dispenser) error {
	var file string
	if err := word(&file, nil)(d); err != nil {
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
	return subdirectives{"primary": func(d *caddyfile.Dispenser) error {
		identifier, err := parseIdentifier(d)
		b.Primary = &identifier
		return err
	}}.parse(d)
}

// parseIdentifier reads an identifier, which is a URL unless a system is named.
func parseIdentifier(d *caddyfile.Dispenser) (BrandIdentifier, error) {
	first, second, err := oneOrTwo(d)
	if second == "" {
		return BrandIdentifier{System: brands.URISystem, Value: first}, err
	}
	return BrandIdentifier{System: first, Value: second}, err
}

func (b *UserAccessBrands) parseBlock(d *caddyfile.Dispenser) error {
	err := subdirectives{
		"name":       word(&b.Name, nil),
		"alias":      words(&b.Aliases, nil),
		"website":    word(&b.Website, brands.CheckWebsite),
		"identifier": b.parseIdentifier,
		"logo":       b.BrandLogo.parse,
		"category":   words(&b.Categories, oneOf(brands.Categories...)),
		"address":    b.parseAddress,
		"portal":     b.parsePortal,
		"developers": word(&b.Developers, brands.CheckPage),
	}.parse(d, "identifier", "address", "portal")
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

func (b *UserAccessBrands) parseIdentifier(d *caddyfile.Dispenser) error {
	identifier, err := parseIdentifier(d)
	b.Identifiers = append(b.Identifiers, identifier)
	return err
}

// parse reads a logo, and the page with its terms.
func (l *BrandLogo) parse(d *caddyfile.Dispenser) (err error) {
	if l.Logo, l.LogoLicense, err = oneOrTwo(d); err != nil {
		return err
	}
	return withLine(d, brands.CheckLogo(l.Logo, l.LogoLicense))
}

// parseAddress reads an address. Syntax:
//
//	address {
//		line <words...>
//		city <words>
//		state <words>
//		postal_code <words>
//		country <code>
//	}
func (b *UserAccessBrands) parseAddress(d *caddyfile.Dispenser) error {
	if d.NextArg() {
		return d.ArgErr()
	}
	var a BrandAddress
	err := subdirectives{
		"line":        words(&a.Line, nil),
		"city":        word(&a.City, nil),
		"state":       word(&a.State, nil),
		"postal_code": word(&a.PostalCode, nil),
		"country":     word(&a.Country, nil),
	}.parse(d)
	b.Addresses = append(b.Addresses, a)
	return err
}

// parsePortal reads a portal. Syntax:
//
//	portal [<name>] {
//		url <url>|asked-declined|asked-unknown
//		description <words>
//		logo <url> [<license url>]
//	}
func (b *UserAccessBrands) parsePortal(d *caddyfile.Dispenser) error {
	var p BrandPortal
	if d.CountRemainingArgs() > 0 {
		if err := word(&p.Name, nil)(d); err != nil {
			return err
		}
	}
	err := subdirectives{
		"url":         word(&p.URL, brands.CheckWebsite),
		"description": word(&p.Description, nil),
		"logo":        p.BrandLogo.parse,
	}.parse(d)
	b.Portals = append(b.Portals, p)
	return err
}
