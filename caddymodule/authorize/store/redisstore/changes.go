package redisstore

import (
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// streamName is the stream of changes of followed kinds, and heartbeatName what a follower
// changes to see that the server takes changes.
const (
	streamName    = "changes"
	heartbeatName = "heartbeat"
)

// changes are read from the stream. Step.lua writes k: the key; and, if it was not deleted, v:
// the value, and e: when it expires, in Unix ms of the server's clock.
func (c *clock) changes(messages []redis.XMessage) ([]store.Change, error) {
	changes := make([]store.Change, 0, len(messages))
	ahead := c.ahead()
	for _, m := range messages {
		key, ok := m.Values["k"].(string)
		if !ok {
			return nil, fmt.Errorf("the change %s has no key", m.ID)
		}
		change := store.Change{Key: key}
		if value, stored := m.Values["v"].(string); stored {
			text, _ := m.Values["e"].(string)
			expiry, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				return nil, fmt.Errorf("the change %s: %w", m.ID, err)
			}
			change.Value, change.Expires = []byte(value), time.UnixMilli(expiry).Add(-ahead)
		}
		changes = append(changes, change)
	}
	return changes, nil
}

// latest keeps, of all changes of a key, the last, and of these what there is now.
func latest(changes []store.Change) []store.Change {
	last := make(map[string]int, len(changes))
	for i, c := range changes {
		last[c.Key] = i
	}
	now := time.Now()
	kept := changes[:0]
	for i, c := range changes {
		if last[c.Key] == i && c.Value != nil && c.Expires.After(now) {
			kept = append(kept, c)
		}
	}
	return kept
}
