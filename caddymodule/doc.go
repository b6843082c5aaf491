// Package caddymodule is the standard build. It imports all Caddy modules of caddy-fhir, so that xcaddy can add them to a
// Caddy binary. A binary with fewer modules imports only some of these packages (modules.go).
//
//	fhir                          fhirapp                  issuer, clients, users, keys, admin API, commands
//	http.handlers.fhir_authorize  modules/authorization    package authorize: sign-in, codes, tokens, discovery
//	http.handlers.fhir_bearer     modules/bearer           package guard: verifies access tokens and enforces scopes
//	http.handlers.fhir_expand     modules/expand           package terminology/dispatch: ValueSet/$expand
//	http.handlers.fhir_outcome    modules/outcome          errors as FHIR OperationOutcomes
//	fhir_gateway                  modules/gateway          directive that adds all handlers in front of a FHIR server
//	http.handlers.fhir_sample     features/sample          package sample: an in-memory FHIR server, for evaluation
//	fhir.stores.*                 modules/stores           stores of state: memory, file; features add Redis and PostgreSQL
//	fhir_sites                    internal/placement       warnings about handlers that have no effect
//
// Shared packages in internal:
//
//	option       parsing of options: Caddyfile words and placeholders
//	fhirbase     the path of the FHIR API, and the app's interface for handlers
//	requester    the sender of a request
//	fhirerror    error responses and failure log
//	crossorigin  CORS of the FHIR API
//	slowbody     limits for slow request bodies
//	metrics      metrics that live as long as the process
//	software     the version
//
// The path of a request through the handlers:
//
//	request ─▶ fhir_authorize ─ /oauth2/…, /.well-known/… ─▶ response
//	              │ any other path
//	              ▼ handle /fhir/R4, /fhir/R4/*
//	           fhir_bearer ─ no valid token ─▶ 401 ─┐
//	              ▼                                 │
//	           fhir_expand ─ $expand, known here ─▶ response from memory
//	              ▼ anything else                   │
//	           reverse_proxy ─ backend down ─▶ 502 ─┤
//	              ▼                                 ▼ handle_errors
//	           the FHIR server                   fhir_outcome ─▶ OperationOutcome
//
// Package gatewaytest runs complete gateways in tests without a port.
package caddymodule
