package storecopy

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/storemark"
)

// probeKey is the key of an entry in the target that must not be in the source.
const probeKey = storemark.CopyKind + ":probe"

// markLifetime is how long an interrupted copy can be completed.
const markLifetime = 30 * 24 * time.Hour

// A mark says what is being copied.
type mark struct {
	Source string `json:"source"`
	Merge  bool   `json:"merge,omitempty"` // into a store that had entries
}

// begin checks that the target may be copied to, and marks it. It reports whether a copy was interrupted.
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
	return m != nil, c.to.Put(ctx, storemark.Incomplete, text, markLifetime)
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

// find returns the mark of an interrupted copy; nil if there is none.
func (c *copying) find(ctx context.Context) (*mark, error) {
	text, err := c.to.Get(ctx, storemark.Incomplete)
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

// checkEmpty checks that the target has nothing, but for the mark of an issuer, by a gateway that was started with it.
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
