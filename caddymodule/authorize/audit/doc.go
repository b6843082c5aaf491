// Package audit holds the events of the audit trail, and bounds how many of them anybody can
// cause who has proved nothing.
//
//	trail.go    what becomes known of a request on its way, and is recorded with its events
//	event.go    what happened, to whom, by which client
//	record.go   an event as one record of a log
//	log.go      hands events on, or counts those that are left out
package audit
