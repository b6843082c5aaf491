package textindex

import (
	"bytes"
	"slices"
)

// tier classifies how well a document matches a filter; lower is better. [Rule] describes the tiers.
type tier uint8

const (
	tierCode           tier = iota // the code equals the filter
	tierTerm                       // the display equals the filter
	tierWholeWordsHead             // all words match whole words in a head
	tierWholeWords                 // all words match whole words
	tierSynonym                    // the display equals a synonym with typed words that begin with the filter
	tierPrefixHead                 // all words match prefixes of words in a head or whole words
	tierPrefix                     // all words match prefixes of words
	tierLenient                    // some words match only in the middle of words
	tierNone                       // no match
)

// tierMatcher determines the tiers of documents. It reuses buffers between calls.
type tierMatcher struct {
	reader   reader
	filter   *Filter
	prepared *preparedFilter
	spend    func(steps int) error
	err      error // error that spend returned

	compounds *Compounds // nil if compounds are not split
}

func (j *tierMatcher) tier(doc uint32) tier {
	switch {
	case j.filter.symbols != nil:
		return j.symbolsTier(doc)
	case j.filter.letter != nil:
		return j.letterTier(doc)
	}
	j.read(doc)
	worst := tierWholeWordsHead
	for _, s := range j.prepared.segments {
		if worst = max(worst, j.segmentTier(s)); worst == tierNone {
			return tierNone
		}
	}
	switch {
	case bytes.Equal(j.reader.joined, j.filter.joinedWords):
		return tierCode
	case j.equalsDisplay(doc, j.prepared.lines):
		return tierTerm
	case worst > tierSynonym && j.equalsDisplay(doc, j.prepared.synonymLines):
		return tierSynonym
	}
	return worst
}

// equalsDisplay reports whether the document is selectable and its display equals any of the lines.
func (j *tierMatcher) equalsDisplay(doc uint32, lines [][]byte) bool {
	for _, line := range lines {
		if bytes.Equal(j.reader.line, line) {
			return j.reader.corpus.Rank(doc)&rankAbstract == 0
		}
	}
	return false
}

// segmentTier returns the tier of a segment, which is the best tier of its alternatives. The tier of an alternative is that of
// its worst requirement.
func (j *tierMatcher) segmentTier(s segment) tier {
	best := tierNone
	for _, way := range s {
		worst := tierWholeWordsHead
		for i := range way {
			worst = max(worst, j.requirementTier(&way[i]))
		}
		best = min(best, worst)
	}
	return best
}

func (j *tierMatcher) requirementTier(n *requirement) tier {
	if n.run != nil {
		return j.segmentTier(n.run)
	}
	return min(j.wordsTier(n.words), j.wordsTier(n.joined))
}

// wordsTier returns the worst tier of several words, or tierNone if there are none.
func (j *tierMatcher) wordsTier(words []queryWord) tier {
	if len(words) == 0 {
		return tierNone
	}
	worst := tierWholeWordsHead
	for i := range words {
		best := tierNone
		for _, s := range j.reader.tokens() {
			best = min(best, tierOf(words[i].fit(s.word), s.inHead))
		}
		worst = max(worst, best)
	}
	return worst
}

// tierOf returns the tier for a word that matches with fit f. head reports whether the word is in a head.
func tierOf(f fit, head bool) tier {
	switch {
	case f == fitNone:
		return tierNone
	case f == fitWholeWord && head:
		return tierWholeWordsHead
	case f == fitWholeWord:
		return tierWholeWords
	case head:
		return tierPrefixHead
	}
	return tierPrefix
}

// symbolsTier is like tier, but for a filter that contains no letters or digits.
func (j *tierMatcher) symbolsTier(doc uint32) tier {
	display, code, symbols := j.reader.corpus.Display(doc), j.reader.corpus.Code(doc), j.filter.symbols
	switch {
	case bytes.Equal(code, symbols):
		return tierCode
	case bytes.Equal(display, symbols):
		return tierTerm
	case bytes.HasPrefix(display, symbols):
		return tierPrefixHead
	case bytes.Contains(display, symbols) || bytes.Contains(code, symbols):
		return tierPrefix
	default:
		return tierNone
	}
}

// letterTier is like tier, but for a filter that consists of one letter or digit.
func (j *tierMatcher) letterTier(doc uint32) tier {
	r := &j.reader
	r.readDisplay(doc)
	if !bytes.Contains(r.line, j.filter.letter) {
		return tierNone
	}
	prefixMatch := slices.ContainsFunc(r.tokens(), func(s token) bool { return bytes.HasPrefix(s.word, j.filter.letter) })
	r.readCode(doc)
	switch {
	case bytes.Equal(j.reader.joined, j.filter.joinedWords):
		return tierCode
	case j.equalsDisplay(doc, j.prepared.lines):
		return tierTerm
	case prefixMatch:
		return tierPrefix
	default:
		return tierLenient
	}
}

// read reads the words in all texts of a document, including the parts of compounds.
func (j *tierMatcher) read(doc uint32) {
	j.reader.read(doc)
	if j.compounds != nil {
		j.reader.tokenizer.tokens = appendCompoundParts(j.reader.tokens(), j.compounds)
	}
}

// appendCompoundParts appends the parts of compounds. If a compound is in a head, only its first part is also in the head.
func appendCompoundParts(tokens []token, c *Compounds) []token {
	for _, s := range tokens {
		for _, p := range c.partsOf(s.word) {
			tokens = append(tokens, token{word: s.word[p.from:p.to], inHead: s.inHead && p.from == 0})
		}
	}
	return tokens
}

// charge charges the cost of examining the words of the document the given number of times.
func (j *tierMatcher) charge(times int) { j.err = j.spend(j.reader.steps(times)) }
