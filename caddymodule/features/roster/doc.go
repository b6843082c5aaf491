// Package roster is a feature: clients and users in the durable store, in addition to those of the configuration. Operators add
// and change them without a reload. All gateways that share the store use the same entries.
//
//	roster.go     Roster, which lists and changes entries, also for other features; metrics
//	admin.go      /fhir/clients, /fhir/users and /fhir/roster of the admin API
//	command.go    caddy fhir-client, caddy fhir-user
//	entry         entries in the store, and the authorization server with these entries
package roster
