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

// Store is a [store.SharedStore] in Redis.
type Store struct {
	store.CallRunner

	connection *connection
	names      keyNames
	clock      *clock
	executor   *executor
	capacity   *capacity
}

// New returns a store with the given options. It connects on first use.
func New(o Options) *Store {
	c := o.newConnection()
	n := keyNames{cmp.Or(o.KeyPrefix, defaultKeyPrefix), len(o.Cluster) > 0, newSet(o.SubscribedKinds)}
	clock := new(clock)
	s := &Store{
		connection: c, names: n, clock: clock, capacity: &capacity{connection: c, max: int64(o.MaxEntries)},
		executor: &executor{connection: c, names: n, clock: clock, minReplicas: o.WaitReplicas, unboundedKinds: newSet(o.UnboundedKinds)},
	}
	s.CallRunner = s.Do
	return s
}

func newSet(kinds []string) map[string]bool {
	s := make(map[string]bool, len(kinds))
	for _, kind := range kinds {
		s[kind] = true
	}
	return s
}

// Close closes all connections. Later calls return errors.
func (s *Store) Close() error { return s.connection.close() }

// Pool returns statistics of the connections.
func (s *Store) Pool() *redis.PoolStats { return s.connection.client.PoolStats() }

// Check checks whether the server is suitable for storing state. It returns [ErrUnsuitable] with a remedy if the server must
// not be used as configured: wrong password, older than 6.2, a replica, or a policy that evicts entries when memory is full. If
// the user lacks rights, the error lists them. If the server does not respond, the error is [store.ErrUnavailable].
func (s *Store) Check(ctx context.Context) error {
	err := s.connection.check(ctx)
	if err == nil || isMissingRight(err) {
		return cmp.Or(s.missingRightsError(ctx), err)
	}
	return err
}

// Count returns the number of keys in the database, including those of other programs.
func (s *Store) Count(ctx context.Context) (entries int, err error) { return s.capacity.count(ctx) }

// Size returns the number of keys at the last count, and the maximum; 0 if only the server's memory limits the number.
func (s *Store) Size() (entries, limit int) {
	return int(s.capacity.entries.Load()), int(s.capacity.max)
}

// Now implements [store.SharedStore].
func (s *Store) Now() time.Time { return time.Now().Add(s.clock.offset()) }

// Do implements [store.Store]. In a cluster, each run of consecutive calls with the same slot is an atomic step. The steps are
// executed in order until one fails.
func (s *Store) Do(ctx context.Context, calls ...*store.Call) error {
	if len(calls) == 0 {
		return ctx.Err()
	}
	if err := s.capacity.check(ctx, s.executor.countBounded(calls), calls); err != nil {
		return err
	}
	return s.executor.execute(ctx, calls)
}

var (
	_ store.SharedStore = (*Store)(nil)
	_ store.Exporter    = (*Store)(nil)
)

//go:embed step.lua
var stepLua string

const (
	// callArguments is the number of script arguments per call.
	callArguments = 5

	// stepRetention is how long the record of a step is retained, in multiples of the timeout. Until then, the step may be sent
	// again.
	stepRetention = 10

	// changeRetention is how long a change is retained in the stream. It is longer than the lifetime of any revocation.
	changeRetention = 49 * time.Hour
)

// An executor executes calls as steps.
type executor struct {
	connection     *connection
	names          keyNames
	clock          *clock
	minReplicas    int             // number of replicas that must confirm a change
	unboundedKinds map[string]bool // kinds of keys that a full server still stores
}

// execute executes each run of consecutive calls with the same slot as one step, in order.
func (s *executor) execute(ctx context.Context, calls []*store.Call) error {
	ctx, cancel := s.connection.withTimeout(ctx)
	defer cancel()
	for len(calls) > 0 {
		n := 1
		for n < len(calls) && s.names.tag(calls[n].Key) == s.names.tag(calls[0].Key) {
			n++
		}
		if err := s.executeSlot(ctx, calls[:n]); err != nil {
			return err
		}
		calls = calls[n:]
	}
	return nil
}

// executeSlot executes calls with the same slot. If replicas must confirm changes, reads use the script too, because the
// replicas must also confirm that an entry is missing.
func (s *executor) executeSlot(ctx context.Context, calls []*store.Call) error {
	changes := slices.ContainsFunc(calls, func(c *store.Call) bool { return c.Op != store.Get })
	if changes || s.minReplicas > 0 {
		return s.executeScript(ctx, calls)
	}
	return s.readValues(ctx, calls)
}

func (s *executor) readValues(ctx context.Context, calls []*store.Call) error {
	keys := make([]string, len(calls))
	for i, c := range calls {
		keys[i] = s.names.entryKey(c.Key)
	}
	records, err := s.connection.client.MGet(ctx, keys...).Result()
	if err != nil {
		return s.connection.handleError(ctx, err)
	}
	for i, c := range calls {
		c.Value = nil
		if record, found := records[i].(string); found {
			if c.Value, c.Err = decodeRecord(record); c.Err != nil {
				return c.Err
			}
		}
	}
	return nil
}

// executeScript executes calls with the script.
func (s *executor) executeScript(ctx context.Context, calls []*store.Call) error {
	keys, args := s.scriptInput(calls)
	failed, found, err := s.invoke(ctx, keys, args, len(calls))
	if err != nil {
		return err
	}
	if failed > 0 {
		calls[failed-1].Err = callErrors[calls[failed-1].Op]
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

// heartbeat makes a change that no gateway reads, and queries the Sentinels for the current master.
func (s *executor) heartbeat(ctx context.Context) error {
	ctx, cancel := s.connection.withTimeout(ctx)
	defer cancel()
	s.connection.refreshMaster()
	keys := []string{s.names.internalKey(newStepID(), announcedTag), s.names.internalKey(heartbeatName, announcedTag)}
	put := []any{store.Put.String(), "", "", milliseconds(time.Minute), ""}
	_, _, err := s.invoke(ctx, keys, append(s.scriptPrefix(0), put...), 1)
	return err
}

// scriptPrefix returns the first arguments of the script: the retention of steps and of changes, and the number of calls that
// require capacity.
func (s *executor) scriptPrefix(needed int) []any {
	return []any{milliseconds(stepRetention * s.connection.timeout), milliseconds(changeRetention), needed}
}

// callErrors maps operations to the error of a failed call.
var callErrors = map[store.Op]error{
	store.Add: store.ErrExists, store.Swap: store.ErrChanged, store.Take: store.ErrNotFound, store.Append: store.ErrTooLong,
}

// scriptInput returns the script's keys and arguments.
func (s *executor) scriptInput(calls []*store.Call) (keys []string, args []any) {
	tag := s.names.tag(calls[0].Key)
	args = slices.Grow(s.scriptPrefix(s.countBounded(calls)), len(calls)*callArguments)
	keys = append(make([]string, 0, 2+len(calls)), s.names.internalKey(newStepID(), tag))
	announced := false
	for _, c := range calls {
		keys = append(keys, s.names.entryKey(c.Key))
		var condition any = c.Old
		if c.Op == store.Append {
			condition = c.Max
		}
		announcedKey := ""
		if s.names.isAnnounced(c.Key) {
			announcedKey, announced = c.Key, true
		}
		args = append(args, c.Op.String(), c.Value, condition, milliseconds(c.TTL), announcedKey)
	}
	if announced {
		keys = append(keys, s.names.internalKey(streamName, tag))
	}
	return keys, args
}

// countBounded returns the number of calls that a full server may reject. It omits Swap calls, which replace an entry.
func (s *executor) countBounded(calls []*store.Call) (n int) {
	for _, c := range calls {
		if c.StoresValue() && c.Op != store.Swap && !s.unboundedKinds[store.KindOf(c.Key)] {
			n++
		}
	}
	return n
}

// milliseconds converts a lifetime to milliseconds, rounded up because Redis rejects a lifetime of zero.
func milliseconds(d time.Duration) int64 {
	return max(1, int64((d+time.Millisecond-1)/time.Millisecond))
}

// newStepID returns a random ID for a step. Its prefix distinguishes it from other names.
func newStepID() string {
	id := make([]byte, 12)
	rand.Read(id) // never fails
	return "step:" + base64.RawURLEncoding.EncodeToString(id)
}

var script = redis.NewScript(stepLua)

// invoke runs the script for a number of calls. If a call fails, it returns the number of that call, counted from 1; otherwise
// it returns the value found by each call.
func (s *executor) invoke(ctx context.Context, keys []string, args []any, calls int) (failed int, found []any, err error) {
	sent := time.Now()
	reply, err := s.runScript(ctx, keys, args)
	if err != nil {
		return 0, nil, s.connection.handleError(ctx, err)
	}
	h, err := readHeader(reply, calls)
	if err != nil {
		return 0, nil, err
	}
	s.clock.addSample(h.serverTime, sent)
	return h.failedCall, reply[headerLength:], nil
}

// runScript runs the script. If the script wrote anything, it waits until replicas have confirmed the change.
func (s *executor) runScript(ctx context.Context, keys []string, args []any) ([]any, error) {
	if s.minReplicas > 0 {
		return s.runReplicated(ctx, keys, args)
	}
	reply, err := script.EvalSha(ctx, s.connection.client, keys, args...).Slice()
	if redis.HasErrorPrefix(err, "NOSCRIPT") { // the server has restarted and lost the script
		reply, err = script.Eval(ctx, s.connection.client, keys, args...).Slice()
	}
	return reply, err
}

// errTooFewReplicas is returned for a change that would be lost if its server fails.
var errTooFewReplicas = errors.New("too few replicas confirmed the change")

// runReplicated sends the script and WAIT on the same connection, because WAIT covers only changes from its connection.
func (s *executor) runReplicated(ctx context.Context, keys []string, args []any) (reply []any, err error) {
	for range maxRetries {
		var master *redis.Client
		if master, err = s.connection.master(ctx, keys[0]); err != nil {
			return nil, err
		}
		pipe := master.Pipeline()
		ran := script.EvalSha(ctx, pipe, keys, args...)
		waitReply := pipe.Do(ctx, "WAIT", s.minReplicas, milliseconds(s.connection.timeout/4)) // shorter than the client's timeout
		_, err = pipe.Exec(ctx)
		switch {
		case redis.HasErrorPrefix(ran.Err(), "NOSCRIPT"):
			err = script.Load(ctx, master).Err()
		case redis.HasErrorPrefix(ran.Err(), "MOVED"), redis.HasErrorPrefix(ran.Err(), "ASK"):
			s.connection.client.(*redis.ClusterClient).ReloadState(ctx)
		case err != nil:
			return nil, err
		default:
			return ran.Val().([]any), s.checkReplicas(waitReply, ran.Val().([]any))
		}
	}
	return nil, errors.Join(err, errTooFewReplicas)
}

// checkReplicas returns an error unless enough replicas have confirmed the change.
func (s *executor) checkReplicas(waitReply *redis.Cmd, reply []any) error {
	n, err := waitReply.Int()
	if err != nil || n >= s.minReplicas {
		return err
	}
	if len(reply) >= headerLength && reply[headerLength-1] == int64(0) { // nothing was written
		return nil
	}
	return fmt.Errorf("%w: %d of %d within %v", errTooFewReplicas, n, s.minReplicas, s.connection.timeout/4)
}

// A replyHeader is the beginning of the script's response.
type replyHeader struct {
	failedCall int       // number of the failed call, from 1; 0 if none
	serverTime time.Time // time by the server's clock
}

// headerLength is the number of elements of the header. The last element is nonzero if the script wrote anything.
const headerLength = 4

func readHeader(reply []any, calls int) (h replyHeader, err error) {
	if len(reply) < headerLength {
		return h, fmt.Errorf("unexpected script reply: only %d elements", len(reply))
	}
	var numbers [headerLength]int64
	for i := range numbers {
		n, ok := reply[i].(int64)
		if !ok {
			return h, fmt.Errorf("unexpected script reply: %T instead of an integer", reply[i])
		}
		numbers[i] = n
	}
	h = replyHeader{int(numbers[0]), time.Unix(numbers[1], numbers[2]*1000)}
	if h.failedCall < 0 || h.failedCall > calls || h.failedCall == 0 && len(reply) != headerLength+calls {
		return h, fmt.Errorf("unexpected script reply: %d elements, with call %d of %d as failed", len(reply), h.failedCall, calls)
	}
	return h, nil
}

// keyNames builds the names of keys in Redis. All names begin with the prefix. In a cluster, a hash tag in braces follows: keys
// with the same tag share a slot, and a script can change only keys in one slot.
type keyNames struct {
	prefix         string
	cluster        bool
	announcedKinds map[string]bool // kinds of keys that are announced when they change
}

// announcedTag is the hash tag of all announced kinds and their stream.
const announcedTag = "followed"

// tag returns the hash tag of a key. For kinds that are not announced, this is the identifier of the grant or session, from the
// last colon to the first dot after it. Without a cluster, the tag is empty.
func (n keyNames) tag(key string) string {
	switch {
	case !n.cluster:
		return ""
	case n.isAnnounced(key):
		return announcedTag
	}
	id := key[strings.LastIndexByte(key, ':')+1:]
	id, _, _ = strings.Cut(id, ".")
	return braceRemover.Replace(id)
}

var braceRemover = strings.NewReplacer("{", "", "}", "")

// isAnnounced reports whether changes of a key are announced.
func (n keyNames) isAnnounced(key string) bool { return n.announcedKinds[store.KindOf(key)] }

func (n keyNames) entryKey(key string) string { return n.keyPrefix(n.tag(key)) + key }

// internalKey returns the name of a key that is not an entry. It begins with an exclamation mark, with which no kind of key
// begins.
func (n keyNames) internalKey(name, tag string) string { return n.keyPrefix(tag) + "!" + name }

func (n keyNames) keyPrefix(tag string) string {
	if !n.cluster {
		return n.prefix
	}
	return n.prefix + "{" + tag + "}"
}

// parseKey returns the key of an entry from its name in Redis. It returns false if the name is not that of an entry.
func (n keyNames) parseKey(name string) (string, bool) {
	key, isEntry := strings.CutPrefix(name, n.prefix)
	if isEntry && n.cluster {
		_, key, isEntry = strings.Cut(key, "}")
	}
	return key, isEntry && !strings.HasPrefix(key, "!")
}

// pattern returns the SCAN pattern for keys with the given prefix.
func (n keyNames) pattern(prefix string) string {
	tag := ""
	if n.cluster {
		tag = "{*}"
	}
	return globEscaper.Replace(n.prefix) + tag + globEscaper.Replace(prefix) + "*"
}

var globEscaper = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`)

// recordVersion is the first byte of a stored entry, written by step.lua; the value follows. Gateways can also read the
// previous version, so that they can be upgraded one at a time.
const recordVersion = 1

var errNewerVersion = errors.New("the entry was written by a newer version of caddy-fhir")

// decodeRecord removes the version byte of a stored entry.
func decodeRecord(record string) ([]byte, error) {
	if record == "" || record[0] != recordVersion {
		return nil, fmt.Errorf("%w: %.1q", errNewerVersion, record)
	}
	return []byte(record[1:]), nil
}
