package redisstore

import (
	"errors"
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
//
// What is no change was written by another program. It is left out, and reported by an error.
func (c *clock) changes(messages []redis.XMessage) (changes []store.Change, foreign error) {
	ahead := c.ahead()
	for _, m := range messages {
		change, err := changeOf(m, ahead)
		if err != nil {
			foreign = errors.Join(foreign, fmt.Errorf("%s: %w", m.ID, err))
			continue
		}
		changes = append(changes, change)
	}
	return changes, foreign
}

var errNoKey = errors.New("no key")

func changeOf(m redis.XMessage, ahead time.Duration) (change store.Change, err error) {
	key, ok := m.Values["k"].(string)
	if !ok {
		return change, errNoKey
	}
	change.Key = key
	value, stored := m.Values["v"].(string)
	if !stored {
		return change, nil
	}
	text, _ := m.Values["e"].(string)
	expiry, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return change, fmt.Errorf("expiry: %w", err)
	}
	change.Value, change.Expires = []byte(value), time.UnixMilli(expiry).Add(-ahead)
	return change, nil
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
