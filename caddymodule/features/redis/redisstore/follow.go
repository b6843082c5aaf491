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
	// maxReadWait is the maximum time to wait for changes. Together with the heartbeat, it ensures that the reported time is at
	// most one second old, less than the shortest allowed lag.
	maxReadWait = time.Second / 2

	// readBatchSize is the maximum number of changes per read.
	readBatchSize = 1000

	// heartbeatInterval is the interval at which a follower checks that the server still accepts changes.
	heartbeatInterval = time.Second / 2
)

// Subscribe implements [store.SharedStore]. The stream contains the changes of two days, so older entries are not reported
// initially. Subscribe returns an error if [Store.Check] does.
func (s *Store) Subscribe(ctx context.Context, report func(store.Update)) error {
	if err := s.Check(ctx); err != nil {
		return err
	}
	f := &follower{connection: s.connection, executor: s.executor, clock: s.clock, stream: s.names.internalKey(streamName, announcedTag), lastID: "0-0"}
	heartbeatAt, err := f.ensureHeartbeat(ctx)
	if err != nil {
		return err
	}
	all, err := f.readBacklog(ctx)
	if err != nil {
		return err
	}
	report(store.Update{IsComplete: true, Changes: compactChanges(all), QueriedAt: heartbeatAt})
	for {
		if heartbeatAt, err = f.ensureHeartbeat(ctx); err != nil {
			return err
		}
		changes, err := f.readChanges(ctx)
		if err != nil {
			return err
		}
		report(store.Update{Changes: changes, QueriedAt: heartbeatAt})
	}
}

// A follower reads the stream.
type follower struct {
	connection    *connection
	executor      *executor
	clock         *clock
	stream        string    // name of the stream
	lastID        string    // ID of the latest change that was read
	heartbeatAt   time.Time // start of the latest heartbeat
	warnedInvalid bool      // whether an invalid stream entry has been logged
}

// ensureHeartbeat makes a change unless the last one is recent. It returns the start time of the latest change; the stream
// contains all changes before that time. A server that was isolated and replaced has an outdated stream; it may reject the
// change (min-replicas-to-write) or get no confirmation (wait_replicas).
func (f *follower) ensureHeartbeat(ctx context.Context) (time.Time, error) {
	started := time.Now()
	if started.Sub(f.heartbeatAt) < heartbeatInterval {
		return f.heartbeatAt, nil
	}
	if err := f.executor.heartbeat(ctx); err != nil {
		return started, err
	}
	f.heartbeatAt = started
	return started, nil
}

func (f *follower) readBacklog(ctx context.Context) (all []store.Change, err error) {
	for {
		var messages []redis.XMessage
		if err := f.connection.call(ctx, func(ctx context.Context) (err error) {
			messages, err = f.connection.client.XRangeN(ctx, f.stream, "("+f.lastID, "+", readBatchSize).Result()
			return err
		}); err != nil {
			return nil, err
		}
		if all = append(all, f.process(messages)...); len(messages) < readBatchSize {
			return all, nil
		}
	}
}

// readChanges waits for changes and returns them. There may be none.
func (f *follower) readChanges(ctx context.Context) ([]store.Change, error) {
	readCtx, cancel := context.WithTimeoutCause(ctx, maxReadWait+f.connection.timeout, errTimeout)
	defer cancel()
	args := &redis.XReadArgs{Streams: []string{f.stream, f.lastID}, Count: readBatchSize, Block: maxReadWait}
	streams, err := f.connection.client.XRead(readCtx, args).Result()
	if errors.Is(err, redis.Nil) {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, f.connection.handleError(readCtx, err)
	}
	var messages []redis.XMessage
	for _, stream := range streams {
		messages = append(messages, stream.Messages...)
	}
	return f.process(messages), nil
}

// process returns the changes in the messages and stores the position in the stream. It logs only the first invalid entry.
func (f *follower) process(messages []redis.XMessage) []store.Change {
	if len(messages) > 0 {
		f.lastID = messages[len(messages)-1].ID
	}
	changes, invalid := f.clock.parseChanges(messages)
	if invalid != nil && !f.warnedInvalid {
		f.warnedInvalid = true
		slog.Warn("invalid entry in the Redis change stream skipped", "stream", f.stream, "error", invalid)
	}
	return changes
}

// streamName is the stream of changes of announced kinds. heartbeatName is the key to which followers write, to check that the
// server accepts changes.
const (
	streamName    = "changes"
	heartbeatName = "heartbeat"
)

// parseChanges parses entries of the stream. step.lua writes the field k, the key. If the key was not deleted, it also writes
// v, the value, and e, the expiry in Unix ms by the server's clock.
//
// Entries written by other programs are skipped and reported as an error.
func (c *clock) parseChanges(messages []redis.XMessage) (changes []store.Change, invalid error) {
	offset := c.offset()
	for _, m := range messages {
		change, err := parseChange(m, offset)
		if err != nil {
			invalid = errors.Join(invalid, fmt.Errorf("%s: %w", m.ID, err))
			continue
		}
		changes = append(changes, change)
	}
	return changes, invalid
}

var errNoKey = errors.New("no key")

func parseChange(m redis.XMessage, offset time.Duration) (change store.Change, err error) {
	key, ok := m.Values["k"].(string)
	if !ok {
		return change, errNoKey
	}
	change.Key = key
	value, exists := m.Values["v"].(string)
	if !exists {
		return change, nil
	}
	text, _ := m.Values["e"].(string)
	expiry, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return change, fmt.Errorf("parsing the expiry of a change: %w", err)
	}
	change.Value, change.ExpiresAt = []byte(value), time.UnixMilli(expiry).Add(-offset)
	return change, nil
}

// compactChanges returns the last change of each key, except for entries that no longer exist.
func compactChanges(changes []store.Change) []store.Change {
	last := make(map[string]int, len(changes))
	for i, c := range changes {
		last[c.Key] = i
	}
	now := time.Now()
	live := changes[:0]
	for i, c := range changes {
		if last[c.Key] == i && c.Value != nil && c.ExpiresAt.After(now) {
			live = append(live, c)
		}
	}
	return live
}

// clock is the server's clock, estimated from its responses.
type clock struct{ sample atomic.Pointer[clockSample] }

// A clockSample is a response with the server's time.
type clockSample struct {
	offset    time.Duration // offset from the local clock
	roundTrip time.Duration // round trip time; the error of the offset is at most half of it
	takenAt   time.Time
}

// addSample adds a sample. A sample is ignored if its response took much longer than the current sample's, because it is less
// accurate, unless the current sample is old.
func (c *clock) addSample(serverTime, sent time.Time) {
	now := time.Now()
	roundTrip := now.Sub(sent)
	last := c.sample.Load()
	if last != nil && roundTrip > last.roundTrip+now.Sub(last.takenAt)/100 {
		return
	}
	c.sample.Store(&clockSample{offset: serverTime.Sub(sent.Add(roundTrip / 2)), roundTrip: roundTrip, takenAt: now})
}

// offset returns the offset of the server's clock from the local clock.
func (c *clock) offset() time.Duration {
	if s := c.sample.Load(); s != nil {
		return s.offset
	}
	return 0
}
