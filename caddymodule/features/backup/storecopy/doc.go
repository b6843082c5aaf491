// Package storecopy copies the entries of one store to another, with the lifetimes that they have left, while nobody uses
// either.
//
//	copy.go     the way: a mark in the target, the entries, what must not be there, the proof, the mark again
//	mark.go     the mark of a copy that is not complete
//	batch.go    many entries in one step
//	merge.go    lists of what a person has in both stores
//
// Memory is bounded, however many entries there are: they pass in batches.
package storecopy
