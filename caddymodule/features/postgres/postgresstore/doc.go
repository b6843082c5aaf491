// Package postgresstore keeps the entries of a [store.Shared] in one table of a PostgreSQL
// database, which any number of gateways share.
//
//	config.go    [Config], and the connections it asks for; errors of connections without passwords
//	store.go     the methods of the store; a step of calls, as the arguments of one CALL; lists by pages
//	database.go  opens the database: checks the server, and makes the table; PgBouncer before the server; retries after
//	             a lost connection
//	schema.sql   the table, and the procedures that change it
//	room.go      counts rows from time to time, and refuses more than fit; removes expired rows
//	follow.go    reports changes; the server's clock
//
// # Steps
//
// A step is one CALL, so it takes one round trip. The procedure makes each change by one
// statement that also checks its condition, in the order of the keys: row locks make steps
// take turns, and no two steps wait for each other. If a condition fails, all is rolled
// back. Gets come after the commit, so that they find what other steps committed before it.
//
// # Lost answers
//
// Each step has a random number, the same for all its trials, and leaves a row under it, for
// a minute, with what it took. A trial that finds the row knows that an earlier one made the
// step, whatever others have changed since.
//
// # Following
//
// Rows of followed kinds bear the number of the transaction that wrote them. A follower
// reads those that its last snapshot did not see: at each NOTIFY, which only wakes it, and
// each second, so that a lost notification costs no more than that. A deleted row stays for
// a minute as one that holds nothing. Who has not read for half a minute reads all again,
// as after a new connection.
package postgresstore
