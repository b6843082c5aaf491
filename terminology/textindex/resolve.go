package textindex

import (
	"bytes"
	"slices"
	"sort"
)

// resolved are the words of an index that fit a word of the filter.
type resolved struct {
	whole, begun []span
	exact        bool // whether the word itself is among them
}

// resolve finds what [wanted.fit] says of all words of the index.
func (x *Index) resolve(r *resolved, w *wanted) {
	r.whole, r.begun = r.whole[:0], r.begun[:0]
	from, to := x.words.prefixed(w.word)
	r.add(x, w.word, from, to)
	r.exact = len(r.whole) > 0
	if w.begins {
		r.begun = appendSpan(r.begun, from, to)
	}
	for _, same := range w.same {
		from, to := x.words.prefixed(same)
		r.add(x, same, from, to)
	}
	if !bytes.Equal(w.spelled, w.word) {
		from, to := x.words.prefixed(w.spelled)
		r.add(x, w.spelled, from, to)
		if w.begins {
			r.begun = appendSpan(r.begun, from, to)
		}
	}
	r.spellings(x, w)
	r.inflections(x, w)
}

func appendSpan(spans []span, from, to int) []span {
	if from == to {
		return spans
	}
	return append(spans, span{from, to})
}

// add adds a word that the range of words beginning with it may have.
func (r *resolved) add(x *Index, word []byte, from, to int) {
	if from < to && len(x.words.at(from)) == len(word) {
		r.whole = append(r.whole, span{from, from + 1})
	}
}

// spellings adds the words that have another spelling which fits.
func (r *resolved) spellings(x *Index, w *wanted) {
	if len(w.word) < fewestStemmed {
		return
	}
	forms := &x.spelled.forms
	from, to := forms.prefixed(w.spelled)
	for i := from; i < to; i++ {
		id := int(x.spelled.ids[i])
		word := x.words.at(id)
		if len(forms.at(i)) == len(w.spelled) {
			if !bytes.Equal(word, w.word) {
				r.whole = append(r.whole, span{id, id + 1})
			}
		} else if w.begins && !bytes.HasPrefix(word, w.word) && !bytes.HasPrefix(word, w.spelled) {
			r.begun = append(r.begun, span{id, id + 1})
		}
	}
}

// inflections adds the words that have the same stem.
func (r *resolved) inflections(x *Index, w *wanted) {
	if w.stem == nil {
		return
	}
	for _, rank := range x.stems.find(w.stem) {
		id := int(rank)
		switch word := x.words.at(id); {
		case bytes.Equal(word, w.word):
		case inflects(word, w.word):
			r.whole = append(r.whole, span{id, id + 1})
		case w.begins && !bytes.HasPrefix(word, w.word):
			r.begun = append(r.begun, span{id, id + 1})
		}
	}
}

// begins reports whether a range of words is among those that begin so.
func (r *resolved) begins(s span) bool {
	return slices.ContainsFunc(r.begun, func(b span) bool { return b.from <= s.from && s.to <= b.to })
}

// covered reports whether the words that fit as a whole are among those that begin so.
func (r *resolved) covered() bool {
	return !slices.ContainsFunc(r.whole, func(s span) bool { return !r.begins(s) })
}

// containing returns the words that contain part. It goes through all words if one may, so it is used only if nothing
// else was found.
func (x *Index) containing(part []byte) (found []span) {
	if !x.pieces.mayContain(part) {
		return nil
	}
	for at := 0; ; {
		next := bytes.Index(x.words.text[at:], part)
		if next < 0 {
			return found
		}
		at += next
		word := sort.Search(len(x.words.from), func(i int) bool { return x.words.from[i] > uint32(at) }) - 1
		if end := int(x.words.from[word+1]); at+len(part) <= end {
			found = append(found, span{word, word + 1})
			at = end
		} else {
			at++ // the match spans two words
		}
	}
}
