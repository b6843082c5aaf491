package bearer

import (
	"maps"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/crossorigin"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirbase"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/tokenclaim"
)

// UnmarshalCaddyfile sets up the handler from Caddyfile tokens. Syntax:
//
//	fhir_bearer [<matcher>] {
//		fhir_base <path|url>
//		trust <issuer> [<audience>]
//		introspect <url> { … }
//		smart_configuration { … }
//		forward_header <names...>
//		cors <origin|clients|*...>
//		acr <class...>
//		max_age <duration>
//		scopes off
//		compartment_search
//		shared <type...> <rule>
//		operation <$name> off|token|patient|instance|whole [<permissions>] [<type...>]
//		search_parameters <files...>
//		expand_scope <scope...>
//		upsert
//		token_claim <name> [<theirs>]
//		max_memory <size>
//		seal_key <secret> [<previous...>]
//		audit_reads
//	}
//
// Features add their own.
func (h *Bearer) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	options := option.Block{
		"fhir_base":           option.Word(&h.FHIRBase, fhirbase.CheckBaseOrURL),
		"trust":               parseTrust(&h.Trust),
		"introspect":          parseIntrospect(&h.Introspection),
		"token_claim":         option.ClaimNames(&h.TokenClaims, tokenclaim.CheckAll),
		"smart_configuration": parseOffer(&h.Offer),
		"forward_header":      option.Words(&h.ForwardHeaders, guard.CheckHeaderPattern),
		"cors":                option.Words(&h.CORS, crossorigin.Check),
		"acr":                 option.Words(&h.ACR, checkACR),
		"max_age":             option.Duration(&h.MaxAge),
	}
	maps.Copy(options, h.Enforcement.subdirectives())
	features := options.Features("fhir.bearer")
	err := option.ParseDirective(d, options, features.Repeatable("trust", "shared", "operation", "token_claim")...)
	h.FeaturesRaw = features.Raw()
	return err
}
