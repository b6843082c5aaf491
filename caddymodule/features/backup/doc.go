// Package backup is a feature: GET /fhir/backup of the admin API, and the command `caddy fhir-store copy`.
//
//	backup.go   a tar archive of the durable store's file, the keys and the registered clients
//	command.go  the command, its messages about keys, and its errors
//	storecopy   copying the entries of a store to another
package backup
