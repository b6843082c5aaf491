// Package textindex implements search as you type. It finds documents by prefixes of their words and sorts them by [Rule].
// Documents are identified by number; a [Corpus] provides their codes and texts.
//
//	texts ─► Corpus    ranks.go, with Ranks
//	            │ New  builder.go: reads documents (folding.go) and numbers their words and letters;
//	            │      compounds.go splits compound words
//	          Index    index.go: words, spellings, pieces; postings.go
//	            │
//	typed ─► Filter    filter.go, with synonyms.go and language rules in language.go
//	            │ Search: search.go, in each part
//	            ├─ in an index       searchindex.go finds a set of ranks by the matching words of the index; query.go sorts
//	            │                    as much of it as a page needs
//	            ├─ one by one        search.go scans the documents and sorts the matches
//	            │  order: tier of the match (judge.go), then rank;
//	            │  correction of misspelled words: correction.go
//	          []Hit
//
// Both ways return the same documents in the same order: tests compare them with random texts and filters, and check expected
// results in tables.
package textindex
