package authorize_test

import (
	"cmp"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// faultyKeys are keys of which a use fails.
type faultyKeys struct {
	keyring.Keys
	*faults
}

func (k faultyKeys) Key(ctx context.Context, kid string) (jose.JSONWebKey, error) {
	if err := k.next("keys.Key"); err != nil {
		return jose.JSONWebKey{}, err
	}
	return k.Keys.Key(ctx, kid)
}

func (k faultyKeys) Has(ctx context.Context, kid string) (bool, error) {
	if err := k.next("keys.has"); err != nil {
		return false, err
	}
	return k.Keys.Has(ctx, kid)
}

func (k faultyKeys) Signer(ctx context.Context, alg jose.SignatureAlgorithm, typ string) (jose.Signer, error) {
	if err := k.next("keys.signer " + string(alg)); err != nil {
		return nil, err
	}
	return k.Keys.Signer(ctx, alg, typ)
}

func (k faultyKeys) Seal(ctx context.Context, text, binding string) (string, error) {
	if err := k.next("keys.seal"); err != nil {
		return "", err
	}
	return k.Keys.Seal(ctx, text, binding)
}

func (k faultyKeys) Unseal(ctx context.Context, sealed, binding string, maxAge time.Duration) (string, error) {
	if err := k.next("keys.unseal"); err != nil {
		return "", err
	}
	return k.Keys.Unseal(ctx, sealed, binding, maxAge)
}

func (k faultyKeys) MAC(ctx context.Context, text string) ([]byte, error) {
	if err := k.next("keys.mac"); err != nil {
		return nil, err
	}
	return k.Keys.MAC(ctx, text)
}

// faults let one call fail, of all to the stores and the keys while they are armed.
type faults struct {
	armed bool
	at    int  // which call
	lost  bool // its answer alone: what it was to do is done
	calls int
	hit   string // the call that failed
}

func (f *faults) next(call string) error {
	if !f.armed {
		return nil
	}
	if f.calls++; f.calls != f.at {
		return nil
	}
	f.hit = call
	return authorizetest.ErrBroken
}

// faultyStore is a store of which a call fails.
type faultyStore struct {
	*store.Memory
	name string
	*faults
}

func (s *faultyStore) fails(method, key string) error {
	kind, _, _ := strings.Cut(key, ":")
	return s.next(s.name + "." + method + " " + kind)
}

// call does what a method does, unless it fails.
func (s *faultyStore) call(method, key string, do func() error) error {
	failed := s.fails(method, key)
	if failed != nil && !s.lost {
		return failed
	}
	return cmp.Or(failed, do())
}

func (s *faultyStore) Put(ctx context.Context, key string, value []byte, ttl time.Duration) error {
	return s.call("Put", key, func() error { return s.Memory.Put(ctx, key, value, ttl) })
}

func (s *faultyStore) Add(ctx context.Context, key string, value []byte, ttl time.Duration) error {
	return s.call("Add", key, func() error { return s.Memory.Add(ctx, key, value, ttl) })
}

func (s *faultyStore) Get(ctx context.Context, key string) ([]byte, error) {
	if err := s.fails("Get", key); err != nil {
		return nil, err
	}
	return s.Memory.Get(ctx, key)
}

func (s *faultyStore) Swap(ctx context.Context, key string, old, value []byte, ttl time.Duration) error {
	return s.call("Swap", key, func() error { return s.Memory.Swap(ctx, key, old, value, ttl) })
}

func (s *faultyStore) Take(ctx context.Context, key string) ([]byte, error) {
	var value []byte
	err := s.call("Take", key, func() (err error) { value, err = s.Memory.Take(ctx, key); return err })
	return value, err
}

func (s *faultyStore) Delete(ctx context.Context, key string) error {
	return s.call("Delete", key, func() error { return s.Memory.Delete(ctx, key) })
}

func (s *faultyStore) Append(ctx context.Context, key string, item []byte, most int, ttl time.Duration) error {
	return s.call("Append", key, func() error { return s.Memory.Append(ctx, key, item, most, ttl) })
}

// Do fails as a whole, before or after it is done.
func (s *faultyStore) Do(ctx context.Context, calls ...*store.Call) error {
	var names []string
	for _, c := range calls {
		names = append(names, c.Op.String()+" "+store.KindOf(c.Key))
	}
	failed := s.next(s.name + ".Do " + strings.Join(names, ", "))
	if failed != nil && !s.lost {
		return failed
	}
	return cmp.Or(s.Memory.Do(ctx, calls...), failed)
}

func (s *faultyStore) List(ctx context.Context, prefix string) ([]string, error) {
	if err := s.fails("List", prefix); err != nil {
		return nil, err
	}
	return s.Memory.List(ctx, prefix)
}

// stores are what a server keeps.
type stores struct{ store, durable *faultyStore }

// state is all that is stored, but for the counts of failures, for codes, which nobody
// has where the answer failed, and for a second factor that was taken back.
func (s *stores) state(t *testing.T) map[string]string {
	state := map[string]string{}
	for _, store := range []*faultyStore{s.store, s.durable} {
		keys, err := store.Memory.List(t.Context(), "")
		authorizetest.NoError(t, err)
		for _, key := range keys {
			if value, err := store.Memory.Get(t.Context(), key); err == nil && !strings.HasPrefix(key, "lockout:") && !strings.HasPrefix(key, "code:") && string(value) != "0" {
				state[store.name+" "+key] = string(value)
			}
		}
	}
	return state
}
