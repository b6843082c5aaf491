package terminology

import (
	"cmp"
	"context"
	"log/slog"
	"runtime/debug"
	"sync"

	"github.com/caddy-fhir/caddy-fhir/terminology/bitset"
	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/offheap"
	"github.com/caddy-fhir/caddy-fhir/terminology/textindex"
)

// indexLarge builds the indexes of large code systems, so that no request waits for them. Others take milliseconds when
// they are first needed.
func (l *Set) indexLarge(ctx context.Context, log *slog.Logger) {
	built := false
	for _, cs := range l.codeSystems {
		if cs.concepts.Search != nil && cs.concepts.Len() >= textindex.Large && ctx.Err() == nil {
			x := cs.concepts.Search.SearchIndex("")
			built = true
			log.DebugContext(ctx, "search index built", slog.String("system", cs.canonical()),
				slog.Int("words", x.Words()), slog.Int("bytes", x.Bytes()), slog.Int64("off_heap", offheap.InUse()))
		}
	}
	if built {
		debug.FreeOSMemory() // loading took more than its result
	}
}

// entryCorpus is a [textindex.Corpus] of entries of an expansion.
type entryCorpus struct {
	library   *Set
	codes     *codeList
	rows      []uint32 // the index in codes.entries of each document
	languages codesystem.Languages

	best map[uint32]string // by code system: the most preferred language that it has, or one of its supplements; "" for none

	once  sync.Once
	ranks []uint32 // of entries without what code systems know

	onceShown sync.Once
	mixed     bool       // there may be documents that are shown in another language
	foreign   bitset.Set // these documents
}

func newEntryCorpus(l *Set, x *codeList, rows []uint32, languages codesystem.Languages) *entryCorpus {
	c := &entryCorpus{library: l, codes: x, rows: rows, languages: languages}
	if languages.None() {
		return c
	}
	c.best = make(map[uint32]string)
	for _, index := range x.codeSystems {
		cs := l.codeSystems[index]
		systems := []codesystem.Dialects{cs.concepts.Dialects}
		for _, s := range x.supplements {
			if s.of == index {
				systems = append(systems, l.codeSystems[s.by].concepts.Dialects)
			}
		}
		c.best[index] = languages.Best(systems...)
		c.mixed = c.mixed || codesystem.MayBeForeign(cs.concepts, c.best[index])
	}
	return c
}

// Len returns the number of entries.
func (c *entryCorpus) Len() int { return len(c.rows) }

func (c *entryCorpus) entry(doc uint32) entry { return c.codes.entries[c.rows[doc]] }

// Code returns an entry's code.
func (c *entryCorpus) Code(doc uint32) []byte { return c.library.code(c.entry(doc)) }

// Display returns an entry's display in the languages, or else its code.
func (c *entryCorpus) Display(doc uint32) []byte {
	display := c.library.display(c.entry(doc))
	if !c.languages.None() {
		display = c.languages.DisplayOf(c.library.shownTexts(nil, c.library.locate(c.entry(doc)), "", c.codes.supplements))
	}
	if len(display) == 0 {
		return c.Code(doc)
	}
	return display
}

// AppendOthers appends the other texts of an entry that are searched.
func (c *entryCorpus) AppendOthers(dst [][]byte, doc uint32) (others [][]byte, foreign int) {
	e := c.entry(doc)
	return c.languages.AppendSearched(dst, c.library.shownTexts(nil, c.library.locate(e), "", c.codes.supplements), c.language(e))
}

// language returns the language that an entry is shown in, if it can be; "" if any will do.
func (c *entryCorpus) language(e entry) string {
	if !e.isKnown() {
		return ""
	}
	return c.best[e.codeSystem]
}

// isForeign reports whether an entry is shown in another language than it should be.
func (c *entryCorpus) isForeign(doc uint32) bool {
	if !c.mixed {
		return false
	}
	c.onceShown.Do(c.findForeign)
	return c.foreign.Has(doc)
}

func (c *entryCorpus) findForeign() {
	c.foreign = bitset.New(c.Len())
	var texts []codesystem.Text
	for doc := range uint32(c.Len()) {
		e := c.entry(doc)
		language := c.language(e)
		if !e.isKnown() || !codesystem.MayBeForeign(c.library.codeSystems[e.codeSystem].concepts, language) {
			continue
		}
		texts = c.library.shownTexts(texts[:0], c.library.locate(e), "", c.codes.supplements)
		if shown := c.languages.Preferred(texts); shown >= 0 && c.languages.Foreign(&texts[shown], language) {
			c.foreign.Add(doc)
		}
	}
}

// Rank returns the rank of an entry's concept in its code system, or, where that is unknown, in the expansion; by the
// value set's own weight, if it has one.
func (c *entryCorpus) Rank(doc uint32) uint32 {
	e := c.entry(doc)
	if !e.isKnown() || c.library.codeSystems[e.codeSystem].concepts.Search == nil {
		c.once.Do(func() { c.ranks = textindex.Ranks(entryTerms{c}) })
		return c.ranks[doc]
	}
	rank := c.library.codeSystems[e.codeSystem].concepts.Search.SearchRank(e.concept)
	if weight, ok := (listing{c.library, c.codes}).weight(e); ok {
		rank = textindex.Weighed(rank, weight)
	}
	if c.isForeign(doc) {
		rank = textindex.Foreign(rank)
	}
	return rank
}

// Language returns the language of the first entry whose code system is known.
func (c *entryCorpus) Language() string {
	for doc := range uint32(c.Len()) {
		if e := c.entry(doc); e.isKnown() {
			return cmp.Or(c.language(e), c.library.codeSystems[e.codeSystem].concepts.Language())
		}
	}
	return c.languages.First()
}

// entryTerms are the entries of an expansion, to be ranked without what their code systems know.
type entryTerms struct{ *entryCorpus }

// Parent implements [textindex.Terms], as do the methods below.
func (entryTerms) Parent(uint32) (uint32, bool) { return 0, false }
func (entryTerms) Abstract(uint32) bool         { return false }
func (entryTerms) Inactive(uint32) bool         { return false }

func (t entryTerms) Weight(doc uint32) float64 {
	weight, _ := listing{t.library, t.codes}.weight(t.entry(doc))
	return weight
}
