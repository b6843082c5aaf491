// Package caddymodule is the standard build: xcaddy adds it to a Caddy binary, and it imports all Caddy modules of
// caddy-fhir. A binary with fewer modules imports fewer of these packages (modules.go).
//
//	fhir                          fhirapp                  issuer, clients, users, keys, admin API, commands
//	http.handlers.fhir_authorize  modules/authorization    package authorize: sign-in, codes, tokens, discovery
//	http.handlers.fhir_bearer     modules/bearer           package guard: verifies access tokens and enforces scopes
//	http.handlers.fhir_expand     modules/expand           package terminology/dispatch: ValueSet/$expand
//	http.handlers.fhir_outcome    modules/outcome          errors as FHIR OperationOutcomes
//	fhir_gateway                  modules/gateway          a directive: all handlers before a FHIR server
//	http.handlers.fhir_sample     features/sample          package internal/sample: a FHIR server in memory, for trying out
//	fhir.stores.*                 modules/stores           where state is kept: in memory, a file, Redis, PostgreSQL
//	fhir_sites                    internal/placement       warnings about handlers that have no effect
//
// The packages in internal that they share:
//
//	option       options are read, from the Caddyfile's words and with placeholders
//	fhirbase     the path of the FHIR API, and the app as handlers see it
//	requester    who makes a request
//	fhirerror    errors are answered and logged
//	crossorigin  CORS of the FHIR API
//	pace         slow request bodies
//	metrics      metrics live as long as the process
//	software     the version
//
// A request's way through the handlers, in their order:
//
//	request ─▶ fhir_authorize ─ /oauth2/…, /.well-known/… ─▶ answered there
//	              │ any other path
//	              ▼ handle /fhir/R4, /fhir/R4/*
//	           fhir_bearer ─ no valid token ─▶ 401 ─┐
//	              ▼                                 │
//	           fhir_expand ─ $expand, known here ─▶ answered from memory
//	              ▼ anything else                   │
//	           reverse_proxy ─ backend is down ─▶ 502 ─┤
//	              ▼                                 ▼ handle_errors
//	           the FHIR server                   fhir_outcome ─▶ OperationOutcome
//
// Tests run whole gateways without a port: package gatewaytest.
package caddymodule
