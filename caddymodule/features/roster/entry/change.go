package entry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// unreadableKey has the head that [Roster.Reset] replaced. Entries that it replaced are below unreadablePrefix.
const (
	unreadableKey    = "roster:unreadable"
	unreadablePrefix = "roster-unreadable:"
)

// Change changes an entry. Each change sees the previous one of any gateway. check may reject the change; [Roster.Record] has
// the entries before it. If alter, check or the store fails, nothing has changed.
func (r *Roster) Change(ctx context.Context, kind Kind, name string, alter Alteration, check func(before, after *Entry) error) error {
	r.known.mu.Lock()
	defer r.known.mu.Unlock()
	return store.Retry(ctx, func() error {
		if err := r.prepare(ctx); err != nil {
			return err
		}
		before := r.Record().Get(kind, name)
		after, err := r.alter(kind, name, before, alter)
		if err == nil && check != nil {
			err = check(before, after)
		}
		if err != nil {
			return err
		}
		return r.write(ctx, named{kind, name}, after)
	})
}

// prepare reads changes of other gateways, and stores the first head if the store has none.
func (r *Roster) prepare(ctx context.Context) error {
	err := r.refresh(ctx)
	if err == nil && r.known.read.Load().head == nil {
		err = r.create(ctx)
	}
	return err
}

// create stores the first head.
func (r *Roster) create(ctx context.Context) error {
	first := head{Number: 1, ID: oauth2.RandomToken()}
	value, err := store.ToJSON(first)
	if err == nil {
		err = r.store.Do(ctx, store.Replacing(headKey, nil, value, store.Forever))
	}
	if err == nil {
		r.known.read.Store(&reading{record: r.Record(), head: &first, value: value})
	}
	return err
}

// alter returns the entry to store; nil removes it. The generation of a new entry is the time, so that it is greater than
// earlier generations even if the entries were lost or restored from a backup.
func (r *Roster) alter(kind Kind, name string, before *Entry, alter Alteration) (*Entry, error) {
	after, err := alter(before)
	switch {
	case errors.Is(err, ErrExists), errors.Is(err, ErrUnknown):
		return nil, fmt.Errorf("%q %w", name, err)
	case err != nil || after == nil || before != nil:
		return after, err
	case r.Record().Len(kind) >= MaxEntries:
		return nil, ErrFull
	}
	added := *after
	added.Generation = max(r.known.read.Load().head.Latest+1, oauth2.Generation(time.Now().UnixNano()))
	return &added, nil
}

// write stores an entry, or removes it if it is nil, unless another change was faster.
func (r *Roster) write(ctx context.Context, n named, e *Entry) error {
	read := r.known.read.Load()
	next := head{Number: read.head.Number + 1, ID: oauth2.RandomToken(), Latest: read.head.Latest}
	if e != nil {
		next.Latest = max(next.Latest, e.Generation)
	}
	call, err := n.storing(e)
	if err != nil {
		return err
	}
	value, err1 := store.ToJSON(next)
	note, err2 := putting(changeKey(next.Number), change{Head: next, Before: read.head.ID, Kind: n.kind, Name: n.name})
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	if err := r.store.Do(ctx, store.Replacing(headKey, read.value, value, store.Forever), note, call); err != nil {
		return err
	}
	r.known.read.Store(&reading{record: read.record.with(map[named]*Entry{n: e}), head: &next, value: value})
	return nil
}

// storing returns the call that stores an entry, or removes it if it is nil.
func (n named) storing(e *Entry) (*store.Call, error) {
	if e == nil {
		return &store.Call{Op: store.Delete, Key: n.storeKey()}, nil
	}
	return putting(n.storeKey(), storedEntry{n.kind, n.name, *e})
}

func putting(key string, v any) (*store.Call, error) {
	value, err := store.ToJSON(v)
	return &store.Call{Op: store.Put, Key: key, Value: value, TTL: store.Forever}, err
}

// ErrReadable is returned by [Roster.Reset] if the entries can be read.
var ErrReadable = errors.New("the clients and people in the store can be read: change them one by one")

// Reset replaces unreadable values by the entries that were last read, or removes them if none were. The unreadable values
// are kept under other keys.
func (r *Roster) Reset(ctx context.Context) error {
	r.known.mu.Lock()
	defer r.known.mu.Unlock()
	known := r.known.read.Load()
	err := r.refresh(ctx)
	switch {
	case err == nil:
		return ErrReadable
	case errors.Is(err, store.ErrUnavailable):
		return err
	}
	values, err := store.Values(ctx, r.store, headKey)
	if err != nil {
		return err
	}
	calls, err := r.mend(ctx)
	if err != nil {
		return err
	}
	value, err := store.ToJSON(known.nextHead())
	if err != nil {
		return err
	}
	calls = append(calls, store.Replacing(headKey, values[0], value, store.Forever))
	if values[0] != nil {
		calls = append(calls, &store.Call{Op: store.Put, Key: unreadableKey, Value: values[0], TTL: store.Forever})
	}
	if err := r.store.Do(ctx, calls...); err != nil {
		return err
	}
	return r.refresh(ctx)
}

// nextHead returns a head after that of a reading, which other gateways do not take for one of the changes that they know.
func (read *reading) nextHead() head {
	next := head{ID: oauth2.RandomToken(), Latest: oauth2.Generation(time.Now().UnixNano())}
	if read != nil && read.head != nil {
		next.Number, next.Latest = read.head.Number+1, max(next.Latest, read.head.Latest)
	}
	return next
}

// mend returns the calls that replace the entries that cannot be read.
func (r *Roster) mend(ctx context.Context) (calls []*store.Call, err error) {
	keys, err := r.store.List(ctx, entryKind+":")
	if err != nil {
		return nil, err
	}
	known := map[string]member{}
	for _, m := range r.Record().members() {
		known[m.storeKey()] = m
	}
	for some := range slices.Chunk(keys, 100) {
		values, err := store.Values(ctx, r.store, some...)
		if err != nil {
			return nil, err
		}
		for i, value := range values {
			if _, err := store.FromJSON[storedEntry](value); err == nil {
				continue
			}
			call := &store.Call{Op: store.Delete, Key: some[i]}
			if m, was := known[some[i]]; was {
				if call, err = m.storing(&m.entry); err != nil {
					return nil, err
				}
			}
			aside := unreadablePrefix + strings.TrimPrefix(some[i], entryKind+":")
			calls = append(calls, call, &store.Call{Op: store.Put, Key: aside, Value: value, TTL: store.Forever})
		}
	}
	return calls, nil
}
