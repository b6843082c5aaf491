// Package bearer is the handler fhir_bearer: who holds a request's access token, and what of the FHIR API its scopes allow.
// Package guard verifies tokens, guard/enforce asks and judges the FHIR server; this package configures them.
//
//	bearer.go       the directive and its options; the fhir app, as far as it is needed here; the URL of the API
//	gate.go         a request's way through; the decision: metrics, traces, the challenge, the audit trail
//	trust.go        trusted issuers, and their keys, kept over reloads
//	identity.go     the token of a request, its holder now, placeholders for later handlers; step-up
//	enforcement.go  what scopes allow: the options of package guard/enforce, the rights of a token, search parameters beyond R4's
//	feature.go      policies of features, which judge besides scopes, and admissions, which count requests
//	pages.go        links to pages and jobs
//	discovery.go    the CapabilityStatement, the SMART configuration of another issuer, protected resource metadata (RFC 9728)
package bearer
