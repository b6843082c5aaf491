// Package caddymodule is what a Caddy binary imports to have caddy-fhir: the app `fhir`, its admin API and commands, and by
// modules.go all other modules. The packages that know Caddy are this one, modules and what the modules share; what they
// do is in authorize, guard, sample and terminology, which know nothing of Caddy.
//
//	fhir                          app.go           issuer, clients, users, keys; the options of each are beside it
//	                              lifecycle.go     what happens when a configuration starts and ends
//	admin.api.fhir                admin.go         status, sessions, grants, cached expansions
//	caddy.logging.encoders.fhir   accesslog.go     logs without codes and tokens
//
//	http.handlers.fhir_authorize  modules/authorization    package authorize: sign-in, codes, tokens, discovery
//	http.handlers.fhir_bearer     modules/bearer           package guard: whose token is this, and what does it allow
//	http.handlers.fhir_expand     modules/expand           package terminology/front: ValueSet/$expand
//	http.handlers.fhir_outcome    modules/outcome          errors as FHIR OperationOutcomes
//	http.handlers.fhir_sample     modules/sample           package sample: a FHIR server in memory, for trying out
//	fhir.stores.*                 modules/stores           where state is kept: in memory, a file, Redis, PostgreSQL
//	fhir_sites                    site                     warnings about handlers that have no effect
//
// What they share:
//
//	option       options are read, from the Caddyfile's words and with placeholders
//	fhirapp      the app as handlers see it, which they do not import
//	requester    who makes a request
//	failure      errors are answered and logged
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
