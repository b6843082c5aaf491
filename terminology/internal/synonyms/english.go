// Package synonyms contains built-in lists of synonyms for search filters, in the format of textindex.Synonyms.
package synonyms

import _ "embed"

// English is the English list, including references to its sources.
var English = wordSynonyms + "\n" + conceptSynonyms

// wordSynonyms maps abbreviations and common words to the words that code systems use.
//
//go:embed english.txt
var wordSynonyms string

// conceptSynonyms contains alternative names of concepts.
//
//go:embed concepts.txt
var conceptSynonyms string
