package textindex

import (
	"bytes"
	"slices"
)

// tier ranks how well a document matches a filter; lower is better. [Rule] describes the tiers.
type tier uint8

const (
	tierCode      tier = iota // the code equals the filter
	tierTerm                  // the display equals the filter
	tierWholeHead             // all words match whole words in a head
	tierWhole                 // all words match whole words
	tierMeant                 // the display equals a synonym with typed words that begin with the filter
	tierBegunHead             // all words match prefixes of words in a head, or whole words
	tierBegun                 // all words match prefixes of words
	tierLenient               // some words match only in the middle of words
	tierNone                  // no match
)

// judge determines tiers. It reuses buffers between calls.
type judge struct {
	reader reader
	filter *Filter
	asked  *asked
	spend  func(steps int) error
	err    error // error of spend

	divided *Compounds // nil if none
}

func (j *judge) tier(doc uint32) tier {
	switch {
	case j.filter.symbols != nil:
		return j.bySymbols(doc)
	case j.filter.letter != nil:
		return j.byLetter(doc)
	}
	j.read(doc)
	worst := tierWholeHead
	for _, s := range j.asked.segments {
		if worst = max(worst, j.segment(s)); worst == tierNone {
			return tierNone
		}
	}
	switch {
	case bytes.Equal(j.reader.joined, j.filter.joined):
		return tierCode
	case j.isTerm(doc, j.asked.lines):
		return tierTerm
	case worst > tierMeant && j.isTerm(doc, j.asked.meant):
		return tierMeant
	}
	return worst
}

// isTerm reports whether the display equals any of the lines and the document is selectable.
func (j *judge) isTerm(doc uint32, lines [][]byte) bool {
	for _, line := range lines {
		if bytes.Equal(j.reader.line, line) {
			return j.reader.corpus.Rank(doc)&rankAbstract == 0
		}
	}
	return false
}

// segment returns the tier of a segment: the best tier of its alternatives. An alternative has the tier of its worst need.
func (j *judge) segment(s segment) tier {
	best := tierNone
	for _, way := range s {
		worst := tierWholeHead
		for i := range way {
			worst = max(worst, j.need(&way[i]))
		}
		best = min(best, worst)
	}
	return best
}

func (j *judge) need(n *need) tier {
	if n.run != nil {
		return j.segment(n.run)
	}
	return min(j.words(n.words), j.words(n.joined))
}

// words returns the worst tier of several words, or tierNone without words.
func (j *judge) words(words []wanted) tier {
	if len(words) == 0 {
		return tierNone
	}
	worst := tierWholeHead
	for i := range words {
		best := tierNone
		for _, s := range j.reader.spots() {
			best = min(best, tierOf(words[i].fit(s.word), s.head))
		}
		worst = max(worst, best)
	}
	return worst
}

// tierOf returns the tier of a matching word.
func tierOf(f fit, head bool) tier {
	switch {
	case f == fitNot:
		return tierNone
	case f == fitWhole && head:
		return tierWholeHead
	case f == fitWhole:
		return tierWhole
	case head:
		return tierBegunHead
	}
	return tierBegun
}

// bySymbols is like tier, but for a filter without letters and digits.
func (j *judge) bySymbols(doc uint32) tier {
	display, code, symbols := j.reader.corpus.Display(doc), j.reader.corpus.Code(doc), j.filter.symbols
	switch {
	case bytes.Equal(code, symbols):
		return tierCode
	case bytes.Equal(display, symbols):
		return tierTerm
	case bytes.HasPrefix(display, symbols):
		return tierBegunHead
	case bytes.Contains(display, symbols) || bytes.Contains(code, symbols):
		return tierBegun
	default:
		return tierNone
	}
}

// byLetter is like tier, but for a filter of one letter or digit.
func (j *judge) byLetter(doc uint32) tier {
	r := &j.reader
	r.readDisplay(doc)
	if !bytes.Contains(r.line, j.filter.letter) {
		return tierNone
	}
	begun := slices.ContainsFunc(r.spots(), func(s spot) bool { return bytes.HasPrefix(s.word, j.filter.letter) })
	r.readCode(doc)
	switch {
	case bytes.Equal(j.reader.joined, j.filter.joined):
		return tierCode
	case j.isTerm(doc, j.asked.lines):
		return tierTerm
	case begun:
		return tierBegun
	default:
		return tierLenient
	}
}

// read reads the words of all texts of a document and the parts of its compounds.
func (j *judge) read(doc uint32) {
	j.reader.read(doc)
	if j.divided != nil {
		j.reader.spotter.spots = appendParts(j.reader.spots(), j.divided)
	}
}

// appendParts appends the parts of compounds. Only the first part of a compound in a head is in a head.
func appendParts(spots []spot, c *Compounds) []spot {
	for _, s := range spots {
		for _, p := range c.of(s.word) {
			spots = append(spots, spot{word: s.word[p.from:p.to], head: s.head && p.from == 0})
		}
	}
	return spots
}

// pay charges for examining the words of the document the given number of times.
func (j *judge) pay(times int) { j.err = j.spend(j.reader.steps(times)) }
