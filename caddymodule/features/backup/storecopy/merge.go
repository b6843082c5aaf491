package storecopy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// joins are the kinds of index entries that list the sessions and grants of a person. A merge joins the lists of both stores: otherwise,
// revoking a person would leave what only the source's list names.
var joins = map[string]func(there, more []byte) ([]byte, error){
	"sessions": joinItems, "upstream-sessions": joinItems, "families": joinItems, "consents": joinItems, "apps": joinApps,
}

// joinedLifetime is that of a joined list, at least as long as the lifetimes of both.
const joinedLifetime = 400 * 24 * time.Hour

// merge compares entries with what was found in the target. It returns those that the target lacks, lists that are to be
// replaced by joined ones, and how many others have another value.
func (b batch) merge(found []*store.Call) (missing, joined batch, kept int, err error) {
	for i, e := range b {
		there, join := found[i].Value, joins[store.KindOf(e.key)]
		switch {
		case there == nil:
			missing = append(missing, e)
		case bytes.Equal(there, e.value):
		case join == nil:
			kept++
		default:
			value, err := join(there, e.value)
			if err != nil {
				return nil, nil, 0, fmt.Errorf("joining %s with that of the target: %w", e.key, err)
			}
			if !bytes.Equal(value, there) {
				joined = append(joined, entry{e.key, value, time.Now().Add(joinedLifetime), there})
			}
		}
	}
	return missing, joined, kept, nil
}

// joinItems joins two [store.RecentList]s. Items may be in it twice.
func joinItems(there, more []byte) ([]byte, error) {
	if bytes.Contains(there, more) { // joined before
		return there, nil
	}
	return append(bytes.Clone(more), there...), nil
}

// joinApps adds the clients that a person's list lacks.
func joinApps(there, more []byte) ([]byte, error) {
	type app map[string]json.RawMessage
	var apps, others []app
	if err := json.Unmarshal(there, &apps); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(more, &others); err != nil {
		return nil, err
	}
	known, before := map[string]bool{}, len(apps)
	for _, a := range apps {
		known[string(a["client_id"])] = true
	}
	for _, a := range others {
		if !known[string(a["client_id"])] {
			apps = append(apps, a)
		}
	}
	if len(apps) == before {
		return there, nil
	}
	return json.Marshal(apps)
}
