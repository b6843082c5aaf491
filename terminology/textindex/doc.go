// Package textindex searches as a person types: it finds documents by the beginnings of their words, and orders them by
// [Rule]. It knows documents by number, with their codes and texts; the [Corpus] knows what they are.
//
//	texts ─► Corpus    corpus.go; Ranks: ranks.go
//	            │ New  builder.go: reader.go reads documents (spots.go, folding.go), vocabulary.go numbers their words, and
//	            │      runes.go their letters; compounds.go divides words (dictionary.go)
//	          Index    index.go: wordlist.go, aliases.go (spellings), pieces.go; postings.go, commonprefixes.go; exact.go
//	            │
//	typed ─► Filter    filter.go, with synonyms.go and what is known of the language: language.go
//	            │ Search: search.go, in each part (part.go)
//	            ├─ in an index       searchindex.go: wordfinder.go finds a set of ranks (rankset.go) by the words of the index that fit
//	            │                    (resolve.go); query.go and queryorder.go put it in order, as far as a page needs
//	            │                    it (page.go); queryword.go does both for a single word
//	            ├─ one by one        scan.go finds documents, and sorts them
//	            │  the order: how well a document matches (judge.go), then its rank;
//	            │  what may be meant by a word that is nowhere: correction.go, typist.go
//	          []Hit
//
// Both ways find the same in the same order: tests compare them with each other, whatever the texts and the filter are. What
// they find is in tables of the tests.
package textindex
