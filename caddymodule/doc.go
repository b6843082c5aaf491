// Package caddymodule registers caddy-fhir with Caddy. Only this package and package build know Caddy; what the
// modules do is in the packages below.
//
//	fhir                          app.go          issuer, clients, users, keys, stores; shared by the handlers
//	fhir.stores.memory            modules/stores/memory    codes and revocations, in this process
//	fhir.stores.file              modules/stores/file      state that survives a restart, in a file
//	fhir.stores.redis             modules/stores/redis     state that several gateways share, in Redis
//	fhir.stores.postgres          modules/stores/postgres    state that several gateways share, in PostgreSQL
//	http.handlers.fhir_authorize  authorize.go    package authorize: sign-in, codes, tokens, discovery
//	http.handlers.fhir_bearer     bearer.go       package guard: whose token is this, and is it valid
//	http.handlers.fhir_expand     expand.go       package terminology/front: ValueSet/$expand
//	http.handlers.fhir_outcome    modules/outcome  errors as FHIR OperationOutcomes
//	http.handlers.fhir_sample     modules/sample   package sample: a FHIR server in memory, for trying out
//	fhir_sites                    sites.go        warnings about handlers that have no effect
//	admin.api.fhir                admin.go        status, sessions, grants, cached expansions
//	caddy.logging.encoders.fhir   accesslog.go    logs without codes and tokens
//
// The Caddyfile syntax of each is in the same package, in a file of its own if it is long; package option reads the words.
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
