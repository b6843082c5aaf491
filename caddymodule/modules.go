package caddymodule

import (
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/features/policy"         // allow, deny
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/fhirapp"                 // core: fhir
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/authorization"   // core: http.handlers.fhir_authorize
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/bearer"          // core: http.handlers.fhir_bearer
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/expand"          // core: http.handlers.fhir_expand
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/outcome"         // core: http.handlers.fhir_outcome
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/sample"          // http.handlers.fhir_sample
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores/file"     // core: fhir.stores.file
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores/memory"   // core: fhir.stores.memory
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores/postgres" // fhir.stores.postgres
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores/redis"    // fhir.stores.redis
	_ "github.com/caddy-fhir/caddy-fhir/terminology/standard"                // code systems, operations
)
