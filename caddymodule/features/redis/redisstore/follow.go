package redisstore

import (
	"context"
	"errors"
	"log/slog"
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
