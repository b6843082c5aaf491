// Package command implements commands with which operators manage a running gateway through Caddy's admin API.
//
//	command.go     commands with subcommands, and requests to the admin API
//	operator.go    caddy fhir-sessions, fhir-grants, fhir-factors, fhir-idps, fhir-keys, fhir-log
//	convert.go     caddy fhir-convert, which doesn't need a gateway
package command
