package terminology

import (
	"context"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync"
)

// conceptCorpus is all concepts of a code system, in a language.
type conceptCorpus struct {
	codeSystem *codeSystem
	languages  []bool // by index in codeSystem.languages: whether its designations are looked at; nil for all
}

// len returns the number of concepts.
func (c *conceptCorpus) len() int { return c.codeSystem.len() }

// code returns a concept's code.
func (c *conceptCorpus) code(doc uint32) []byte { return c.codeSystem.codeOf(doc) }

// display returns what is shown of a concept.
func (c *conceptCorpus) display(doc uint32) []byte {
	if display := c.codeSystem.displayIn(doc, c.languages); len(display) > 0 {
		return display
	}
	return c.codeSystem.codeOf(doc)
}

// appendOthers appends the designations, and the display of the code system.
func (c *conceptCorpus) appendOthers(dst [][]byte, doc uint32) [][]byte {
	return c.codeSystem.appendNames(dst, doc, c.languages)
}

// inactive reports whether a concept is inactive.
func (c *conceptCorpus) inactive(doc uint32) bool {
	return c.codeSystem.flags[doc]&flagInactive != 0
}

// displayIn returns a concept's display: with languages, the first designation in one of them.
func (cs *codeSystem) displayIn(concept uint32, languages []bool) []byte {
	if languages != nil {
		for row, end := cs.designations.rows(concept); row < end; row++ {
			if language := cs.designations.language[row]; language != 0 && languages[language] {
				return cs.texts.at(cs.designations.value[row])
			}
		}
	}
	return cs.displayOf(concept)
}

// appendNames appends a concept's display and its designations, all or those in one of the languages.
func (cs *codeSystem) appendNames(dst [][]byte, concept uint32, languages []bool) [][]byte {
	row, end := cs.designations.rows(concept)
	if languages != nil {
		dst = append(dst, cs.displayOf(concept)) // may not be what is shown
	}
	for ; row < end; row++ {
		if languages == nil || languages[cs.designations.language[row]] {
			dst = append(dst, cs.texts.at(cs.designations.value[row]))
		}
	}
	return dst
}

// languageSet returns which languages of the code system are meant by one: itself, its variants, and what
// it is a variant of. Designations without a language are in any. It is nil where no language is asked for.
func (cs *codeSystem) languageSet(asked string) []bool {
	if asked == "" {
		return nil
	}
	set := make([]bool, max(1, len(cs.languages)))
	for i, language := range cs.languages {
		set[i] = isVariant(language, asked) || isVariant(asked, language)
	}
	set[0] = true
	return set
}

// isVariant reports whether a language tag is another or says more (RFC 4647 §3.3.1).
func isVariant(tag, of string) bool {
	if len(tag) < len(of) || !strings.EqualFold(tag[:len(of)], of) {
		return false
	}
	return len(tag) == len(of) || tag[len(of)] == '-'
}

// searchIndexes are the indexes of one code system, by the languages that are meant.
type searchIndexes struct {
	mu         sync.Mutex
	byLanguage map[string]*index
}

// searchIndex returns the index of a code system in a language, built when it is first needed. There are
// never more than the code system has languages and variants of them.
func (cs *codeSystem) searchIndex(language string) *index {
	languages := cs.languageSet(language)
	key := languageKey(languages)
	cs.indexes.mu.Lock()
	defer cs.indexes.mu.Unlock()
	x, ok := cs.indexes.byLanguage[key]
	if !ok {
		x = newIndex(&conceptCorpus{codeSystem: cs, languages: languages})
		if cs.indexes.byLanguage == nil {
			cs.indexes.byLanguage = make(map[string]*index)
		}
		cs.indexes.byLanguage[key] = x
	}
	return x
}

// large is how many concepts a code system must have for its index to be built when it is loaded, so that
// nobody has to wait for it. Others take a few milliseconds when they are first asked for.
const large = 5000

// indexLarge builds the indexes of all large code systems.
func (l *Library) indexLarge(ctx context.Context, log *slog.Logger) {
	built := false
	for _, cs := range l.codeSystems {
		if cs.len() >= large && ctx.Err() == nil {
			x := cs.searchIndex("")
			built = true
			log.DebugContext(ctx, "search index built", slog.String("system", cs.canonical()),
				slog.Int("words", x.words.len()), slog.Int("bytes", x.bytes()))
		}
	}
	if built {
		debug.FreeOSMemory() // loading took more than what it loaded does
	}
}

// languageKey is a set of languages as a key for a map.
func languageKey(languages []bool) string {
	key := make([]byte, len(languages))
	for i, in := range languages {
		if in {
			key[i] = 1
		}
	}
	return string(key)
}

// entryCorpus is entries of an expansion, in a language.
type entryCorpus struct {
	library  *Library
	entries  []entry
	rows     []uint32 // the place in entries of each document
	language string
}

// len returns the number of entries.
func (c *entryCorpus) len() int { return len(c.rows) }

// entry returns the entry that a document is.
func (c *entryCorpus) entry(doc uint32) entry { return c.entries[c.rows[doc]] }

// code returns an entry's code.
func (c *entryCorpus) code(doc uint32) []byte { return c.library.code(c.entry(doc)) }

// display returns what is shown of an entry.
func (c *entryCorpus) display(doc uint32) []byte {
	e, l := c.entry(doc), c.library
	if own := l.ownDisplay(e); len(own) > 0 {
		return own
	}
	if e.concept == none {
		return l.code(e)
	}
	cs := l.codeSystems[e.codeSystem]
	return (&conceptCorpus{codeSystem: cs, languages: cs.languageSet(c.language)}).display(e.concept)
}

// appendOthers appends what the code system says of an entry.
func (c *entryCorpus) appendOthers(dst [][]byte, doc uint32) [][]byte {
	e := c.entry(doc)
	if e.concept == none {
		return dst
	}
	cs := c.library.codeSystems[e.codeSystem]
	if e.listed != 0 {
		dst = append(dst, cs.displayOf(e.concept))
	}
	return cs.appendNames(dst, e.concept, cs.languageSet(c.language))
}

// inactive reports whether an entry's concept is inactive.
func (c *entryCorpus) inactive(doc uint32) bool {
	return c.library.flags(c.entry(doc))&flagInactive != 0
}
