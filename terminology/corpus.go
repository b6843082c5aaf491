package terminology

import (
	"context"
	"log/slog"
	"runtime/debug"

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
	library     *Library
	entries     []entry
	rows        []uint32 // the index in entries of each document
	languages   codesystem.Languages
	supplements []supplement
}

// Len returns the number of entries.
func (c *entryCorpus) Len() int { return len(c.rows) }

func (c *entryCorpus) entry(doc uint32) entry { return c.entries[c.rows[doc]] }

// Code returns an entry's code.
func (c *entryCorpus) Code(doc uint32) []byte { return c.library.code(c.entry(doc)) }

// Display returns an entry's display in the languages, or else its code.
func (c *entryCorpus) Display(doc uint32) []byte {
	display := c.library.display(c.entry(doc))
	if !c.languages.None() {
		display = c.languages.DisplayOf(c.library.shownTexts(nil, c.entry(doc), "", c.supplements))
	}
	if len(display) == 0 {
		return c.Code(doc)
	}
	return display
}

// AppendOthers appends the other texts of an entry that are searched.
func (c *entryCorpus) AppendOthers(dst [][]byte, doc uint32) [][]byte {
	return c.languages.AppendSearched(dst, c.library.shownTexts(nil, c.entry(doc), "", c.supplements))
}

// Inactive reports whether an entry's concept is inactive.
func (c *entryCorpus) Inactive(doc uint32) bool {
	return c.library.flags(c.entry(doc))&codesystem.FlagInactive != 0
}
