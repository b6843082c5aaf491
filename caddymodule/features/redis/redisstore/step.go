package redisstore

import (
	"context"
	"crypto/rand"
	_ "embed" // step.lua
	"encoding/base64"
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
	changeMemory = 49 * time.Hour
)

// A stepper makes steps of calls.
type stepper struct {
	runner    *runner
	names     names
	unbounded map[string]bool // kinds that a full server takes
}

// step makes calls of one slot after the other's, in order.
func (s *stepper) step(ctx context.Context, calls []*store.Call) error {
	ctx, cancel := s.runner.connection.bound(ctx)
	defer cancel()
	for len(calls) > 0 {
		n := 1
		for n < len(calls) && s.names.tag(calls[n].Key) == s.names.tag(calls[0].Key) {
			n++
		}
		if err := s.part(ctx, calls[:n]); err != nil {
			return err
		}
		calls = calls[n:]
	}
	return nil
}

// part makes calls of one slot. Where replicas count, the script reads as well: that there is
// nothing has to be confirmed by them.
func (s *stepper) part(ctx context.Context, calls []*store.Call) error {
	changes := slices.ContainsFunc(calls, func(c *store.Call) bool { return c.Op != store.Get })
	if changes || s.runner.replicas > 0 {
		return s.change(ctx, calls)
	}
	return s.read(ctx, calls)
}

// read makes calls of Get.
func (s *stepper) read(ctx context.Context, calls []*store.Call) error {
	keys := make([]string, len(calls))
	for i, c := range calls {
		keys[i] = s.names.entry(c.Key)
	}
	records, err := s.runner.connection.client.MGet(ctx, keys...).Result()
	if err != nil {
		return s.runner.connection.failed(ctx, err)
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

// change makes calls by the script.
func (s *stepper) change(ctx context.Context, calls []*store.Call) error {
	keys, args := s.request(calls)
	failed, found, err := s.runner.invoke(ctx, keys, args, len(calls))
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

// beat makes a change that nobody reads, and has the Sentinels asked.
func (s *stepper) beat(ctx context.Context) error {
	ctx, cancel := s.runner.connection.bound(ctx)
	defer cancel()
	s.runner.connection.verify()
	keys := []string{s.names.own(newStepID(), followedTag), s.names.own(heartbeatName, followedTag)}
	put := []any{store.Put.String(), "", "", milliseconds(time.Minute), ""}
	_, _, err := s.runner.invoke(ctx, keys, append(s.head(0), put...), 1)
	return err
}

// head is the first arguments of the script: how long it keeps what, and how many calls need
// room.
func (s *stepper) head(room int) []any {
	return []any{milliseconds(stepMemory * s.runner.connection.timeout), milliseconds(changeMemory), room}
}

// refusal is why a call fails.
var refusal = map[store.Op]error{
	store.Add: store.ErrExists, store.Swap: store.ErrChanged, store.Take: store.ErrNotFound, store.Append: store.ErrTooLong,
}

// request returns the script's keys and arguments.
func (s *stepper) request(calls []*store.Call) (keys []string, args []any) {
	tag := s.names.tag(calls[0].Key)
	args = slices.Grow(s.head(s.needRoom(calls)), len(calls)*callArguments)
	keys = append(make([]string, 0, 2+len(calls)), s.names.own(newStepID(), tag))
	announced := false
	for _, c := range calls {
		keys = append(keys, s.names.entry(c.Key))
		var condition any = c.Old
		if c.Op == store.Append {
			condition = c.Max
		}
		followed := ""
		if s.names.follows(c.Key) {
			followed, announced = c.Key, true
		}
		args = append(args, c.Op.String(), c.Value, condition, milliseconds(c.TTL), followed)
	}
	if announced {
		keys = append(keys, s.names.own(streamName, tag))
	}
	return keys, args
}

// needRoom counts the calls that a full server may refuse. A Swap replaces what is there.
func (s *stepper) needRoom(calls []*store.Call) (n int) {
	for _, c := range calls {
		if c.Stores() && c.Op != store.Swap && !s.unbounded[store.KindOf(c.Key)] {
			n++
		}
	}
	return n
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
