package authorize

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
)

// keysInMemory is a storage of keys in memory, for one test at a time.
type keysInMemory struct{ held []byte }

func (*keysInMemory) Lock(context.Context, string) error   { return nil }
func (*keysInMemory) Unlock(context.Context, string) error { return nil }

func (f *keysInMemory) Load(context.Context, string) ([]byte, error) {
	if f.held == nil {
		return nil, fs.ErrNotExist
	}
	return f.held, nil
}

func (f *keysInMemory) Store(_ context.Context, _ string, value []byte) error {
	f.held = value
	return nil
}

// Names and addresses share the counters of failures. Which two share one cannot be
// worked out, to pick an address whose failures count as somebody else's.
func TestCountersCannotBeForeseen(t *testing.T) {
	limiter := func(storage keyring.Storage) *turnstile {
		return &turnstile{keys: keyring.New(storage, "keys", slog.New(slog.DiscardHandler))}
	}
	storage := new(keysInMemory)
	ours, replica, others := limiter(storage), limiter(storage), limiter(new(keysInMemory))
	same := 0
	for i := range 256 {
		var found [3]counter
		for j, s := range []*turnstile{ours, replica, others} {
			var err error
			if found[j], err = s.newCounter(t.Context(), "address", fmt.Sprintf("192.0.2.%d", i), "", 100); err != nil {
				t.Fatal(err)
			}
		}
		if found[0] != found[1] {
			t.Fatalf("replicas count apart: %v, %v", found[0], found[1])
		}
		if found[0] == found[2] {
			same++
		}
	}
	if same > 128 {
		t.Errorf("%d of 256 are the same with other keys", same)
	}
}
