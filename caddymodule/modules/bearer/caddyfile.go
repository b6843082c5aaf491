package bearer

import (
	"maps"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/crossorigin"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/fhirapp"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/option"
)

// UnmarshalCaddyfile sets up the handler from Caddyfile tokens. Syntax:
//
//	fhir_bearer [<matcher>] {
//		fhir_base <path|url>
//		trust <issuer> [<audience>]
//		introspect <url> { … }
//		identity_header <names...>
//		forward_header <names...>
//		forward_token
//		cors <origin|clients|*...>
//		acr <class...>
//		max_age <duration>
//		scopes off
//		compartment_search
//		shared <type...> <rule>
//		operation <$name> patient|instance|whole <permissions> [<type...>]
//		operation <$name> token [<type...>]
//		operation <$name> off
//		search_parameter <type> <name> <kind> <expression> [<target...>]
//		search_parameters <files...>
//		expand_scope <scope...>
//		upsert
//		allow|deny [<name>] <expression>
//		max_answer <size>
//		max_memory <size>
//		seal_key <secret> [<previous...>]
//		audit_reads
//		debug
//	}
func (h *Bearer) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	options := option.Block{
		"fhir_base":       option.Word(&h.FHIRBase, fhirapp.CheckBaseOrURL),
		"trust":           h.parseTrust,
		"introspect":      h.parseIntrospect,
		"identity_header": option.Words(&h.IdentityHeaders, guard.CheckHeaderPattern),
		"forward_header":  option.Words(&h.ForwardHeaders, guard.CheckHeaderPattern),
		"forward_token":   option.Bareword(&h.ForwardToken),
		"cors":            option.Words(&h.CORS, crossorigin.Check),
		"acr":             option.Words(&h.ACR, checkACR),
		"max_age":         option.Duration(&h.MaxAge),
	}
	maps.Copy(options, h.parseEnforcement())
	return option.ParseDirective(d, options, "trust", "shared", "operation", "search_parameter", "allow", "deny")
}
