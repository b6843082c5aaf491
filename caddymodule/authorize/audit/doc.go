// Package audit records the audit trail, and limits how many events an unauthenticated
// sender can cause.
//
//	audit.go  events, what is recorded of their request, and recent refusals of a client
//	log.go    logs events, or counts those beyond the limit
package audit
