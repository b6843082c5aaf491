package enforce

import (
	"context"
	"slices"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// position is how far the pages of a search have come: a place for each branch.
type position struct {
	Places []place `json:"p"`
}

// place is how far a branch has come.
type place struct {
	// Path and Query are the page on the FHIR server. Both empty: its first one.
	Path  string `json:"u,omitempty"`
	Query string `json:"q,omitempty"`
	// Taken are the matches of the page that earlier pages of ours had.
	Taken int `json:"t,omitempty"`
	// Done says that there are no more.
	Done bool `json:"d,omitempty"`
}

// isFirst reports whether the branch is on its first page.
func (p place) isFirst() bool { return !p.Done && p.Path == "" && p.Query == "" }

// start is the position before the first page.
func (s *search) start() position {
	at := position{Places: make([]place, len(s.branches))}
	for i := range at.Places {
		at.Places[i].Done = s.nothing
	}
	return at
}

func (p position) isStart() bool {
	return p.isEnd() || !slices.ContainsFunc(p.Places, func(at place) bool { return at.Path+at.Query != "" || at.Taken > 0 || at.Done })
}

func (p position) isEnd() bool {
	return !slices.ContainsFunc(p.Places, func(at place) bool { return !at.Done })
}

// merge makes pages of the branches' pages: one branch after the other, or in the order that the client asked for.
type merge struct {
	s       *search
	sources []source
	fetched int
	dropped int // matches that may not be seen, or that an earlier branch has found
	told    int // the FHIR server's total, of one branch; -1 if it tells none
	matches []entry
	others  []entry // the other entries of the pages that were read
	held    []*heldResponse
	lists   [][]entry                      // of entries, that are given back
	seen    map[interaction.Reference]bool // that are on the page, if there are several branches
}

// source is a branch as far as it is read.
type source struct {
	at      place
	next    place
	loaded  bool
	used    bool   // some of its matches are on our page
	head    *entry // the next match that may be seen
	matches []entry
	others  []entry
}

// merged continues a search at a position.
func (s *search) merged(at position) (*merge, error) {
	if len(at.Places) != len(s.branches) {
		return nil, notFound()
	}
	m := &merge{s: s, sources: make([]source, len(s.branches)), told: -1}
	for i := range m.sources {
		m.sources[i].at = at.Places[i]
	}
	return m, nil
}

// fill takes matches for a page of a size. Without a size a page is as long as the FHIR server's.
func (m *merge) fill(ctx context.Context, size int) error {
	m.matches = newEntries()
	for size == 0 || len(m.matches) < size {
		from, err := m.least(ctx)
		if err != nil {
			return err
		}
		if from == nil {
			break
		}
		m.matches = append(m.matches, *from.head)
		from.head, from.used = nil, true
		from.at.Taken++
	}
	return m.settle(ctx)
}

// least is the source whose head is next. None: all are at their ends, or enough was asked of the FHIR server.
func (m *merge) least(ctx context.Context) (*source, error) {
	var first *source
	for i := range m.sources {
		from := &m.sources[i]
		if ok, err := m.load(ctx, i); err != nil || !ok {
			return nil, err
		}
		switch {
		case from.head == nil:
		case len(m.s.order) == 0:
			return from, nil
		case first == nil || m.s.less(from.head, first.head):
			first = from
		}
	}
	return first, nil
}

// load finds the head of a source, unless it is at its end. It reports whether it could: not if too much was asked for
// one page, nor at the end of a page whose length the FHIR server decides.
func (m *merge) load(ctx context.Context, n int) (bool, error) {
	from := &m.sources[n]
	for from.head == nil && !from.at.Done {
		if !from.loaded {
			if m.isEnough() {
				return false, nil
			}
			if err := m.fetch(ctx, n); err != nil {
				return false, err
			}
		}
		if err := m.advance(ctx, n); err != nil {
			return false, err
		}
	}
	return true, nil
}

// isEnough reports whether no more is asked of the FHIR server for this page.
func (m *merge) isEnough() bool {
	if m.fetched >= maxFetches+len(m.sources) {
		return true
	}
	return m.s.pageSize() == 0 && m.fetched > 0 && len(m.matches) > 0
}

// fetch loads the page of a source.
func (m *merge) fetch(ctx context.Context, n int) error {
	from := &m.sources[n]
	got, held, err := m.s.fetch(ctx, n, from.at)
	m.held = append(m.held, held)
	if err != nil {
		return err
	}
	m.lists = append(m.lists, got.entries)
	m.fetched++
	m.told = got.total
	from.next = place{Done: true}
	if next := got.links.to("next"); next != "" {
		if from.next, err = m.s.place(next, got.links.to("self"), n, from.at); err != nil {
			return err
		}
	}
	from.loaded = true
	from.matches, from.others = got.parted(m.s.judged)
	return nil
}

// release gives back what the pages arrived in, of which all entries are parts, and the entries.
func (m *merge) release() {
	for _, list := range append(m.lists, m.matches) {
		giveBackEntries(list)
	}
	for _, held := range m.held {
		held.release()
	}
}

// parted are the matches of a Bundle and its other entries. What the FHIR server has to say about a search may be about
// any resource, so it is left out of what is judged.
func (b *bundle) parted(judged bool) (matches, others []entry) {
	isOther := func(e entry) bool { return e.mode == "include" || e.mode == "outcome" }
	if !slices.ContainsFunc(b.entries, isOther) {
		return b.entries, nil
	}
	for _, e := range b.entries {
		switch {
		case !isOther(e):
			matches = append(matches, e)
		case e.mode == "include" || !judged:
			others = append(others, e)
		}
	}
	return matches, others
}

// advance finds the next match of a loaded page, or goes on to the next page.
func (m *merge) advance(ctx context.Context, n int) error {
	from := &m.sources[n]
	for ; from.at.Taken < len(from.matches); from.at.Taken++ {
		e := &from.matches[from.at.Taken]
		ok, err := !m.s.judged, error(nil)
		if m.s.judged {
			ok, err = m.keeps(ctx, e, n)
		}
		if err != nil {
			return err
		}
		if ok {
			from.head = e
			return nil
		}
		m.dropped++
	}
	m.others = append(m.others, from.along(m.s.judged)...)
	*from = source{at: from.next}
	return nil
}

// keeps reports whether a match is to be on a page, on which it is not yet.
func (m *merge) keeps(ctx context.Context, e *entry, n int) (bool, error) {
	if len(m.sources) == 1 {
		return m.s.keeps(ctx, e, n)
	}
	of := interaction.Reference{Type: e.parsed.Type, ID: e.parsed.ID}
	if m.seen[of] {
		return false, nil
	}
	ok, err := m.s.keeps(ctx, e, n)
	if ok && m.seen == nil {
		m.seen = map[interaction.Reference]bool{}
	}
	if ok {
		m.seen[of] = true
	}
	return ok, err
}

// along are the entries that come along with the matches that were taken from the loaded page.
func (from *source) along(judged bool) []entry {
	if judged && !from.used {
		return nil
	}
	return from.others
}

// settle goes over what may not be seen at the ends of pages, so that no page follows for it alone.
func (m *merge) settle(ctx context.Context) error {
	for n := range m.sources {
		if from := &m.sources[n]; from.loaded && from.head == nil {
			if err := m.advance(ctx, n); err != nil {
				return err
			}
		}
	}
	return nil
}

// position is the one behind what was taken.
func (m *merge) position() position {
	var to position
	for _, from := range m.sources {
		to.Places = append(to.Places, from.at)
	}
	return to
}
