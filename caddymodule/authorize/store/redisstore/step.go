package redisstore

import (
	"context"
	"crypto/rand"
	_ "embed" // step.lua
	"encoding/base64"
	"fmt"
	"slices"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

//go:embed step.lua
var stepLua string

const (
	// callArguments is how many arguments of the script a call takes.
	callArguments = 5

	// stepMemory is for how many times the longest call the record of a step is kept, in
	// which it may be sent again.
	stepMemory = 10

	// changeMemory is how long a change is in the stream: as long as a revocation of the
	// longest-lived token, and more.
	changeMemory = 25 * time.Hour
)

// Do implements [store.Store]. In a cluster, it is one atomic step for each run of calls of one
// slot, in order: after a run that fails, the rest are not made.
func (s *Store) Do(ctx context.Context, calls ...*store.Call) error {
	if len(calls) == 0 {
		return ctx.Err()
	}
	if err := s.checkRoom(ctx, calls); err != nil {
		return err
	}
	ctx, cancel := s.bound(ctx)
	defer cancel()
	for len(calls) > 0 {
		n := 1
		for n < len(calls) && s.tag(calls[n].Key) == s.tag(calls[0].Key) {
			n++
		}
		step := s.change
		if !slices.ContainsFunc(calls[:n], func(c *store.Call) bool { return c.Op != store.Get }) {
			step = s.read
		}
		if err := step(ctx, calls[:n]); err != nil {
			return err
		}
		calls = calls[n:]
	}
	return nil
}

// read makes calls of Get, of one slot. That there is nothing, replicas confirm: a master that was
// cut off does not know what its successor has. What there is, whoever uses it changes.
func (s *Store) read(ctx context.Context, calls []*store.Call) error {
	keys := make([]string, len(calls))
	for i, c := range calls {
		keys[i] = s.name(c.Key)
	}
	records, err := s.client.MGet(ctx, keys...).Result()
	if err != nil {
		return failure(ctx, err)
	}
	if s.replicas > 0 && slices.Contains(records, nil) {
		return s.change(ctx, calls)
	}
	for i, c := range calls {
		c.Value = nil
		if record, found := records[i].(string); found {
			if c.Value, c.Err = valueOf(record); c.Err != nil {
				return c.Err
			}
		}
	}
	return nil
}

// change makes calls of one slot.
func (s *Store) change(ctx context.Context, calls []*store.Call) error {
	keys, args := s.request(calls)
	failed, found, err := s.invoke(ctx, keys, args, len(calls))
	if err != nil {
		return err
	}
	if failed > 0 {
		calls[failed-1].Err = refusal[calls[failed-1].Op]
		return calls[failed-1].Err
	}
	for i, c := range calls {
		if c.Op != store.Get && c.Op != store.Take {
			continue
		}
		c.Value = nil
		if value, ok := found[i].(string); ok {
			c.Value = []byte(value)
		}
	}
	return nil
}

// invoke runs the script for a number of calls. It returns which of them failed, counting from
// one, or else what each found.
func (s *Store) invoke(ctx context.Context, keys []string, args []any, calls int) (failed int, found []any, err error) {
	sent := time.Now()
	reply, err := s.run(ctx, keys, args)
	if err != nil {
		return 0, nil, failure(ctx, err)
	}
	failed, server, err := header(reply, calls)
	if err != nil {
		return 0, nil, err
	}
	s.clock.hear(server, sent)
	return failed, reply[headerLength:], nil
}

// beat makes a change that nobody reads.
func (s *Store) beat(ctx context.Context) error {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	tag := s.names.tag("", true)
	keys := []string{s.names.own(newStepID(), tag), s.names.own(heartbeatName, tag)}
	put := []any{store.Put.String(), "", "", milliseconds(time.Minute), ""}
	_, _, err := s.invoke(ctx, keys, append(s.memories(), put...), 1)
	return err
}

// memories are the first arguments of the script: how long it keeps what, and whether WAIT
// follows.
func (s *Store) memories() []any {
	waits := 0
	if s.replicas > 0 {
		waits = 1
	}
	return []any{milliseconds(stepMemory * s.timeout), milliseconds(changeMemory), waits}
}

// refusal is why a call fails.
var refusal = map[store.Op]error{
	store.Add: store.ErrExists, store.Swap: store.ErrChanged, store.Take: store.ErrNotFound, store.Append: store.ErrTooLong,
}

// request returns the script's keys and arguments.
func (s *Store) request(calls []*store.Call) (keys []string, args []any) {
	tag := s.tag(calls[0].Key)
	args = slices.Grow(s.memories(), len(calls)*callArguments)
	keys = append(make([]string, 0, 2+len(calls)), s.names.own(newStepID(), tag))
	announced := false
	for _, c := range calls {
		keys = append(keys, s.names.entry(c.Key, tag))
		var condition any = c.Old
		if c.Op == store.Append {
			condition = c.Max
		}
		followed := ""
		if s.follows(c.Key) {
			followed, announced = c.Key, true
		}
		args = append(args, c.Op.String(), c.Value, condition, milliseconds(c.TTL), followed)
	}
	if announced {
		keys = append(keys, s.names.own(streamName, tag))
	}
	return keys, args
}

// milliseconds rounds up: Redis refuses a lifetime of zero.
func milliseconds(d time.Duration) int64 {
	return max(1, int64((d+time.Millisecond-1)/time.Millisecond))
}

// newStepID returns what names a step. Its prefix leaves room for other names.
func newStepID() string {
	id := make([]byte, 12)
	rand.Read(id) // never fails
	return "step:" + base64.RawURLEncoding.EncodeToString(id)
}

// headerLength is how many elements of the script's answer come before what was found.
const headerLength = 3

// header reads the beginning of the script's answer.
func header(reply []any, calls int) (failed int, server time.Time, err error) {
	if len(reply) < headerLength {
		return 0, server, fmt.Errorf("the script answered %d elements", len(reply))
	}
	var numbers [headerLength]int64
	for i := range numbers {
		n, ok := reply[i].(int64)
		if !ok {
			return 0, server, fmt.Errorf("the script answered %T", reply[i])
		}
		numbers[i] = n
	}
	failed = int(numbers[0])
	if failed < 0 || failed > calls || failed == 0 && len(reply) != headerLength+calls {
		return 0, server, fmt.Errorf("the script answered %d elements, and that call %d of %d failed", len(reply), failed, calls)
	}
	return failed, time.Unix(numbers[1], numbers[2]*1000), nil
}
