// Package guardattack generates attacks on the guard: records of patients with unique strings, and requests by apps that try to
// read the records of other patients.
//
//	world.go       World: the records of some patients, of everybody and of nobody (world.tsv, common.tsv, hidden.tsv)
//	token.go       Tokens: the strings that identify a record in any text
//	attack.go      Attack: a request, and its random generation
//	search.go      searches: parameters, modifiers, chains, includes, results and their order
//	instance.go    reads, histories, operations and writes of one record
//	bundle.go      attacks in a batch or transaction
//	writing.go     writes with a write scope: to move, touch, disclose or delete another patient's data (DrawWrite)
//	moving.go      records that reference another patient, by every element and in every spelling
//	submission.go  transactions and batches of writes, with links among the entries
//	disguise.go    the same requests in other spellings and formats
//
// The package sends no requests. The tests of package e2e send them.
package guardattack
