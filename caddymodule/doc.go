// Package caddymodule registers caddy-fhir with Caddy. It is all that knows
// Caddy; what the modules do is in the packages beside it.
//
//	fhir                          app.go         issuer, clients, users, keys, store; shared by the handlers
//	fhir.stores.memory            store.go       codes, sessions and revocations, in this process
//	fhir.stores.file              storefile.go   what must outlive a restart, in a file
//	http.handlers.fhir_authorize  authorize.go   package authorize: sign-in, codes, tokens, discovery
//	http.handlers.fhir_bearer     bearer.go      package guard: whose token is this, and is it valid
//	http.handlers.fhir_expand     expand.go      package terminology/front: ValueSet/$expand
//	http.handlers.fhir_outcome    outcome.go     errors as FHIR OperationOutcomes
//	fhir_sites                    sites.go       warnings of handlers that stand in vain
//	admin.api.fhir                admin.go       status, and what may be forgotten
//	caddy.logging.encoders.fhir   accesslog.go   logs without codes and tokens
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
