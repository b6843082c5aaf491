// Package guardattack makes what the guard is attacked with: records of patients, each with strings of its own, and
// requests of apps that try to see the records of others.
//
//	world.go     World: the records of some patients, of everybody and of nobody (world.tsv, common.tsv, hidden.tsv)
//	token.go     Tokens: the strings by which a record is known again in any text
//	attack.go    Attack: a request, and how one draws it
//	search.go    searches: parameters, modifiers, chains, includes, what comes back and in which order
//	instance.go  reads, histories, operations and writes of one record
//	bundle.go    attacks in a batch or transaction
//	writing.go   writes of somebody who may write: to move, touch, tell or delete what is another's (DrawWrite)
//	moving.go    records that name another patient, by every element and in every spelling
//	submission.go  transactions and batches of them, with links among the entries
//	disguise.go  the same requests in other spellings and formats
//
// It asks nobody. Tests of package e2e send the requests.
package guardattack
