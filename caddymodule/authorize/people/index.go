package people

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// indexEntry is what a term leads to. It lasts as long as the accounts are kept.
type indexEntry struct {
	Taken []taking  `json:"taken"` // in their order
	Full  bool      `json:"full,omitempty"`
	Until time.Time `json:"until"`
}

// taking is an account that came by a name. It may have another by now.
type taking struct {
	ID    string    `json:"id"`
	Since time.Time `json:"since"`
}

// maxTakings bounds an entry. Whoever looks for a name that more accounts came by searches all of them.
const maxTakings = 20

// A subject is no name, and names belong to an issuer: what one provider says of its people hides
// nobody of another, nor anybody whose subject is called like that. No issuer has a NUL.
func subjectKey(issuer, subject string) string {
	return store.Key("person", "subject\x00"+issuer+"\x00"+subject)
}

func nameKey(issuer, name string) string {
	return store.Key("person", "name\x00"+issuer+"\x00"+lowered(name))
}

// isName reports whether somebody can be found by a text.
func isName(text string) bool { return text != "" && !strings.ContainsFunc(text, unicode.IsControl) }

// indexing returns the calls that add an account to entries, given what is stored there, and the keys of those that
// the account was in before. They last until the end of a day, so that most sign-ins change none.
func indexing(now time.Time, id string, until time.Time, keys []string, stored [][]byte, before []string) (calls []*store.Call, err error) {
	until = until.Add(24 * time.Hour).Truncate(24 * time.Hour)
	for i, key := range keys {
		entry, err := store.FromJSON[indexEntry](stored[i])
		if errors.Is(err, store.ErrNewer) {
			continue
		}
		entry = cmp.Or(entry, new(indexEntry)) // also in place of one that cannot be read
		if !entry.take(id, now, slices.Contains(before, key)) && !entry.Until.Before(until) {
			continue
		}
		if entry.Until.Before(until) {
			entry.Until = until
		}
		value, err := store.ToJSON(entry)
		if err != nil {
			return nil, err
		}
		calls = append(calls, store.Replacing(key, stored[i], value, entry.Until.Sub(now)))
	}
	return calls, nil
}

// take notes that an account has a name, which it may have had before, and reports whether that changed the entry. The
// first time counts, and the last.
func (e *indexEntry) take(id string, now time.Time, had bool) bool {
	is := func(t taking) bool { return t.ID == id }
	first := slices.IndexFunc(e.Taken, is)
	switch {
	case first >= 0 && had || first < 0 && e.Full:
		return false
	case first < 0 && len(e.Taken) >= maxTakings:
		e.Full = true
		return true
	}
	if first >= 0 { // again
		rest := slices.DeleteFunc(slices.Clone(e.Taken[first+1:]), is)
		if e.Taken = append(e.Taken[:first+1], rest...); len(e.Taken) >= maxTakings {
			e.Full = true
			return true
		}
	}
	e.Taken = append(e.Taken, taking{id, now})
	return true
}
