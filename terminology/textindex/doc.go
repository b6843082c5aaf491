// Package textindex searches as a person types: it finds documents by the beginnings of their words, and orders them by
// [Rule]. It knows documents by number, with their codes and texts; the [Corpus] knows what they are.
//
//	texts ─► Corpus    corpus.go
//	            │ New  builder.go, with folding.go, vocabulary.go, runesets.go, commonprefixes.go
//	          Index    index.go, wordlist.go, textorder.go
//	            │
//	typed ─► Filter    filter.go
//	            │ Search: search.go
//	            ├─ in an index       query.go finds a set of ranks (rankset.go), queryorder.go puts it in order
//	            ├─ one by one        scan.go finds documents, and sorts them
//	            │  the order: how well a document matches (judge.go), then shorter texts first (builder.go);
//	            │  what may be meant by a word: typo.go
//	          []Hit
//
// Both ways find the same in the same order: tests compare them with each other, and with the plain and slow
// implementation in package textindextest.
package textindex
