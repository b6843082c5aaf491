package textindex

import (
	"bytes"
	"slices"
)

// tier is how well a document matches a filter, lower being better. [Rule] describes the tiers.
type tier uint8

const (
	tierCode      tier = iota // the code is the filter
	tierDisplay               // the display is the filter
	tierBeginning             // the display begins with the filter
	tierOrdered               // one text has all words in order
	tierAnywhere              // all words are there, or a letter in the middle of a word
	tierLenient               // only in the middle of words, or with typos
	tierNone                  // no match
)

// judge determines tiers. It keeps buffers between calls.
type judge struct {
	corpus Corpus
	filter *Filter
	spend  func(steps int) error
	err    error // of spend

	folder folder
	line   []byte // words of the display, except those inside others
	all    []byte // words of all texts; those of the display first, then those of the code
	shown  int    // where in all the words of the display end
	coded  int    // where in all the words of the code end
	joined []byte // words of the code, without spaces
	others [][]byte
}

func (j *judge) tier(doc uint32) tier {
	switch {
	case j.filter.symbols != nil:
		return j.bySymbols(doc)
	case j.filter.letter != nil:
		return j.byLetter(doc)
	}
	j.read(doc)
	for i := range j.filter.terms {
		if !j.filter.terms[i].in(j.all) {
			return tierNone
		}
	}
	switch {
	case bytes.Equal(j.joined, j.filter.joined):
		return tierCode
	case bytes.Equal(j.line, j.filter.line):
		return tierDisplay
	case bytes.HasPrefix(j.line, j.filter.line):
		return tierBeginning
	case j.ordered():
		return tierOrdered
	default:
		return tierAnywhere
	}
}

// bySymbols is tier for a filter without letter or digit.
func (j *judge) bySymbols(doc uint32) tier {
	display, code, symbols := j.corpus.Display(doc), j.corpus.Code(doc), j.filter.symbols
	switch {
	case bytes.Equal(code, symbols):
		return tierCode
	case bytes.Equal(display, symbols):
		return tierDisplay
	case bytes.HasPrefix(display, symbols):
		return tierBeginning
	case bytes.Contains(display, symbols) || bytes.Contains(code, symbols):
		return tierOrdered
	default:
		return tierNone
	}
}

// byLetter is tier for a filter of one letter or digit.
func (j *judge) byLetter(doc uint32) tier {
	j.readDisplay(doc)
	if !bytes.Contains(j.line, j.filter.letter) {
		return tierNone
	}
	j.joined = appendJoined(j.joined[:0], j.folder.words(j.corpus.Code(doc)))
	switch {
	case bytes.Equal(j.joined, j.filter.joined):
		return tierCode
	case bytes.Equal(j.line, j.filter.line):
		return tierDisplay
	case bytes.HasPrefix(j.line, j.filter.line):
		return tierBeginning
	case bytes.Contains(j.all, j.filter.line):
		return tierOrdered
	default:
		return tierAnywhere
	}
}

// read reads the words of all texts of a document.
func (j *judge) read(doc uint32) {
	j.readDisplay(doc)
	j.all = append(j.all, j.folder.words(j.corpus.Code(doc))...)
	j.coded = len(j.all)
	j.joined = appendJoined(j.joined[:0], j.all[j.shown:])
	if len(j.joined) > 0 {
		j.all = append(append(j.all, ' '), j.joined...)
	}
	j.others = j.corpus.AppendOthers(j.others[:0], doc)
	for _, other := range j.others {
		j.all = append(j.all, j.folder.withInner(j.folder.words(other))...)
	}
}

// readDisplay reads the words of the display alone.
func (j *judge) readDisplay(doc uint32) {
	line := j.folder.words(j.corpus.Display(doc))
	j.line = append(j.line[:0], line...)
	j.all = append(j.all[:0], j.folder.withInner(line)...)
	j.shown = len(j.all)
}

// ordered reports whether one of the texts read has all words in order.
func (j *judge) ordered() bool {
	f := j.filter
	return len(f.words) == 1 || bytes.HasPrefix(j.joined, f.joined) || f.inOrder(j.all[:j.shown]) ||
		f.inOrder(j.all[j.shown:j.coded]) || j.orderedInOthers()
}

// isOrdered is ordered for a document that has not been read. It reads as little as it can.
func (j *judge) isOrdered(doc uint32) bool {
	if j.filter.inOrderIn(j.corpus.Display(doc), &j.folder) {
		return true
	}
	code := j.folder.words(j.corpus.Code(doc))
	if j.filter.inOrder(code) {
		return true
	}
	j.joined = appendJoined(j.joined[:0], code)
	if bytes.HasPrefix(j.joined, j.filter.joined) {
		return true
	}
	j.others = j.corpus.AppendOthers(j.others[:0], doc)
	return j.orderedInOthers()
}

// orderedInOthers reports whether one of the other texts has all words in order.
func (j *judge) orderedInOthers() bool {
	return slices.ContainsFunc(j.others, func(other []byte) bool { return j.filter.inOrderIn(other, &j.folder) })
}
