// Package textindex searches as a person types: it finds documents by the beginnings of their words, and orders them by
// [Rule]. It knows documents by number, with their codes and texts; the [Corpus] knows what they are.
//
//	texts ─► Corpus    ranks.go, with Ranks
//	            │ New  builder.go: reads documents (folding.go), and numbers their words and letters;
//	            │      compounds.go divides words
//	          Index    index.go: words, spellings, pieces; postings.go
//	            │
//	typed ─► Filter    filter.go, with synonyms.go and what is known of the language: language.go
//	            │ Search: search.go, in each part
//	            ├─ in an index       searchindex.go finds a set of ranks by the words of the index that fit; query.go puts
//	            │                    it in order, as far as a page needs it
//	            ├─ one by one        search.go finds documents, and sorts them
//	            │  the order: how well a document matches (judge.go), then its rank;
//	            │  what may be meant by a word that is nowhere: correction.go
//	          []Hit
//
// Both ways find the same in the same order: tests compare them with each other, whatever the texts and the filter are. What
// they find is in tables of the tests.
package textindex
