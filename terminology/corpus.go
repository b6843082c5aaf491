package terminology

import (
	"context"
	"log/slog"
	"maps"
	"runtime/debug"
	"slices"
	"sync"

	"github.com/caddy-fhir/caddy-fhir/terminology/offheap"
	"github.com/caddy-fhir/caddy-fhir/terminology/textindex"
)

// conceptCorpus is all concepts of a code system, in a language.
type conceptCorpus struct {
	codeSystem *codeSystem
	languages  languages
}

// Len returns the number of concepts.
func (c *conceptCorpus) Len() int { return c.codeSystem.len() }

// Code returns a concept's code.
func (c *conceptCorpus) Code(doc uint32) []byte { return c.codeSystem.codeOf(doc) }

// Display returns what is shown of a concept.
func (c *conceptCorpus) Display(doc uint32) []byte {
	display := c.codeSystem.displayOf(doc)
	if !c.languages.none() {
		display = c.languages.displayOf(c.codeSystem.shownTexts(nil, doc))
	}
	if len(display) == 0 {
		return c.codeSystem.codeOf(doc)
	}
	return display
}

// AppendOthers appends the designations, and the display if another text is shown.
func (c *conceptCorpus) AppendOthers(dst [][]byte, doc uint32) [][]byte {
	if !c.languages.none() {
		return c.languages.appendSearched(dst, c.codeSystem.shownTexts(nil, doc))
	}
	for row, end := c.codeSystem.designations.rows(doc); row < end; row++ {
		dst = append(dst, c.codeSystem.texts.at(c.codeSystem.designations.value[row]))
	}
	return dst
}

// Inactive reports whether a concept is inactive.
func (c *conceptCorpus) Inactive(doc uint32) bool {
	return c.codeSystem.flags[doc]&flagInactive != 0
}

// list returns the languages as [parseLanguages] reads them, the most preferred first; "" for none.
func (l *languages) list() string {
	var list []byte
	for _, r := range l.ranges {
		if len(list) > 0 {
			list = append(list, ',')
		}
		list = append(list, r.tag...)
	}
	if l.only {
		list = append(list, ",*;q=0"...)
	}
	return string(list)
}

// displayOf returns the display among the texts of a concept, as an answer shows it, or nil.
func (l *languages) displayOf(texts []shownText) []byte {
	if i := l.preferred(texts); i >= 0 {
		return texts[i].value
	}
	return nil
}

// appendSearched appends those texts of a concept by which it is found: its displays, and its designations
// in one of the languages, in none, or, where no language is asked for, in any.
func (l *languages) appendSearched(dst [][]byte, texts []shownText) [][]byte {
	for i := range texts {
		t := &texts[i]
		if t.display || t.language == "" || l.mean(t.language) {
			dst = append(dst, t.value)
		}
	}
	return dst
}

// mean reports whether a language is like one of those that are asked for.
func (l *languages) mean(tag string) bool {
	return l.none() || slices.ContainsFunc(l.ranges, func(r languageRange) bool {
		return r.tag == "*" || likeness(tag, r.tag) > languageDiffers
	})
}

// searchIndexes are the indexes of one code system, by what a language means in it.
type searchIndexes struct {
	mu         sync.Mutex
	byLanguage map[string]func() *textindex.Index
}

// maxIndexes is how many indexes of one code system are kept, beside the one for no language.
const maxIndexes = 8

// searchIndex returns the index of a code system in a list of languages, built when it is first needed.
func (cs *codeSystem) searchIndex(list string) *textindex.Index {
	wanted := parseLanguages(list)
	return cs.indexes.get(cs.languageKey(&wanted), func() *textindex.Index {
		return textindex.New(&conceptCorpus{codeSystem: cs, languages: wanted})
	})()
}

// get returns the index for a key, or else remembers how to build it. Nobody waits for an index that
// somebody else needs.
func (s *searchIndexes) get(key string, build func() *textindex.Index) func() *textindex.Index {
	s.mu.Lock()
	defer s.mu.Unlock()
	x, ok := s.byLanguage[key]
	if !ok {
		if s.byLanguage == nil {
			s.byLanguage = make(map[string]func() *textindex.Index)
		}
		if len(s.byLanguage) > maxIndexes {
			maps.DeleteFunc(s.byLanguage, func(key string, _ func() *textindex.Index) bool { return key != "" })
		}
		x = sync.OnceValue(build)
		s.byLanguage[key] = x
	}
	return x
}

// languageKey tells apart what languages mean in a code system: which of its own each is like, and which of
// these the most. Where it has but de, then de, de-CH, de-AT, and fr before de mean the same.
func (cs *codeSystem) languageKey(wanted *languages) string {
	if wanted.none() {
		return ""
	}
	var key []byte
	for _, r := range wanted.ranges {
		if r.tag == "*" {
			return string(append(key, '*'))
		}
		if part, ok := cs.rangeKey(r.tag); ok {
			key = append(key, part...)
		}
	}
	if wanted.only {
		return string(append(key, '!'))
	}
	return string(append(key, '-'))
}

// rangeKey is languageKey for one language. It is false where the code system has nothing like it.
func (cs *codeSystem) rangeKey(language string) (key []byte, ok bool) {
	var found [languageSame + 1]bool
	for _, tag := range append(slices.Clip(cs.languages), cs.language) {
		like := likeness(tag, language)
		key = append(key, byte(like))
		found[like] = true
		ok = ok || like > languageDiffers
	}
	for i, like := range key {
		key[i] = 0
		for lower := languageBroader; lower <= int(like); lower++ {
			if found[lower] {
				key[i]++
			}
		}
	}
	return key, ok
}

// indexLarge builds the indexes of all large code systems, so that nobody has to wait for them. Those of others take
// a few milliseconds when they are first asked for.
func (l *Library) indexLarge(ctx context.Context, log *slog.Logger) {
	built := false
	for _, cs := range l.codeSystems {
		if cs.len() >= textindex.Large && ctx.Err() == nil {
			x := cs.searchIndex("")
			built = true
			log.DebugContext(ctx, "search index built", slog.String("system", cs.canonical()),
				slog.Int("words", x.Words()), slog.Int("bytes", x.Bytes()), slog.Int64("off_heap", offheap.InUse()))
		}
	}
	if built {
		debug.FreeOSMemory() // loading took more than what it loaded does
	}
}

// entryCorpus is entries of an expansion, in a language.
type entryCorpus struct {
	library     *Library
	entries     []entry
	rows        []uint32 // the place in entries of each document
	languages   languages
	supplements []supplement
}

// Len returns the number of entries.
func (c *entryCorpus) Len() int { return len(c.rows) }

// entry returns the entry that a document is.
func (c *entryCorpus) entry(doc uint32) entry { return c.entries[c.rows[doc]] }

// Code returns an entry's code.
func (c *entryCorpus) Code(doc uint32) []byte { return c.library.code(c.entry(doc)) }

// Display returns what is shown of an entry.
func (c *entryCorpus) Display(doc uint32) []byte {
	display := c.library.display(c.entry(doc))
	if !c.languages.none() {
		display = c.languages.displayOf(c.library.shownTexts(nil, c.entry(doc), "", c.supplements))
	}
	if len(display) == 0 {
		return c.Code(doc)
	}
	return display
}

// AppendOthers appends what else the value set, the code system and supplements say of an entry.
func (c *entryCorpus) AppendOthers(dst [][]byte, doc uint32) [][]byte {
	return c.languages.appendSearched(dst, c.library.shownTexts(nil, c.entry(doc), "", c.supplements))
}

// Inactive reports whether an entry's concept is inactive.
func (c *entryCorpus) Inactive(doc uint32) bool {
	return c.library.flags(c.entry(doc))&flagInactive != 0
}
