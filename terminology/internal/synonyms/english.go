// Package synonyms contains built-in lists of synonyms for search filters, in the format of textindex.Synonyms.
package synonyms

import _ "embed"

// English is the English list, including references to its sources.
var English = words + "\n" + concepts

// words maps abbreviations and common words to the words that code systems use.
//
//go:embed english.txt
var words string

// concepts contains alternative names of concepts.
//
//go:embed concepts.txt
var concepts string
