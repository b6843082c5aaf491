package terminology

import (
	"context"
	"log/slog"
	"runtime/debug"
	"sync"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/offheap"
	"github.com/caddy-fhir/caddy-fhir/terminology/textindex"
)

// indexLarge builds the indexes of large code systems, so that no request waits for them. Others take milliseconds when
// they are first needed.
func (l *Library) indexLarge(ctx context.Context, log *slog.Logger) {
	built := false
	for _, cs := range l.codeSystems {
		if cs.Len() >= textindex.Large && ctx.Err() == nil {
			x := cs.SearchIndex("")
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
	library   *Library
	codes     *codeList
	rows      []uint32 // the index in codes.entries of each document
	languages codesystem.Languages

	once  sync.Once
	ranks []uint32 // of entries without what code systems know
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
		display = c.languages.DisplayOf(c.library.shownTexts(nil, c.entry(doc), "", c.codes.supplements))
	}
	if len(display) == 0 {
		return c.Code(doc)
	}
	return display
}

// AppendOthers appends the other texts of an entry that are searched.
func (c *entryCorpus) AppendOthers(dst [][]byte, doc uint32) [][]byte {
	return c.languages.AppendSearched(dst, c.library.shownTexts(nil, c.entry(doc), "", c.codes.supplements))
}

// Rank returns the rank of an entry's concept in its code system, or, where that is unknown, in the expansion; by the
// value set's own weight, if it has one.
func (c *entryCorpus) Rank(doc uint32) uint32 {
	e := c.entry(doc)
	if e.concept == none {
		c.once.Do(func() { c.ranks = textindex.Ranks(entryTerms{c}) })
		return c.ranks[doc]
	}
	rank := c.library.codeSystems[e.codeSystem].SearchRank(e.concept)
	if weight, ok := c.library.weight(c.codes, e); ok {
		return textindex.Weighed(rank, weight)
	}
	return rank
}

// Language returns the language of the first entry whose code system is known.
func (c *entryCorpus) Language() string {
	for doc := range uint32(c.Len()) {
		if e := c.entry(doc); e.concept != none {
			return c.library.codeSystems[e.codeSystem].SearchLanguage(&c.languages)
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
	weight, _ := t.library.weight(t.codes, t.entry(doc))
	return weight
}
