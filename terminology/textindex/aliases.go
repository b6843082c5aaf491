package textindex

import (
	"bytes"
	"slices"
)

// aliases are other spellings of words, sorted.
type aliases struct {
	forms wordList
	ids   []uint32 // of the words as they are written
}

// newAliases returns the forms of words that have one.
func newAliases(words *wordList, formOf func(word []byte) []byte) (a aliases) {
	type alias struct {
		form []byte
		id   uint32
	}
	var all []alias
	for id := range words.len() {
		if form := formOf(words.at(id)); form != nil {
			all = append(all, alias{form, uint32(id)})
		}
	}
	slices.SortStableFunc(all, func(a, b alias) int { return bytes.Compare(a.form, b.form) })
	for _, alias := range all {
		a.forms.add(alias.form)
		a.ids = append(a.ids, alias.id)
	}
	return a
}

func (a *aliases) bytes() int { return a.forms.bytes() + 4*len(a.ids) }
