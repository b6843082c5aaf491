// Package postgresstore is a [store.SharedStore] in one table of a PostgreSQL database, which any number of gateways can share.
//
//	config.go    [Config] and its connections; connection errors without passwords
//	store.go     methods of the store; a step of calls as the arguments of one CALL; paged listings
//	database.go  opening: server checks, creation of the table; detection of PgBouncer; retries after a lost connection
//	schema.sql   the table and the procedures that change it
//	room.go      periodic row count; rejection of rows over the limit; removal of expired rows
//	follow.go    reports of changes; the server's clock
//
// # Steps
//
// A step is one CALL, so it takes one round trip. The procedure makes the changes in the order of their keys, each with one
// statement that also checks the condition. Row locks serialize steps without deadlocks. If a condition fails, the step is
// rolled back. Gets are executed after the commit, so that they return everything committed before.
//
// # Lost responses
//
// Each step has a random ID, which all its attempts share. A step stores a row under this ID for one minute, with the values
// that it took. If a retry finds the row, it reports the step as done, regardless of later changes.
//
// # Subscriptions
//
// Rows of the kinds in SubscribedKinds contain the number of the transaction that wrote them. After each NOTIFY and every
// second, a follower reads the rows that its last snapshot did not include, so a lost notification delays a change by at most a
// second. A deleted row remains for a minute as an empty row. A follower that has not read for half a minute reads all rows
// again, as after a reconnect.
package postgresstore
