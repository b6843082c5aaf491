package caddymodule

import (
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/features/adminpage"      // admin_page
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/features/backup"         // /fhir/backup, fhir-store copy
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/features/brands"         // user_access_brands
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/features/keycloakimport" // fhir-convert keycloak
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/features/policy"         // fhir_bearer: allow, deny
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/features/postgres"       // fhir.stores.postgres
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/features/quota"          // quota
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/features/redis"          // fhir.stores.redis
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/features/registration"   // registration
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/features/requestobject"  // client: request_objects
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/features/roster"         // clients and users in the store
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/features/sample"         // http.handlers.fhir_sample
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/features/sandbox"        // launch_page
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/features/scim"           // idp: scim
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/features/securityevents" // security events of identity providers
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/fhirapp"                 // core: fhir
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/authorization"   // core: http.handlers.fhir_authorize
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/bearer"          // core: http.handlers.fhir_bearer
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/expand"          // core: http.handlers.fhir_expand
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/gateway"         // core: fhir_gateway
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/outcome"         // core: http.handlers.fhir_outcome
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores/file"     // core: fhir.stores.file
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores/memory"   // core: fhir.stores.memory
	_ "github.com/caddy-fhir/caddy-fhir/terminology/standard"                // terminology operations, code systems and XML
)
