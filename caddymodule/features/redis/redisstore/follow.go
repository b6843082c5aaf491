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
	// listening is the maximum wait for changes. With the heartbeat, the reported time is at
	// most a second old, within the shortest allowed lag.
	listening = time.Second / 2

	// batch is the maximum number of changes per read.
	batch = 1000

	// heartbeat is the interval at which a follower checks that the server still accepts changes.
	heartbeat = time.Second / 2
)

// Subscribe implements [store.Shared]. The stream contains the changes of two days: older entries of
// a followed kind are not reported initially. It fails if [Store.Check] fails.
func (s *Store) Subscribe(ctx context.Context, tell func(store.Update)) error {
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
	tell(store.Update{IsComplete: true, Changes: latest(all), QueriedAt: heard})
	for {
		if heard, err = f.confirm(ctx); err != nil {
			return err
		}
		changes, err := f.listen(ctx)
		if err != nil {
			return err
		}
		tell(store.Update{Changes: changes, QueriedAt: heard})
	}
}

// A follower reads the stream.
type follower struct {
	connection *connection
	steps      *stepper
	clock      *clock
	stream     string    // name of the stream
	read       string    // identifier of the latest change read
	heard      time.Time // start of the latest heartbeat
	foreign    bool      // an invalid stream entry was logged
}

// confirm makes a change unless the last one is recent, and returns its start time: the stream
// contains all earlier changes. A server that was isolated and replaced may reject changes
// (min-replicas-to-write) or get no confirmation (wait_replicas), so its stream is outdated.
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

// listen waits for changes. It may return none.
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

// take records the position in the stream. It logs the first invalid entry.
func (f *follower) take(messages []redis.XMessage) []store.Change {
	if len(messages) > 0 {
		f.read = messages[len(messages)-1].ID
	}
	changes, foreign := f.clock.changes(messages)
	if foreign != nil && !f.foreign {
		f.foreign = true
		slog.Warn("invalid entry in the Redis change stream skipped", "stream", f.stream, "error", foreign)
	}
	return changes
}

// streamName is the stream of changes of followed kinds. heartbeatName is the key that
// followers write to check that the server accepts changes.
const (
	streamName    = "changes"
	heartbeatName = "heartbeat"
)

// changes parses entries of the stream. Step.lua writes k: the key; and, unless it was deleted, v:
// the value, and e: the expiry in Unix ms of the server's clock.
//
// Entries of other programs are skipped and reported as an error.
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

// latest keeps the last change of each key, and of these only the entries that still exist.
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

// clock is the server's clock, estimated from its responses.
type clock struct{ sample atomic.Pointer[sample] }

// A sample is a response with the server's time.
type sample struct {
	ahead time.Duration // offset from this process's clock
	took  time.Duration // round trip, which is twice the maximum error
	at    time.Time
}

// hear adds a sample. A response that took much longer than the current sample is less
// accurate and ignored, unless that sample is old.
func (c *clock) hear(server, sent time.Time) {
	now := time.Now()
	took := now.Sub(sent)
	last := c.sample.Load()
	if last != nil && took > last.took+now.Sub(last.at)/100 {
		return
	}
	c.sample.Store(&sample{ahead: server.Sub(sent.Add(took / 2)), took: took, at: now})
}

// ahead returns the offset of the server's clock from this process's.
func (c *clock) ahead() time.Duration {
	if s := c.sample.Load(); s != nil {
		return s.ahead
	}
	return 0
}
