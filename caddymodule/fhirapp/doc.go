// Package fhirapp is the Caddy app `fhir`: the options of the authorization server, its lifecycle, the admin API, and
// commands. Features are separate Caddy modules, which this package finds by namespace and does not import.
//
//	fhir                          app.go               issuer, clients, users, keys
//	                              client.go, user.go, identityprovider.go
//	                                                   their options
//	                              caddyfile.go         the fhir block of a Caddyfile
//	                              lifecycle.go         start and stop of a configuration
//	                              appwarnings.go       warnings about allowed but inadvisable options
//	                              personreader.go      requests to the FHIR server on behalf of a person
//	                              feature.go           interfaces and helpers of features
//	                              configuredstore.go   the durable store, for commands of features
//	admin.api.fhir                admin.go             status, keys, cached expansions
//	                              admingrants.go       sessions, grants, second factors
//	                              adminidps.go         identity providers, and their metrics
//	                              readiness.go         readiness of the gateway; health probes
//	caddy fhir-check, fhir-totp   commands.go
//	caddy.logging.encoders.fhir   accesslog.go         logs without codes and tokens
package fhirapp
