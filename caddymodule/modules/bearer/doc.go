// Package bearer is the handler fhir_bearer: who holds a request's access token, and what of the FHIR API its scopes allow.
// Package guard verifies tokens, guard/enforce asks and judges the FHIR server; this package configures them.
//
//	bearer.go                the options
//	gate.go                  a request's way through
//	caddyfile.go             the directive
//	app.go                   the fhir app, as far as it is needed here
//	trust.go                 whose tokens are accepted
//	issuerkeys.go            the keys of other issuers, kept over reloads
//	identity.go              the token of a request, and its holder now
//	identityplaceholders.go  who that is, for later handlers
//	stepup.go                how the person must have signed in
//	enforcement.go           what scopes allow: the options of package guard/enforce
//	holder.go                and the rights of a token
//	feature.go               policies of features, which judge besides scopes, and admissions, which count requests
//	searchparameters.go      search parameters beyond R4's
//	sealing.go               links to pages and jobs
//	decision.go              what was decided: metrics, the challenge
//	audit.go                 and the audit trail
//	capabilities.go          the CapabilityStatement
//	smartconfiguration.go    the SMART configuration of another issuer
//	protectedresource.go     and where such tokens are to be had (RFC 9728)
//	address.go               where the API is
package bearer
