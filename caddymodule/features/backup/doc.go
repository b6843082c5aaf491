// Package backup is a feature: GET /fhir/backup of the admin API, and the command `caddy fhir-store copy`.
//
//	backup.go   a tar archive of the durable store's file, the keys and the registered clients
//	command.go  the command, and its messages about keys and errors
//	storecopy   the entries of one store are copied to another
package backup
