package redisstore

import (
	"cmp"
	"context"
	"crypto/rand"
	_ "embed" // step.lua
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// Store is a [store.Shared] in Redis.
type Store struct {
	store.CallRunner

	connection *connection
	names      names
	clock      *clock
	steps      *stepper
	room       *room
}

// New returns a store with the given options. It connects on first use.
func New(o Options) *Store {
	c := o.connection()
	n := names{cmp.Or(o.KeyPrefix, defaultKeyPrefix), len(o.Cluster) > 0, set(o.SubscribedKinds)}
	clock := new(clock)
	s := &Store{
		connection: c, names: n, clock: clock, room: &room{connection: c, max: int64(o.MaxEntries)},
		steps: &stepper{connection: c, names: n, clock: clock, replicas: o.WaitReplicas, unbounded: set(o.Unbounded)},
	}
	s.CallRunner = s.Do
	return s
}

func set(kinds []string) map[string]bool {
	s := make(map[string]bool, len(kinds))
	for _, kind := range kinds {
		s[kind] = true
	}
	return s
}

// Close closes all connections. Later calls fail.
func (s *Store) Close() error { return s.connection.close() }

// Pool returns statistics of the connections.
func (s *Store) Pool() *redis.PoolStats { return s.connection.client.PoolStats() }

// Check checks whether the server can keep state. It returns [ErrUnsuitable] with a remedy if the server must not be used as it is:
// wrong password, older than 6.2, a replica, or a policy that evicts entries when memory is full. It returns an error that lists
// the user's missing rights, and [store.ErrUnavailable] if the server does not respond.
func (s *Store) Check(ctx context.Context) error {
	err := s.connection.check(ctx)
	if err == nil || isRight(err) {
		return cmp.Or(s.lacks(ctx), err)
	}
	return err
}

// Count returns the number of keys in the database, including those of other programs.
func (s *Store) Count(ctx context.Context) (entries int, err error) { return s.room.count(ctx) }

// Size returns the number of keys at the last count, and the limit; 0 if only memory limits it.
func (s *Store) Size() (entries, bound int) { return int(s.room.entries.Load()), int(s.room.max) }

// Now implements [store.Shared].
func (s *Store) Now() time.Time { return time.Now().Add(s.clock.ahead()) }

// Do implements [store.Store]. In a cluster, each run of calls of one slot is an atomic step.
// The steps are made in order until one fails.
func (s *Store) Do(ctx context.Context, calls ...*store.Call) error {
	if len(calls) == 0 {
		return ctx.Err()
	}
	if err := s.room.check(ctx, s.steps.needRoom(calls), calls); err != nil {
		return err
	}
	return s.steps.step(ctx, calls)
}

var (
	_ store.Shared   = (*Store)(nil)
	_ store.Exporter = (*Store)(nil)
)

//go:embed step.lua
var stepLua string

const (
	// callArguments is the number of script arguments per call.
	callArguments = 5

	// stepMemory is the retention of a step's record, in multiples of the timeout. A
	// step may be sent again until then.
	stepMemory = 10

	// changeMemory is the retention of a change in the stream: longer than the
	// revocation of the longest-lived token.
	changeMemory = 49 * time.Hour
)

// A stepper executes calls as steps.
type stepper struct {
	connection *connection
	names      names
	clock      *clock
	replicas   int             // number of confirming replicas
	unbounded  map[string]bool // kinds that a full server stores
}

// step executes the runs of calls of the same slot, in order.
func (s *stepper) step(ctx context.Context, calls []*store.Call) error {
	ctx, cancel := s.connection.bound(ctx)
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

// part executes calls of one slot. With confirming replicas, reads use the script, too: the
// replicas must also confirm that an entry is missing.
func (s *stepper) part(ctx context.Context, calls []*store.Call) error {
	changes := slices.ContainsFunc(calls, func(c *store.Call) bool { return c.Op != store.Get })
	if changes || s.replicas > 0 {
		return s.change(ctx, calls)
	}
	return s.read(ctx, calls)
}

func (s *stepper) read(ctx context.Context, calls []*store.Call) error {
	keys := make([]string, len(calls))
	for i, c := range calls {
		keys[i] = s.names.entry(c.Key)
	}
	records, err := s.connection.client.MGet(ctx, keys...).Result()
	if err != nil {
		return s.connection.failed(ctx, err)
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

// change executes calls with the script.
func (s *stepper) change(ctx context.Context, calls []*store.Call) error {
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

// beat makes a change that no gateway reads, and queries the Sentinels.
func (s *stepper) beat(ctx context.Context) error {
	ctx, cancel := s.connection.bound(ctx)
	defer cancel()
	s.connection.verify()
	keys := []string{s.names.own(newStepID(), followedTag), s.names.own(heartbeatName, followedTag)}
	put := []any{store.Put.String(), "", "", milliseconds(time.Minute), ""}
	_, _, err := s.invoke(ctx, keys, append(s.head(0), put...), 1)
	return err
}

// head returns the first arguments of the script: the retention of steps and of changes, and
// the number of calls that need room.
func (s *stepper) head(room int) []any {
	return []any{milliseconds(stepMemory * s.connection.timeout), milliseconds(changeMemory), room}
}

// refusal is the error of a failed call.
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

// needRoom counts the calls that a full server may reject. A Swap replaces an entry.
func (s *stepper) needRoom(calls []*store.Call) (n int) {
	for _, c := range calls {
		if c.Stores() && c.Op != store.Swap && !s.unbounded[store.KindOf(c.Key)] {
			n++
		}
	}
	return n
}

// milliseconds rounds up: Redis rejects a lifetime of zero.
func milliseconds(d time.Duration) int64 {
	return max(1, int64((d+time.Millisecond-1)/time.Millisecond))
}

// newStepID returns a new name for a step. The prefix distinguishes it from other names.
func newStepID() string {
	id := make([]byte, 12)
	rand.Read(id) // never fails
	return "step:" + base64.RawURLEncoding.EncodeToString(id)
}

var script = redis.NewScript(stepLua)

// invoke runs the script for a number of calls. It returns the number of the failed call, from
// 1, otherwise the value found by each call.
func (s *stepper) invoke(ctx context.Context, keys []string, args []any, calls int) (failed int, found []any, err error) {
	sent := time.Now()
	reply, err := s.run(ctx, keys, args)
	if err != nil {
		return 0, nil, s.connection.failed(ctx, err)
	}
	h, err := readHeader(reply, calls)
	if err != nil {
		return 0, nil, err
	}
	s.clock.hear(h.server, sent)
	return h.failed, reply[headerLength:], nil
}

// run runs the script and waits for replicas if it wrote something.
func (s *stepper) run(ctx context.Context, keys []string, args []any) ([]any, error) {
	if s.replicas > 0 {
		return s.runReplicated(ctx, keys, args)
	}
	reply, err := script.EvalSha(ctx, s.connection.client, keys, args...).Slice()
	if redis.HasErrorPrefix(err, "NOSCRIPT") { // the server has restarted
		reply, err = script.Eval(ctx, s.connection.client, keys, args...).Slice()
	}
	return reply, err
}

// errTooFewReplicas is the error of a change that would be lost with its server.
var errTooFewReplicas = errors.New("too few replicas have the change")

// runReplicated sends WAIT after the script on the same connection, because WAIT covers
// only the changes of its connection.
func (s *stepper) runReplicated(ctx context.Context, keys []string, args []any) (reply []any, err error) {
	for range retries {
		var master *redis.Client
		if master, err = s.connection.master(ctx, keys[0]); err != nil {
			return nil, err
		}
		pipe := master.Pipeline()
		ran := script.EvalSha(ctx, pipe, keys, args...)
		waited := pipe.Do(ctx, "WAIT", s.replicas, milliseconds(s.connection.timeout/4)) // shorter than the client's timeout
		_, err = pipe.Exec(ctx)
		switch {
		case redis.HasErrorPrefix(ran.Err(), "NOSCRIPT"):
			err = script.Load(ctx, master).Err()
		case redis.HasErrorPrefix(ran.Err(), "MOVED"), redis.HasErrorPrefix(ran.Err(), "ASK"):
			s.connection.client.(*redis.ClusterClient).ReloadState(ctx)
		case err != nil:
			return nil, err
		default:
			return ran.Val().([]any), s.enough(waited, ran.Val().([]any))
		}
	}
	return nil, errors.Join(err, errTooFewReplicas)
}

// enough checks that enough replicas have the change.
func (s *stepper) enough(waited *redis.Cmd, reply []any) error {
	n, err := waited.Int()
	if err != nil || n >= s.replicas {
		return err
	}
	if len(reply) >= headerLength && reply[headerLength-1] == int64(0) { // nothing was written
		return nil
	}
	return fmt.Errorf("%w: %d of %d after %v", errTooFewReplicas, n, s.replicas, s.connection.timeout/4)
}

// A header is the beginning of the script's response.
type header struct {
	failed int       // number of the failed call, from 1; 0 if none
	server time.Time // time by the server's clock
}

// headerLength is the number of elements of the header. The last one is nonzero if
// something was written.
const headerLength = 4

func readHeader(reply []any, calls int) (h header, err error) {
	if len(reply) < headerLength {
		return h, fmt.Errorf("the script answered %d elements", len(reply))
	}
	var numbers [headerLength]int64
	for i := range numbers {
		n, ok := reply[i].(int64)
		if !ok {
			return h, fmt.Errorf("the script answered %T", reply[i])
		}
		numbers[i] = n
	}
	h = header{int(numbers[0]), time.Unix(numbers[1], numbers[2]*1000)}
	if h.failed < 0 || h.failed > calls || h.failed == 0 && len(reply) != headerLength+calls {
		return h, fmt.Errorf("the script answered %d elements, and that call %d of %d failed", len(reply), h.failed, calls)
	}
	return h, nil
}

// names builds the names of keys in Redis. All begin with the prefix. In a cluster, a hash tag in braces follows: keys with the
// same tag share a slot, and one script can change only keys of one slot.
type names struct {
	prefix   string
	cluster  bool
	followed map[string]bool // kinds of keys that are announced when they change
}

// followedTag is the tag of all followed kinds and of their stream.
const followedTag = "followed"

// tag returns the hash tag of a key: for unfollowed kinds, the identifier of its grant or
// session, from the last colon to the first dot after it. Without a cluster, it is empty.
func (n names) tag(key string) string {
	switch {
	case !n.cluster:
		return ""
	case n.follows(key):
		return followedTag
	}
	id := key[strings.LastIndexByte(key, ':')+1:]
	id, _, _ = strings.Cut(id, ".")
	return braces.Replace(id)
}

var braces = strings.NewReplacer("{", "", "}", "")

// follows reports whether changes of a key are announced.
func (n names) follows(key string) bool { return n.followed[store.KindOf(key)] }

func (n names) entry(key string) string { return n.start(n.tag(key)) + key }

// own returns the name of a key that is not an entry. It begins with an exclamation mark,
// which no kind of key begins with.
func (n names) own(name, tag string) string { return n.start(tag) + "!" + name }

func (n names) start(tag string) string {
	if !n.cluster {
		return n.prefix
	}
	return n.prefix + "{" + tag + "}"
}

// key returns the key of an entry from its name, or false if the name is not of an entry.
func (n names) key(name string) (string, bool) {
	key, ours := strings.CutPrefix(name, n.prefix)
	if ours && n.cluster {
		_, key, ours = strings.Cut(key, "}")
	}
	return key, ours && !strings.HasPrefix(key, "!")
}

// pattern returns the SCAN pattern for keys with a prefix.
func (n names) pattern(prefix string) string {
	tag := ""
	if n.cluster {
		tag = "{*}"
	}
	return glob.Replace(n.prefix) + tag + glob.Replace(prefix) + "*"
}

var glob = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`)

// recordVersion is the first byte of an entry, written by step.lua; the value follows. A
// gateway also reads the previous version, so that gateways can be upgraded one at a time.
const recordVersion = 1

var errNewer = errors.New("the entry was written by a newer version of caddy-fhir")

// valueOf removes the version byte of a stored entry.
func valueOf(record string) ([]byte, error) {
	if record == "" || record[0] != recordVersion {
		return nil, fmt.Errorf("%w: %.1q", errNewer, record)
	}
	return []byte(record[1:]), nil
}
