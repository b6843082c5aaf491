// Package fhirapp is the Caddy app `fhir`: the options of the authorization server, its lifecycle, the admin API, and
// commands. Features are Caddy modules of their own that this package finds by their namespace and does not import.
//
//	fhir                          app.go               issuer, clients, users, keys
//	                              client.go, user.go, identityprovider.go
//	                                                   their options
//	                              caddyfile.go         the fhir block of a Caddyfile
//	                              lifecycle.go         what happens when a configuration starts and ends
//	                              appwarnings.go       what is allowed and not advisable
//	                              ownrecords.go        requests to the FHIR server in a person's name
//	                              feature.go           what features implement and use
//	                              configuredstore.go   the store of a configuration, for commands of features
//	admin.api.fhir                admin.go             status, keys, cached expansions
//	                              admingrants.go       sessions, grants, second factors
//	                              adminidps.go         identity providers, and their metrics
//	                              readiness.go         whether the gateway can serve everything; probes
//	caddy fhir-check, fhir-totp   commands.go
//	caddy.logging.encoders.fhir   accesslog.go         logs without codes and tokens
package fhirapp
