// Package personindex reports whether the lists of each person's sessions, grants and consents are complete.
//
// Each of these entries is listed in the step that stores it, so that revoking one person reads that person's entries
// alone. Versions of caddy-fhir before this one listed some entries only. So the first gateway of this version lists, in
// the background, all entries that it finds. Until that is done, readers of a person's entries search all entries.
package personindex

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// retry is how long [Index.Run] waits after a failure, and while gateways of versions before run.
const retry = 10 * time.Second

// An Index is that of a durable store. It is safe for concurrent use.
type Index struct {
	Durable  store.Store  // has the entries and the lists
	Logger   *slog.Logger // gets failures, and the end
	complete atomic.Bool
}

// Complete reports whether all entries are listed. A nil Index is not complete.
func (ix *Index) Complete(ctx context.Context) (bool, error) {
	if ix == nil || ix.complete.Load() {
		return ix != nil, nil
	}
	_, err := ix.Durable.Get(ctx, store.IndexKey)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return false, nil
	case err == nil:
		ix.complete.Store(true)
	}
	return err == nil, err
}

// Run completes the lists, unless they are complete, by functions that each list all entries of a kind. It returns when
// that is done, or ctx ends.
func (ix *Index) Run(ctx context.Context, list ...func(context.Context) error) {
	for ctx.Err() == nil {
		done, err := ix.build(ctx, list)
		if done {
			return
		}
		if err != nil && ctx.Err() == nil && !errors.Is(err, store.ErrUnavailable) { // the store logs this error itself
			ix.Logger.WarnContext(ctx, "entries of people not listed, trying again; until then revoking one person reads the whole store", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(retry):
		}
	}
}

// build makes one attempt. It does nothing while a gateway runs that does not list all of its entries.
func (ix *Index) build(ctx context.Context, list []func(context.Context) error) (done bool, err error) {
	if done, err := ix.Complete(ctx); done || err != nil {
		return done, err
	}
	if older, err := store.OlderRuns(ctx, ix.Durable); older || err != nil {
		return false, err
	}
	for _, each := range list {
		if err := each(ctx); err != nil {
			return false, err
		}
	}
	if err := ix.Durable.Put(ctx, store.IndexKey, nil, store.Forever); err != nil {
		return false, err
	}
	ix.complete.Store(true)
	return true, nil
}
