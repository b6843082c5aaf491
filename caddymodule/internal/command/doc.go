// Package command is the commands by which an operator asks a running gateway for something, by Caddy's admin API.
//
//	command.go     a command with its verbs, and how it asks the admin API
//	operator.go    caddy fhir-sessions, fhir-grants, fhir-factors, fhir-idps, fhir-keys, fhir-log
//	convert.go     caddy fhir-convert, which asks no gateway
package command
