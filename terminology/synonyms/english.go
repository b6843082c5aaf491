// Package synonyms holds built-in lists of what words of a filter also stand for, in the form that textindex.Synonyms
// reads.
package synonyms

import _ "embed"

// English is the list for English. It names its sources.
//
//go:embed english.txt
var English string
