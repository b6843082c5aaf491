package textindex

import (
	"bytes"
	"math/bits"
	"runtime"
	"slices"
	"sort"
	"strings"
)

// Explanation says why a hit is where it is.
type Explanation struct {
	// Tier is how well the document matches: the row of the table of tiers in docs/terminology.md, from 1.
	Tier int

	// Rule is what the tier says of the document, in words.
	Rule string

	// After says what put the document after the hit before it, in words; empty for the first hit and for the first of a
	// tier, which comes after others because of its tier.
	After string

	// Texts are those from [Corpus.AppendOthers] without which the document would not be in its tier; none if its code and
	// its display are enough.
	Texts []string

	// Synonyms are what words of the filter also stand for, where code, display and Texts do not have the words themselves.
	Synonyms []string
}

// tierRules say in words what each tier is.
var tierRules = [tierNone]string{
	tierCode:      "has the code that is typed",
	tierTerm:      "has the display that is typed, and can be chosen",
	tierWholeHead: "has all words as whole words, in the head of a text",
	tierWhole:     "has all words as whole words",
	tierMeant:     "has the display that a synonym names for words that begin so",
	tierBegunHead: "has words that begin so, in the head of a text, or whole words",
	tierBegun:     "has words that begin so",
	tierLenient:   "has what is typed only in the middle of words",
}

// symbolRules are those for a filter without letter or digit, where they differ.
var symbolRules = map[tier]string{
	tierTerm:      "has the display that is typed",
	tierBegunHead: "has a display that begins so",
	tierBegun:     "has these signs in its display or its code",
}

// rankRules say what a difference in each part of a rank means for the higher one.
var rankRules = []struct {
	part uint32
	rule string
}{
	{rankAbstract, "cannot be chosen"},
	{rankForeign, "is shown in another language"},
	{weightMask, "is used less"},
	{rankInactive, "is inactive"},
	{variantsMost << variantShift, "is more of a variant"},
	{1<<generalityBits - 1, "is more special"},
}

// Explain says why hits of the last search with a filter are where they are. It looks at each document again, and pays
// for it as [Search] does.
func Explain(parts []Part, f *Filter, hits []Hit, spend func(steps int) error) ([]Explanation, error) {
	if spend == nil {
		spend = func(int) error { return nil }
	}
	all := make([]Explanation, len(hits))
	for i, h := range hits {
		e := newExplainer(&parts[h.Part], f, spend)
		all[i] = e.explain(h.Doc)
		if e.judge.err != nil {
			return nil, e.judge.err
		}
		if i > 0 && all[i-1].Tier == all[i].Tier {
			before := parts[hits[i-1].Part].corpus().Rank(hits[i-1].Doc)
			all[i].After = afterRule(before, e.some.Rank(h.Doc))
		}
	}
	runtime.KeepAlive(parts) // the arrays of their indexes are unmapped with these
	return all, nil
}

// afterRule says why a rank comes after another.
func afterRule(before, rank uint32) string {
	if before != rank {
		highest := uint32(1) << (bits.Len32(before^rank) - 1)
		for _, r := range rankRules {
			if highest&r.part != 0 {
				return r.rule
			}
		}
	}
	return "is later in the value set"
}

// explainer judges a document by some of its texts.
type explainer struct {
	judge judge
	some  someTexts
}

// someTexts is a corpus of which a document has only some of its other texts.
type someTexts struct {
	Corpus
	others []otherText
}

// otherText is one from [Corpus.AppendOthers].
type otherText struct {
	value   []byte
	foreign bool
}

// AppendOthers appends these texts.
func (c *someTexts) AppendOthers(dst [][]byte, _ uint32) (others [][]byte, foreign int) {
	for _, text := range c.others {
		if !text.foreign {
			dst = append(dst, text.value)
		}
	}
	own := len(dst)
	for _, text := range c.others {
		if text.foreign {
			dst = append(dst, text.value)
		}
	}
	return dst, len(dst) - own
}

// allOthers returns all other texts of a document.
func allOthers(c Corpus, doc uint32) []otherText {
	texts, foreign := c.AppendOthers(nil, doc)
	all := make([]otherText, len(texts))
	for i, text := range texts {
		all[i] = otherText{text, i >= len(texts)-foreign}
	}
	return all
}

func newExplainer(p *Part, f *Filter, spend func(steps int) error) *explainer {
	e := &explainer{some: someTexts{Corpus: p.corpus()}}
	e.judge = judge{reader: newReader(&e.some), divided: p.divided(), filter: f, spend: spend}
	e.judge.asked = f.in(e.judge.reader.spotter.language)
	return e
}

func (e *explainer) explain(doc uint32) (x Explanation) {
	others := allOthers(e.some.Corpus, doc)
	t := e.judged(doc, others)
	if t == tierNone {
		return x
	}
	x.Tier, x.Rule = int(t)+1, tierRules[t]
	if rule := symbolRules[t]; rule != "" && e.judge.filter.symbols != nil {
		x.Rule = rule
	}
	texts := needed(others, func(some []otherText) bool { return e.judge.err != nil || e.judged(doc, some) == t })
	for _, text := range texts {
		x.Texts = append(x.Texts, string(text.value))
	}
	e.judged(doc, texts)
	for _, s := range e.judge.asked.segments {
		x.Synonyms = append(x.Synonyms, e.synonyms(s, t, e.judge.asked.lines)...)
	}
	return x
}

// judged returns the tier of a document by some of its other texts, also if it matches only in the middle of words.
func (e *explainer) judged(doc uint32, others []otherText) tier {
	e.some.others = others
	t := e.judge.tier(doc)
	if t == tierNone && e.judge.filter.terms != nil && e.judge.contains(doc) {
		t = tierLenient
	}
	e.judge.pay(len(e.judge.filter.terms))
	return t
}

// needed returns as few texts as are enough: none, the first that is enough alone, or else several of which each is needed.
func needed(texts []otherText, enough func(some []otherText) bool) (some []otherText) {
	if enough(nil) {
		return nil
	}
	for i := range texts {
		if enough(texts[i : i+1]) {
			return texts[i : i+1]
		}
	}
	for rest := texts; len(rest) > 0 && !enough(some); {
		last := sort.Search(len(rest)-1, func(i int) bool { return enough(slices.Concat(some, rest[:i+1])) })
		some, rest = append(some, rest[last]), rest[:last]
	}
	slices.Reverse(some)
	return some
}

// synonyms returns the synonym without which a segment is not good enough for a tier, or those of runs within it. Each way
// to say the only segment of a filter may be the display as a whole, which is one of lines.
func (e *explainer) synonyms(s segment, t tier, lines [][]byte) (names []string) {
	for i, way := range s {
		isOther := t == tierTerm && len(lines) == len(s) && !bytes.Equal(e.judge.reader.line, lines[i])
		if isOther || !e.judge.isEnough(way, t) {
			continue
		}
		if i > 0 {
			return []string{joinWords(way)}
		}
		for _, n := range way {
			names = append(names, e.synonyms(n.run, t, nil)...)
		}
		return names
	}
	return nil
}

// isEnough reports whether a way to say a segment is good enough for the tier of a document.
func (j *judge) isEnough(way []need, t tier) bool {
	switch s := (segment{way}); t {
	case tierLenient:
		return j.containsOne(s)
	case tierCode, tierTerm, tierMeant:
		return j.segment(s) != tierNone
	default:
		return j.segment(s) <= t
	}
}

// joinWords returns the words of a synonym.
func joinWords(needs []need) string {
	var words []string
	for _, n := range needs {
		for i := range n.words {
			words = append(words, string(n.words[i].word))
		}
	}
	return strings.Join(words, " ")
}
