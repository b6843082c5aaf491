package people

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// indexEntry is what a term leads to: accounts, the latest last, which may have other names by now. It lasts as long as
// they are kept.
type indexEntry struct {
	IDs   []string  `json:"ids"`
	Until time.Time `json:"until"`
}

// maxNamesakes is how many accounts one term leads to. Only user names and addresses can be those of several.
const maxNamesakes = 20

func indexKey(term string) string { return store.Key("person", term) }

func subjectTerm(issuer, subject string) string { return issuer + "\x00" + subject }

// indexing returns the calls that add an account to entries, given what is stored there. They last until the end of a
// day, so that most sign-ins change none.
func indexing(now time.Time, id string, until time.Time, keys []string, stored [][]byte) (calls []*store.Call, err error) {
	until = until.Add(24 * time.Hour).Truncate(24 * time.Hour)
	for i, key := range keys {
		entry, err := store.FromJSON[indexEntry](stored[i])
		if errors.Is(err, store.ErrNewer) {
			continue
		}
		entry = cmp.Or(entry, new(indexEntry)) // also in place of one that cannot be read
		if slices.Contains(entry.IDs, id) && !entry.Until.Before(until) {
			continue
		}
		entry.IDs = append(slices.DeleteFunc(entry.IDs, func(other string) bool { return other == id }), id)
		entry.IDs = entry.IDs[max(0, len(entry.IDs)-maxNamesakes):]
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
