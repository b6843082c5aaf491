// Package storecopy copies the entries of one store to another, with their remaining lifetimes. Neither store may be in use.
//
// The entries are copied in batches, so that memory use is bounded.
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
	// Source identifies the source store. An interrupted copy can be completed only from the same source. Required.
	Source string

	// Merge allows a target that already contains entries. These take precedence, except that lists of a person's sessions,
	// grants and apps are joined. Default: the target must be empty or contain an interrupted copy.
	Merge bool

	// Force copies even if a gateway seems to be using the source or the target. Default: Run returns [copyguard.ErrRunning].
	Force bool

	// Batch is the number of entries per step at the target. Larger batches are faster if the store syncs to disk after each
	// step. Default: [DefaultBatch].
	Batch int

	// Progress is called after each batch. Optional.
	Progress func(Counts)
}

// Counts are numbers of entries. An entry that the source reports twice is counted twice.
type Counts struct {
	Read      int // entries read from the source
	Copied    int // entries copied to the target
	Conflicts int // entries with different values in source and target
	Removed   int // entries of an interrupted copy that the source no longer has
	Compared  int // entries compared after copying
}

// Errors of [Run], in addition to the errors of the stores.
var (
	ErrNotEmpty         = errors.New("the target is not empty")
	ErrOtherSource      = errors.New("the target contains an interrupted copy of another store")
	ErrSameStore        = errors.New("source and target are the same store")
	ErrConcurrentChange = errors.New("a store was changed during the copy")
)

// Run copies all entries. After an interruption, another Run with the same options completes the copy: it copies all entries
// again, because the source may have changed. The target must not have been used in between.
func Run(ctx context.Context, from, to store.CopyableStore, o Options) (Counts, error) {
	c := &copier{from: from, to: to, Options: o}
	c.Batch = cmp.Or(c.Batch, DefaultBatch)
	if c.Progress == nil {
		c.Progress = func(Counts) {}
	}
	return c.counts, c.run(ctx)
}

type copier struct {
	from, to store.CopyableStore
	counts   Counts
	Options
}

func (c *copier) run(ctx context.Context) error {
	if err := c.checkNotRunning(ctx); err != nil {
		return err
	}
	resumed, err := c.markTarget(ctx)
	if err != nil {
		return err
	}
	if err := c.copyEntries(ctx); err != nil {
		return fmt.Errorf("copying entries: %w", err)
	}
	if resumed && !c.Merge {
		if err := c.removeExtra(ctx); err != nil {
			return fmt.Errorf("removing entries left over from an interrupted copy: %w", err)
		}
	}
	if err := c.compare(ctx); err != nil {
		return fmt.Errorf("verifying the copy: %w", err)
	}
	return c.to.Delete(ctx, copyguard.IncompleteKey)
}

// checkNotRunning returns an error if a gateway uses either store.
func (c *copier) checkNotRunning(ctx context.Context) error {
	if c.Force {
		return nil
	}
	if err := copyguard.CheckNotRunning(ctx, c.from); err != nil {
		return fmt.Errorf("source store: %w", err)
	}
	if err := copyguard.CheckNotRunning(ctx, c.to); err != nil {
		return fmt.Errorf("target store: %w", err)
	}
	return nil
}

func (c *copier) copyEntries(ctx context.Context) error {
	return eachBatch(ctx, c.from, c.Batch, func(b batch) error {
		copied, conflicts, err := c.storeBatch(ctx, b)
		c.counts.Read += len(b)
		c.counts.Copied += copied
		c.counts.Conflicts += conflicts
		c.Progress(c.counts)
		return err
	})
}

// storeBatch stores entries in the target. In a merge, it adds missing entries and joins lists. If an error leaves it unclear
// whether a step took effect, it reads the target again.
func (c *copier) storeBatch(ctx context.Context, b batch) (copied, conflicts int, err error) {
	if !c.Merge {
		_, err = b.execute(ctx, c.to, store.Put)
		return len(b), 0, err
	}
	for range maxAttempts {
		var existing []*store.Call
		if existing, err = b.get(ctx, c.to); err != nil {
			return 0, 0, err
		}
		var missing, joined batch
		if missing, joined, conflicts, err = b.merge(existing); err == nil {
			_, err = missing.execute(ctx, c.to, store.Add)
		}
		if err == nil {
			_, err = joined.execute(ctx, c.to, store.Swap)
		}
		if !store.IsConflict(err) {
			return len(missing) + len(joined), conflicts, err
		}
	}
	return 0, conflicts, err
}

// maxRemovalKeys is the maximum number of keys to remove that are kept in memory.
const maxRemovalKeys = 10_000

var errRemovalLimit = errors.New("limit of entries to remove at once reached")

// removeExtra deletes the entries of the target that the source doesn't have.
func (c *copier) removeExtra(ctx context.Context) error {
	for {
		extra, err := c.findExtra(ctx)
		if err != nil && !errors.Is(err, errRemovalLimit) {
			return err
		}
		for chunk := range slices.Chunk(extra, DefaultBatch) {
			if _, err := chunk.execute(ctx, c.to, store.Delete); err != nil {
				return err
			}
			c.counts.Removed += len(chunk)
		}
		if err == nil {
			return nil
		}
	}
}

// findExtra returns the entries that only the target has. If there are too many, it returns some of them and errRemovalLimit.
// It ignores the issuer mark, which a gateway sets when it starts.
func (c *copier) findExtra(ctx context.Context) (found batch, err error) {
	err = eachBatch(ctx, c.to, DefaultBatch, func(b batch) error {
		sourceValues, err := b.get(ctx, c.from)
		if err != nil {
			return err
		}
		for i, e := range b {
			if sourceValues[i].Value == nil && !e.isExpiring() && e.key != store.IssuerKey {
				found = append(found, entry{key: e.key})
			}
		}
		if len(found) > maxRemovalKeys {
			return errRemovalLimit
		}
		return nil
	})
	return found, err
}

// compare returns an error unless the target has all entries of the source and, except after a merge, no others.
func (c *copier) compare(ctx context.Context) error {
	mismatches := 0
	err := eachBatch(ctx, c.from, DefaultBatch, func(b batch) error {
		targetValues, err := b.get(ctx, c.to)
		if err != nil {
			return err
		}
		for i, e := range b {
			found := targetValues[i].Value
			if isMissing := found == nil && !e.isExpiring(); isMissing || found != nil && !c.Merge && string(found) != string(e.value) {
				mismatches++
			}
		}
		c.counts.Compared += len(b)
		c.Progress(c.counts)
		return nil
	})
	if err != nil {
		return err
	}
	if mismatches > 0 {
		return fmt.Errorf("%w: %d entries of the source are missing in the target or have different values", ErrConcurrentChange, mismatches)
	}
	if c.Merge {
		return nil
	}
	extra, err := c.findExtra(ctx)
	if len(extra) > 0 {
		return fmt.Errorf("%w: the target has at least %d entries that are not in the source", ErrConcurrentChange, len(extra))
	}
	return err
}

const (
	// DefaultBatch is the default number of entries per step. It is large enough to amortize the cost of a step, but small
	// enough not to delay the steps of other clients.
	DefaultBatch = 200

	// entrySize limits the average size of the values in a batch, in bytes per entry. The last value may exceed the limit.
	entrySize = 1280

	// expiryMargin is the remaining lifetime below which the comparison ignores that an entry is missing.
	expiryMargin = 10 * time.Second
)

type entry struct {
	key     string
	value   []byte
	expires time.Time
	old     []byte // value to replace in a [store.Swap]
}

func (e entry) isExpiring() bool { return time.Until(e.expires) < expiryMargin }

// A batch contains each key once.
type batch []entry

// eachBatch passes the entries to process in batches of up to limit entries. It omits the marks of copyguard.
func eachBatch(ctx context.Context, s store.CopyableStore, limit int, process func(batch) error) error {
	var b batch
	size, at := 0, map[string]int{}
	err := s.Entries(ctx, func(key string, value []byte, ttl time.Duration) error {
		if copyguard.IsMarker(key) || ttl <= 0 {
			return nil
		}
		e := entry{key: key, value: bytes.Clone(value), expires: time.Now().Add(ttl)} // the store may reuse the memory of the value
		if i, seen := at[key]; seen {
			b[i] = e
			return nil
		}
		at[key], b = len(b), append(b, e)
		if size += len(value); len(b) < limit && size < limit*entrySize {
			return nil
		}
		complete := b
		b, size = nil, 0
		clear(at)
		return process(complete)
	})
	if err != nil || len(b) == 0 {
		return err
	}
	return process(b)
}

// get reads the values of the entries' keys from a store. The calls are in the order of the entries.
func (b batch) get(ctx context.Context, s store.Store) ([]*store.Call, error) {
	return b.execute(ctx, s, store.Get)
}

const (
	maxAttempts = 5 // attempts per step while the store does not respond
	retryPause  = time.Second
)

// execute executes a call for each entry, all in one step. If the store does not respond, it pauses and retries.
func (b batch) execute(ctx context.Context, s store.Store, op store.Op) (calls []*store.Call, err error) {
	if len(b) == 0 {
		return nil, nil
	}
	for try := range maxAttempts {
		if try > 0 {
			if err := waitBeforeRetry(ctx); err != nil {
				return nil, err
			}
		}
		calls = make([]*store.Call, len(b))
		for i, e := range b {
			calls[i] = &store.Call{Op: op, Key: e.key, Old: e.old, Value: e.value, TTL: max(time.Until(e.expires), time.Millisecond)}
		}
		if err = s.Do(ctx, calls...); !errors.Is(err, store.ErrUnavailable) {
			break
		}
	}
	return calls, err
}

func waitBeforeRetry(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(retryPause):
		return nil
	}
}

// listJoiners maps the kinds of index entries that list a person's sessions and grants to the functions that join two lists.
// Without joining, revoking a person's access would miss sessions and grants listed only in the source.
var listJoiners = map[string]func(there, more []byte) ([]byte, error){
	"sessions": joinRecentLists, "upstream-sessions": joinRecentLists, "families": joinRecentLists, "consents": joinRecentLists, "apps": joinAppLists,
}

// joinedListTTL is the lifetime of joined lists. It is longer than the lifetimes of both originals.
const joinedListTTL = 400 * 24 * time.Hour

// merge compares entries with the entries of the target. It returns the missing entries, the joined lists, and the number of
// other entries that differ.
func (b batch) merge(existing []*store.Call) (missing, joined batch, conflicts int, err error) {
	for i, e := range b {
		targetValue, join := existing[i].Value, listJoiners[store.KindOf(e.key)]
		switch {
		case targetValue == nil:
			missing = append(missing, e)
		case bytes.Equal(targetValue, e.value):
		case join == nil:
			conflicts++
		default:
			value, err := join(targetValue, e.value)
			if err != nil {
				return nil, nil, 0, fmt.Errorf("merging %s with the target's entry: %w", e.key, err)
			}
			if !bytes.Equal(value, targetValue) {
				joined = append(joined, entry{e.key, value, time.Now().Add(joinedListTTL), targetValue})
			}
		}
	}
	return missing, joined, conflicts, nil
}

// joinRecentLists joins two [store.RecentList]s. Duplicate items are allowed.
func joinRecentLists(target, source []byte) ([]byte, error) {
	if bytes.Contains(target, source) { // already joined
		return target, nil
	}
	return append(bytes.Clone(source), target...), nil
}

// joinAppLists adds to a person's list the clients that are only in the list of the source.
func joinAppLists(target, source []byte) ([]byte, error) {
	type app map[string]json.RawMessage
	var apps, added []app
	if err := json.Unmarshal(target, &apps); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(source, &added); err != nil {
		return nil, err
	}
	seen, previousLen := map[string]bool{}, len(apps)
	for _, a := range apps {
		seen[string(a["client_id"])] = true
	}
	for _, a := range added {
		if !seen[string(a["client_id"])] {
			apps = append(apps, a)
		}
	}
	if len(apps) == previousLen {
		return target, nil
	}
	return json.Marshal(apps)
}

// probeKey is the key of an entry that is written to the target. If it appears in the source, both are the same store.
const probeKey = copyguard.CopyKind + ":probe"

// markLifetime is how long an interrupted copy can be completed afterwards.
const markLifetime = 30 * 24 * time.Hour

// A copyMark identifies a copy in progress.
type copyMark struct {
	Source string `json:"source"`
	Merge  bool   `json:"merge,omitempty"` // whether the target may contain other entries
}

// markTarget checks and marks the target. resumed reports whether the target contains an interrupted copy.
func (c *copier) markTarget(ctx context.Context) (resumed bool, err error) {
	if err := c.checkDistinct(ctx); err != nil {
		return false, err
	}
	m, err := c.loadMark(ctx)
	switch {
	case err != nil:
		return false, err
	case m != nil && m.Merge != c.Merge:
		return false, fmt.Errorf("%w: an interrupted copy used --merge differently: run it again with the same options, or empty the target", ErrNotEmpty)
	case m != nil && m.Source != c.Source:
		return false, ErrOtherSource
	case m == nil && !c.Merge:
		err = c.checkEmpty(ctx)
	}
	if err != nil {
		return false, err
	}
	text, err := json.Marshal(copyMark{c.Source, c.Merge})
	if err != nil {
		return false, err
	}
	return m != nil, c.to.Put(ctx, copyguard.IncompleteKey, text, markLifetime)
}

// checkDistinct returns an error if source and target are the same store.
func (c *copier) checkDistinct(ctx context.Context) error {
	probe := []byte(rand.Text())
	if err := c.to.Put(ctx, probeKey, probe, time.Minute); err != nil {
		return err
	}
	found, err := c.from.Get(ctx, probeKey)
	if errors.Is(err, store.ErrNotFound) {
		err = nil
	}
	if err == nil && string(found) == string(probe) {
		err = ErrSameStore
	}
	return errors.Join(err, c.to.Delete(ctx, probeKey))
}

// loadMark returns the mark of an interrupted copy, or nil if there is none.
func (c *copier) loadMark(ctx context.Context) (*copyMark, error) {
	text, err := c.to.Get(ctx, copyguard.IncompleteKey)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	m := new(copyMark)
	if err == nil {
		err = json.Unmarshal(text, m)
	}
	return m, err
}

var errFoundEntry = errors.New("the store contains an entry")

// checkEmpty returns an error unless the target is empty. It ignores the issuer mark, which a gateway sets when it starts.
func (c *copier) checkEmpty(ctx context.Context) error {
	err := eachBatch(ctx, c.to, DefaultBatch, func(b batch) error {
		if len(b) == 1 && b[0].key == store.IssuerKey {
			return nil
		}
		return errFoundEntry
	})
	if errors.Is(err, errFoundEntry) {
		return ErrNotEmpty
	}
	return err
}
