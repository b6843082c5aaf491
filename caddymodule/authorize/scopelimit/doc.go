// Package scopelimit has people's groups and claims decide which scopes they may have, whatever the client may.
//
//	row.go     one row of the configuration
//	limits.go  what a person may have by all of them
package scopelimit
