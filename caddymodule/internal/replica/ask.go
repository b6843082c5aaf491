package replica

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

const (
	// keepFor is how long an answer is kept, since the store announces no expiry.
	keepFor = time.Minute

	// maxShared is how old a question may be whose answer serves others who ask.
	maxShared = time.Second

	// answerOverhead is what an answer takes in memory, beside its key and value, in bytes.
	answerOverhead = 200
)

// An ask is a Get of the store under way, which all share who ask for the key meanwhile.
type ask struct {
	began int64
	stale bool // the entry changed since it began; guarded by Replica.mu
	done  chan struct{}

	value []byte // once done
	err   error
}

func isUnavailable(err error) bool { return errors.Is(err, store.ErrUnavailable) }

// ask asks the store for an entry. If keep is set, its answer is kept.
func (r *Replica) ask(ctx context.Context, key string, keep bool) ([]byte, error) {
	a, mine := r.askFor(key)
	if mine {
		// Others wait for the answer too, so it does not end with this request.
		a.value, a.err = r.Shared.Get(context.WithoutCancel(ctx), key)
		r.answered(key, a, keep)
		return bytes.Clone(a.value), a.err
	}
	select {
	case <-a.done:
		return bytes.Clone(a.value), a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// askFor returns the question under way for a key, or a new one that is the caller's to ask.
func (r *Replica) askFor(key string) (a *ask, mine bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	if a := r.asks[key]; a != nil && now-a.began <= int64(maxShared) {
		return a, false
	}
	r.invalidate(key)
	a = &ask{began: now, done: make(chan struct{})}
	r.asks[key] = a
	return a, true
}

// answered ends a question. What was read before a change is not kept: its announcement has
// passed.
func (r *Replica) answered(key string, a *ask, keep bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer close(a.done)
	if a.stale {
		return
	}
	delete(r.asks, key)
	if keep && (a.err == nil || errors.Is(a.err, store.ErrNotFound)) {
		r.kept.Put(key, keptAnswer{a.value, r.now() + int64(keepFor)}, int64(len(key)+len(a.value)+answerOverhead))
	}
}

// forget removes what is known of a key, or about to be. It requires the lock.
func (r *Replica) forget(key string) {
	r.kept.Delete(key)
	r.invalidate(key)
}

// invalidate keeps others from sharing the question under way for a key, and its answer from being
// cached. It requires the lock.
func (r *Replica) invalidate(key string) {
	if a := r.asks[key]; a != nil {
		a.stale = true
		delete(r.asks, key)
	}
}

// forgetAll is forget of all keys. It requires the lock.
func (r *Replica) forgetAll() {
	r.kept.DeleteFunc(func(string, keptAnswer) bool { return true })
	for _, a := range r.asks {
		a.stale = true
	}
	clear(r.asks)
}
