// Package storecopy copies the entries of an unused store to another unused store, with their remaining lifetimes.
//
// The entries are copied in batches, so memory is bounded.
package storecopy

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/copyguard"
)

// Options are the options of [Run].
type Options struct {
	// Source identifies the source, so that an interrupted copy is completed only from the same store. Required.
	Source string

	// Merge allows a target with entries. Its entries take precedence, except lists of a person's sessions, grants and
	// apps, which are joined. Default: the target must be empty or have an interrupted copy.
	Merge bool

	// Force copies even if gateways seem to use the source or the target. Default: [copyguard.ErrRunning].
	Force bool

	// Batch is the number of entries per step at the target. Default: [DefaultBatch]. Larger batches are faster for a
	// store that syncs to disk after each step.
	Batch int

	// Progress is called after each batch. Default: none.
	Progress func(Counts)
}

// Counts are numbers of entries. Entries that the source reports twice count twice.
type Counts struct {
	Read    int // entries read from the source
	Copied  int // entries copied to the target
	Kept    int // entries of the target that differ from the source
	Removed int // leftovers of an interrupted copy that the source no longer has
	Proved  int // compared after copying
}

// Errors of [Run], in addition to errors of the stores.
var (
	ErrNotEmpty = errors.New("the target is not empty")
	ErrOther    = errors.New("the target has an interrupted copy of another store")
	ErrSame     = errors.New("source and target are the same store")
	ErrChanged  = errors.New("a store has changed meanwhile")
)

// Run copies all entries. Another Run with the same options completes an interrupted copy: it copies all entries
// again, because the source may have changed since. The target must not have been used.
func Run(ctx context.Context, from, to store.Copyable, o Options) (Counts, error) {
	c := &copying{from: from, to: to, Options: o}
	c.Batch = cmp.Or(c.Batch, DefaultBatch)
	if c.Progress == nil {
		c.Progress = func(Counts) {}
	}
	return c.counts, c.run(ctx)
}

type copying struct {
	from, to store.Copyable
	counts   Counts
	Options
}

func (c *copying) run(ctx context.Context) error {
	if err := c.checkUnused(ctx); err != nil {
		return err
	}
	resumed, err := c.begin(ctx)
	if err != nil {
		return err
	}
	if err := c.copy(ctx); err != nil {
		return fmt.Errorf("copying: %w", err)
	}
	if resumed && !c.Merge {
		if err := c.remove(ctx); err != nil {
			return fmt.Errorf("removing what an interrupted copy left: %w", err)
		}
	}
	if err := c.prove(ctx); err != nil {
		return fmt.Errorf("comparing: %w", err)
	}
	return c.to.Delete(ctx, copyguard.Incomplete)
}

// checkUnused checks that no gateway uses either store.
func (c *copying) checkUnused(ctx context.Context) error {
	if c.Force {
		return nil
	}
	if err := copyguard.CheckRunning(ctx, c.from); err != nil {
		return fmt.Errorf("the source: %w", err)
	}
	if err := copyguard.CheckRunning(ctx, c.to); err != nil {
		return fmt.Errorf("the target: %w", err)
	}
	return nil
}

func (c *copying) copy(ctx context.Context) error {
	return eachBatch(ctx, c.from, c.Batch, func(b batch) error {
		copied, kept, err := c.put(ctx, b)
		c.counts.Read += len(b)
		c.counts.Copied += copied
		c.counts.Kept += kept
		c.Progress(c.counts)
		return err
	})
}

// put stores entries in the target. For a merge, it adds missing entries and joins lists. After an error with unknown
// effect, it reads the target again.
func (c *copying) put(ctx context.Context, b batch) (copied, kept int, err error) {
	if !c.Merge {
		_, err = b.do(ctx, c.to, store.Put)
		return len(b), 0, err
	}
	for range attempts {
		var there []*store.Call
		if there, err = b.find(ctx, c.to); err != nil {
			return 0, 0, err
		}
		var missing, joined batch
		if missing, joined, kept, err = b.merge(there); err == nil {
			_, err = missing.do(ctx, c.to, store.Add)
		}
		if err == nil {
			_, err = joined.do(ctx, c.to, store.Swap)
		}
		if !store.IsConflict(err) {
			return len(missing) + len(joined), kept, err
		}
	}
	return 0, kept, err
}

// maxRemoved is the maximum number of keys in memory for removal.
const maxRemoved = 10_000

var errEnough = errors.New("enough for now")

// remove deletes the entries of the target that the source lacks.
func (c *copying) remove(ctx context.Context) error {
	for {
		extra, err := c.extra(ctx)
		if err != nil && !errors.Is(err, errEnough) {
			return err
		}
		for some := range slices.Chunk(extra, DefaultBatch) {
			if _, err := some.do(ctx, c.to, store.Delete); err != nil {
				return err
			}
			c.counts.Removed += len(some)
		}
		if err == nil {
			return nil
		}
	}
}

// extra returns the entries that only the target has, or some of them and errEnough. It ignores the issuer mark,
// which a gateway sets at its start.
func (c *copying) extra(ctx context.Context) (found batch, err error) {
	err = eachBatch(ctx, c.to, DefaultBatch, func(b batch) error {
		there, err := b.find(ctx, c.from)
		if err != nil {
			return err
		}
		for i, e := range b {
			if there[i].Value == nil && !e.isEnding() && e.key != store.IssuerKey {
				found = append(found, entry{key: e.key})
			}
		}
		if len(found) > maxRemoved {
			return errEnough
		}
		return nil
	})
	return found, err
}

// prove checks that the target has all entries of the source and, unless merged, no others.
func (c *copying) prove(ctx context.Context) error {
	lost := 0
	err := eachBatch(ctx, c.from, DefaultBatch, func(b batch) error {
		there, err := b.find(ctx, c.to)
		if err != nil {
			return err
		}
		for i, e := range b {
			found := there[i].Value
			if lacks := found == nil && !e.isEnding(); lacks || found != nil && !c.Merge && string(found) != string(e.value) {
				lost++
			}
		}
		c.counts.Proved += len(b)
		c.Progress(c.counts)
		return nil
	})
	if err != nil {
		return err
	}
	if lost > 0 {
		return fmt.Errorf("%w: %d entries of the source are not in the target, or have other values", ErrChanged, lost)
	}
	if c.Merge {
		return nil
	}
	extra, err := c.extra(ctx)
	if len(extra) > 0 {
		return fmt.Errorf("%w: the target has %d entries or more that the source has not", ErrChanged, len(extra))
	}
	return err
}

const (
	// DefaultBatch is the default number of entries per step: large enough to amortize the cost of a step, small
	// enough for short steps between those of others.
	DefaultBatch = 200

	// entrySize limits the size of a batch: in bytes of values, per entry. The last value may exceed the limit.
	entrySize = 1280

	// ending is the remaining lifetime below which an entry may be missing when it is checked.
	ending = 10 * time.Second
)

type entry struct {
	key   string
	value []byte
	ends  time.Time
	old   []byte // value to replace in a [store.Swap]
}

func (e entry) isEnding() bool { return time.Until(e.ends) < ending }

// A batch contains each key once.
type batch []entry

// eachBatch passes the entries in batches of up to most, without the marks of copyguard.
func eachBatch(ctx context.Context, s store.Copyable, most int, pass func(batch) error) error {
	var b batch
	size, at := 0, map[string]int{}
	err := s.Entries(ctx, func(key string, value []byte, ttl time.Duration) error {
		if copyguard.Is(key) || ttl <= 0 {
			return nil
		}
		e := entry{key: key, value: bytes.Clone(value), ends: time.Now().Add(ttl)} // the value may be the store's own memory
		if i, again := at[key]; again {
			b[i] = e
			return nil
		}
		at[key], b = len(b), append(b, e)
		if size += len(value); len(b) < most && size < most*entrySize {
			return nil
		}
		full := b
		b, size = nil, 0
		clear(at)
		return pass(full)
	})
	if err != nil || len(b) == 0 {
		return err
	}
	return pass(b)
}

// find returns the values of the entries' keys in a store, in their order.
func (b batch) find(ctx context.Context, s store.Store) ([]*store.Call, error) {
	return b.do(ctx, s, store.Get)
}

const (
	attempts = 5 // attempts at a step while the store does not respond
	pause    = time.Second
)

// do executes a call for each entry in one step. It retries after a pause if the store does not respond.
func (b batch) do(ctx context.Context, s store.Store, op store.Op) (calls []*store.Call, err error) {
	if len(b) == 0 {
		return nil, nil
	}
	for try := range attempts {
		if try > 0 {
			if err := wait(ctx); err != nil {
				return nil, err
			}
		}
		calls = make([]*store.Call, len(b))
		for i, e := range b {
			calls[i] = &store.Call{Op: op, Key: e.key, Old: e.old, Value: e.value, TTL: max(time.Until(e.ends), time.Millisecond)}
		}
		if err = s.Do(ctx, calls...); !errors.Is(err, store.ErrUnavailable) {
			break
		}
	}
	return calls, err
}

func wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(pause):
		return nil
	}
}

// joins are the kinds of index entries that list a person's sessions and grants. A merge joins the lists of both stores: otherwise,
// revoking a person's access would miss those listed only in the source.
var joins = map[string]func(there, more []byte) ([]byte, error){
	"sessions": joinItems, "upstream-sessions": joinItems, "families": joinItems, "consents": joinItems, "apps": joinApps,
}

// joinedLifetime is the lifetime of joined lists, longer than those of both originals.
const joinedLifetime = 400 * 24 * time.Hour

// merge compares entries with those of the target. It returns missing entries, joined lists, and the number of other
// entries that differ.
func (b batch) merge(found []*store.Call) (missing, joined batch, kept int, err error) {
	for i, e := range b {
		there, join := found[i].Value, joins[store.KindOf(e.key)]
		switch {
		case there == nil:
			missing = append(missing, e)
		case bytes.Equal(there, e.value):
		case join == nil:
			kept++
		default:
			value, err := join(there, e.value)
			if err != nil {
				return nil, nil, 0, fmt.Errorf("joining %s with that of the target: %w", e.key, err)
			}
			if !bytes.Equal(value, there) {
				joined = append(joined, entry{e.key, value, time.Now().Add(joinedLifetime), there})
			}
		}
	}
	return missing, joined, kept, nil
}

// joinItems joins two [store.RecentList]s. Duplicate items are allowed.
func joinItems(there, more []byte) ([]byte, error) {
	if bytes.Contains(there, more) { // already joined
		return there, nil
	}
	return append(bytes.Clone(more), there...), nil
}

// joinApps adds the clients that a person's list lacks.
func joinApps(there, more []byte) ([]byte, error) {
	type app map[string]json.RawMessage
	var apps, others []app
	if err := json.Unmarshal(there, &apps); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(more, &others); err != nil {
		return nil, err
	}
	known, before := map[string]bool{}, len(apps)
	for _, a := range apps {
		known[string(a["client_id"])] = true
	}
	for _, a := range others {
		if !known[string(a["client_id"])] {
			apps = append(apps, a)
		}
	}
	if len(apps) == before {
		return there, nil
	}
	return json.Marshal(apps)
}

// probeKey is the key of an entry that is written to the target and must not appear in the source.
const probeKey = copyguard.CopyKind + ":probe"

// markLifetime is how long an interrupted copy can be completed.
const markLifetime = 30 * 24 * time.Hour

// A mark identifies a copy in progress.
type mark struct {
	Source string `json:"source"`
	Merge  bool   `json:"merge,omitempty"` // into a store with entries
}

// begin checks and marks the target. resumed reports whether it has an interrupted copy.
func (c *copying) begin(ctx context.Context) (resumed bool, err error) {
	if err := c.checkOther(ctx); err != nil {
		return false, err
	}
	m, err := c.find(ctx)
	switch {
	case err != nil:
		return false, err
	case m != nil && m.Merge != c.Merge:
		return false, fmt.Errorf("%w: a copy was interrupted that was begun the other way, with or without merging", ErrNotEmpty)
	case m != nil && m.Source != c.Source:
		return false, ErrOther
	case m == nil && !c.Merge:
		err = c.checkEmpty(ctx)
	}
	if err != nil {
		return false, err
	}
	text, err := json.Marshal(mark{c.Source, c.Merge})
	if err != nil {
		return false, err
	}
	return m != nil, c.to.Put(ctx, copyguard.Incomplete, text, markLifetime)
}

// checkOther checks that source and target are not the same store.
func (c *copying) checkOther(ctx context.Context) error {
	probe := []byte(rand.Text())
	if err := c.to.Put(ctx, probeKey, probe, time.Minute); err != nil {
		return err
	}
	found, err := c.from.Get(ctx, probeKey)
	if errors.Is(err, store.ErrNotFound) {
		err = nil
	}
	if err == nil && string(found) == string(probe) {
		err = ErrSame
	}
	return errors.Join(err, c.to.Delete(ctx, probeKey))
}

// find returns the mark of an interrupted copy, or nil.
func (c *copying) find(ctx context.Context) (*mark, error) {
	text, err := c.to.Get(ctx, copyguard.Incomplete)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	m := new(mark)
	if err == nil {
		err = json.Unmarshal(text, m)
	}
	return m, err
}

var errSome = errors.New("there is an entry")

// checkEmpty checks that the target is empty, except for the issuer mark, which a gateway sets at its start.
func (c *copying) checkEmpty(ctx context.Context) error {
	err := eachBatch(ctx, c.to, DefaultBatch, func(b batch) error {
		if len(b) == 1 && b[0].key == store.IssuerKey {
			return nil
		}
		return errSome
	})
	if errors.Is(err, errSome) {
		return ErrNotEmpty
	}
	return err
}
