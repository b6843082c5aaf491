// Package audit records the audit trail, and limits how many events an unauthenticated
// sender can cause.
//
//	request.go   what becomes known of a request while it is served
//	recorder.go  completes events with it, and records them
//	event.go     who did what, and how it is logged
//	redirect.go  redirect URIs that are not registered
//	refusals.go  what clients were lately refused
//	log.go       logs events, or counts those beyond the limit
package audit
