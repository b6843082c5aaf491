package replica

import (
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// mirror holds all entries of some kinds, unless there are too many. Times are in nanoseconds
// since the replica was made.
type mirror struct {
	entries map[string]entry
	max     int // entries
	whole   bool
	missing int64 // until then, there may be entries for which there was no room
}

type entry struct {
	value   string
	expires int64
}

// get returns an entry. It is not known whether there is one, if some are missing.
func (m *mirror) get(key string, now int64) (e entry, found, known bool) {
	e, found = m.entries[key]
	if found && now < e.expires {
		return e, true, m.whole
	}
	return entry{}, false, m.whole && now >= m.missing
}

// reset empties the mirror, before all entries are put.
func (m *mirror) reset(n int) {
	m.entries, m.missing, m.whole = make(map[string]entry, min(n, m.max)), 0, true
}

// put makes a change. Without room for an entry, it remembers that one is missing.
func (m *mirror) put(c store.Change, made time.Time, now int64) {
	expires := int64(c.Expires.Sub(made))
	if c.Value == nil || expires <= now {
		delete(m.entries, c.Key)
		return
	}
	m.sweep(sweptPerChange, now)
	if _, found := m.entries[c.Key]; !found && len(m.entries) >= m.max {
		m.missing = max(m.missing, expires)
		return
	}
	m.entries[c.Key] = entry{string(c.Value), expires}
}

// Entries that are looked at for whether they have expired. In the long run, fewer than one in
// sweptPerChange has.
const (
	sweptPerChange = 8
	sweptPerUpdate = 256
)

// sweep looks at n entries, any, and removes those that have expired.
func (m *mirror) sweep(n int, now int64) {
	for key, e := range m.entries {
		if n--; n < 0 {
			return
		}
		if e.expires <= now {
			delete(m.entries, key)
		}
	}
}
