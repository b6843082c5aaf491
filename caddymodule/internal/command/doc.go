// Package command is the commands by which an operator asks a running gateway for something, by Caddy's admin API.
//
//	command.go     a command with its verbs, and what they share
//	admin.go       asking the admin API
//	endings.go     caddy fhir-sessions, fhir-grants, fhir-factors
//	keys.go        caddy fhir-keys
//	refusals.go    caddy fhir-log
package command
