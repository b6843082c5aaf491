package caddymodule

import (
	"maps"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/upstream"
)

// parseTrust reads an issuer. Syntax:
//
//	trust <issuer> [<audience>] [{
//		tls_ca <file>
//		tls_client <certificate file> <key file>
//	}]
func (h *Bearer) parseTrust(d *caddyfile.Dispenser) error {
	args := d.RemainingArgs()
	if len(args) == 0 || len(args) > 2 {
		return d.ArgErr()
	}
	t := TrustedIssuer{Issuer: args[0]}
	if len(args) == 2 {
		t.Audience = args[1]
	}
	if err := upstream.CheckIssuer(t.Issuer); err != nil {
		return d.WrapErr(err)
	}
	for _, other := range h.Trust {
		if other.Issuer == t.Issuer {
			return d.Errf("trust %s is there a second time", t.Issuer)
		}
	}
	err := t.TLS.subdirectives().parse(d)
	h.Trust = append(h.Trust, t)
	return err
}

// parseIntrospect reads the introspection endpoint. Syntax:
//
//	introspect <url> {
//		client_id <id>
//		client_secret <secret>
//		issuer <issuer>
//		audience <audience>|any
//		tls_ca <file>
//		tls_client <certificate file> <key file>
//	}
func (h *Bearer) parseIntrospect(d *caddyfile.Dispenser) error {
	i := new(Introspection)
	if err := word(&i.Endpoint, upstream.CheckIssuer)(d); err != nil {
		return err
	}
	fields := subdirectives{
		"client_id":     word(&i.ClientID, checkPlaceholders),
		"client_secret": word(&i.ClientSecret, checkPlaceholders),
		"issuer":        word(&i.Issuer, nil),
		"audience":      word(&i.Audience, nil),
	}
	maps.Copy(fields, i.TLS.subdirectives())
	err := fields.parse(d)
	if err == nil && (i.ClientID == "" || i.ClientSecret == "") {
		return d.Err("introspect needs a client_id and a client_secret")
	}
	h.Introspection = i
	return err
}
