// Package synonyms contains built-in lists of synonyms for search filters, for textindex.Synonyms.Read.
package synonyms

import _ "embed"

// English is the English list. Its comments include references to the sources.
var English = wordSynonyms + "\n" + conceptSynonyms

// wordSynonyms maps abbreviations and everyday words to the words that code systems use.
//
//go:embed english.txt
var wordSynonyms string

// conceptSynonyms contains alternative names of concepts.
//
//go:embed concepts.txt
var conceptSynonyms string
