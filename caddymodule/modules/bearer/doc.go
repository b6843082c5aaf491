// Package bearer implements the handler fhir_bearer, which verifies access tokens and limits access to the FHIR API to their
// scopes. Package guard verifies tokens, and package guard/enforce restricts requests and responses. This package configures
// them.
//
//	bearer.go       the directive and its options; the required part of the fhir app; the URL of the API
//	gate.go         the steps of a request; its decision: metrics, traces, the challenge, the audit log
//	trust.go        trusted issuers and their keys, which survive reloads
//	identity.go     the token of a request, its current holder, placeholders for later handlers; step-up
//	enforcement.go  scopes: the options of package guard/enforce, the rights of a token, search parameters in addition to R4's
//	feature.go      policies of features, which override scopes, and admissions, which limit requests
//	pages.go        links to pages and jobs
//	discovery.go    the CapabilityStatement, the SMART configuration of another issuer, protected resource metadata (RFC 9728)
package bearer
