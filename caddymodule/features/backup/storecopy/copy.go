package storecopy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/storemark"
)

// Options are those of [Run].
type Options struct {
	// Source identifies the store that is copied, so that an interrupted copy is completed from the same one. Required.
	Source string

	// Merge copies into a store that has entries. What it has stays as it is, as if it were newer, but for lists of what a
	// person has: these are joined. Default: the target must be empty, but for an interrupted copy.
	Merge bool

	// Force copies although gateways seem to run with the source or the target. Default: [storemark.ErrRunning].
	Force bool

	// Batch is how many entries are stored in the target in one step. Default: [DefaultBatch]. A store that waits for
	// its disk after each step is filled quicker by more.
	Batch int

	// Progress is called after each batch. Default: it is not.
	Progress func(Counts)
}

// Counts are numbers of entries. One that the source reported twice counts twice.
type Counts struct {
	Read    int // of the source
	Copied  int // to the target
	Kept    int // that the target had, with another value than the source
	Removed int // that an interrupted copy had left, and the source has no more
	Proved  int // compared after copying
}

// The errors of [Run], apart from those of the stores.
var (
	ErrNotEmpty = errors.New("the target is not empty")
	ErrOther    = errors.New("the target has an interrupted copy of another store")
	ErrSame     = errors.New("source and target are the same store")
	ErrChanged  = errors.New("a store has changed meanwhile")
)

// Run copies all entries. One that was interrupted is completed by another Run with the same options: it copies all
// entries again, as the source may have been in use meanwhile, and the target may not.
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
	return c.to.Delete(ctx, storemark.Incomplete)
}

// checkUnused checks that no gateway runs with either store.
func (c *copying) checkUnused(ctx context.Context) error {
	if c.Force {
		return nil
	}
	if err := storemark.CheckRunning(ctx, c.from); err != nil {
		return fmt.Errorf("the source: %w", err)
	}
	if err := storemark.CheckRunning(ctx, c.to); err != nil {
		return fmt.Errorf("the target: %w", err)
	}
	return nil
}

// copy copies the entries of the source.
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

// put stores entries in the target. To merge, it adds those that are not there and joins lists, and goes by what it finds
// if it is not known whether some were stored.
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
		if !store.Lost(err) {
			return len(missing) + len(joined), kept, err
		}
	}
	return 0, kept, err
}

// maxRemoved bounds the keys in memory that are to be removed.
const maxRemoved = 10_000

var errEnough = errors.New("enough for now")

// remove removes what the source has not.
func (c *copying) remove(ctx context.Context) error {
	for {
		extra, err := c.extra(ctx, maxRemoved)
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

// extra returns what only the target has, or some of it and errEnough. The mark of an issuer is of a gateway that was
// started with it.
func (c *copying) extra(ctx context.Context, most int) (found batch, err error) {
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
		if len(found) > most {
			return errEnough
		}
		return nil
	})
	return found, err
}

// prove checks that the target has all that the source has, and nothing else unless there was something before.
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
	extra, err := c.extra(ctx, maxRemoved)
	if len(extra) > 0 {
		return fmt.Errorf("%w: the target has %d entries or more that the source has not", ErrChanged, len(extra))
	}
	return err
}
