// Package synonyms holds built-in lists of what words of a filter also stand for, in the form that textindex.Synonyms
// reads.
package synonyms

import _ "embed"

// English is the list for English. It names its sources.
var English = words + "\n" + concepts

// words are abbreviations and words with what code systems say for them.
//
//go:embed english.txt
var words string

// concepts are names of concepts that have other displays.
//
//go:embed concepts.txt
var concepts string
