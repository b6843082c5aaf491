package redisstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

const (
	// listening is how long a follower waits for changes before it asks again. What it says it
	// has heard is as old as that and a heartbeat: a second, within the shortest lag allowed.
	listening = time.Second / 2

	// batch is how many changes are read at once.
	batch = 1000

	// heartbeat is how often a follower makes sure that the server still takes changes.
	heartbeat = time.Second / 2
)

// Follow implements [store.Shared]. The stream holds the changes of two days: an older entry of a
// followed kind is not reported at first. A server that must not be used ([Store.Check]) is not
// followed.
func (s *Store) Follow(ctx context.Context, tell func(store.Update)) error {
	if err := s.Check(ctx); err != nil {
		return err
	}
	f := &follower{connection: s.connection, steps: s.steps, clock: s.clock, stream: s.names.own(streamName, followedTag), read: "0-0"}
	heard, err := f.confirm(ctx)
	if err != nil {
		return err
	}
	all, err := f.whole(ctx)
	if err != nil {
		return err
	}
	tell(store.Update{Whole: true, Changes: latest(all), Heard: heard})
	for {
		if heard, err = f.confirm(ctx); err != nil {
			return err
		}
		changes, err := f.listen(ctx)
		if err != nil {
			return err
		}
		tell(store.Update{Changes: changes, Heard: heard})
	}
}

// A follower reads the stream.
type follower struct {
	connection *connection
	steps      *stepper
	clock      *clock
	stream     string    // its name
	read       string    // identifier of the latest change that was read
	heard      time.Time // before the latest heartbeat
	foreign    bool      // something in the stream was no change, and is logged
}

// confirm makes a change, unless it did just now, and returns when it was begun: earlier
// changes are in the stream of the server that we listen to. One that has been cut off from its
// replicas, and replaced, may refuse changes (min-replicas-to-write) or not get them confirmed
// (wait_replicas): what it says is old.
func (f *follower) confirm(ctx context.Context) (time.Time, error) {
	began := time.Now()
	if began.Sub(f.heard) < heartbeat {
		return f.heard, nil
	}
	if err := f.steps.beat(ctx); err != nil {
		return began, err
	}
	f.heard = began
	return began, nil
}

// whole reads all changes.
func (f *follower) whole(ctx context.Context) (all []store.Change, err error) {
	for {
		var messages []redis.XMessage
		if err := f.connection.asked(ctx, func(ctx context.Context) (err error) {
			messages, err = f.connection.client.XRangeN(ctx, f.stream, "("+f.read, "+", batch).Result()
			return err
		}); err != nil {
			return nil, err
		}
		if all = append(all, f.take(messages)...); len(messages) < batch {
			return all, nil
		}
	}
}

// listen waits for changes. There may be none.
func (f *follower) listen(ctx context.Context) ([]store.Change, error) {
	bound, cancel := context.WithTimeoutCause(ctx, listening+f.connection.timeout, errTimeout)
	defer cancel()
	args := &redis.XReadArgs{Streams: []string{f.stream, f.read}, Count: batch, Block: listening}
	streams, err := f.connection.client.XRead(bound, args).Result()
	if errors.Is(err, redis.Nil) {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, f.connection.failed(bound, err)
	}
	var messages []redis.XMessage
	for _, stream := range streams {
		messages = append(messages, stream.Messages...)
	}
	return f.take(messages), nil
}

// take notes how far the stream has been read. It logs the first entry that is no change.
func (f *follower) take(messages []redis.XMessage) []store.Change {
	if len(messages) > 0 {
		f.read = messages[len(messages)-1].ID
	}
	changes, foreign := f.clock.changes(messages)
	if foreign != nil && !f.foreign {
		f.foreign = true
		slog.Warn("skipped what another program wrote to the stream of changes in Redis", "stream", f.stream, "error", foreign)
	}
	return changes
}

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

// clock is the server's clock, as its answers tell it.
type clock struct{ sample atomic.Pointer[sample] }

// A sample is an answer that had the time.
type sample struct {
	ahead time.Duration // of this process's clock
	took  time.Duration // how long the answer took, twice the greatest error
	at    time.Time
}

// hear takes the server's time from an answer to what was sent then. An answer that took much
// longer than the last says less, unless that is long ago.
func (c *clock) hear(server, sent time.Time) {
	now := time.Now()
	took := now.Sub(sent)
	last := c.sample.Load()
	if last != nil && took > last.took+now.Sub(last.at)/100 {
		return
	}
	c.sample.Store(&sample{ahead: server.Sub(sent.Add(took / 2)), took: took, at: now})
}

// ahead returns how far the server's clock is ahead of this process's.
func (c *clock) ahead() time.Duration {
	if s := c.sample.Load(); s != nil {
		return s.ahead
	}
	return 0
}
