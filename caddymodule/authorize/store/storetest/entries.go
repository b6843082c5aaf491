package storetest

import (
	"context"
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// entriesTests are the tests of [store.Exporter]. A store need not be one.
var entriesTests = []storeTest{
	{"entries are all there are", allEntries, false},
	{"entries end with an error", entriesError, false},
}

func allEntries(t *testing.T, ctx context.Context, s subject) {
	exporter := exporterOf(t, s)
	must(t, s.Put(ctx, "code:short", []byte("v"), s.lifetime))
	must(t, s.Put(ctx, "code:taken", []byte("v"), 3*s.lifetime))
	must(t, s.Put(ctx, "session:long", []byte("\x00long"), 3*s.lifetime))
	must(t, s.Append(ctx, "grants:empty", nil, 0, 4*s.lifetime))
	s.expire()
	_, err := s.Take(ctx, "code:taken")
	must(t, err)
	got := map[string]string{}
	must(t, exporter.Entries(ctx, func(key string, value []byte, ttl time.Duration) error {
		got[key] = string(value)
		most := 3 * s.lifetime
		if key == "session:long" {
			most = 2 * s.lifetime
		}
		if ttl > most || ttl < most-s.lifetime {
			t.Errorf("%s has %v left, of %v", key, ttl, most)
		}
		return nil
	}))
	if want := map[string]string{"session:long": "\x00long", "grants:empty": ""}; !maps.Equal(got, want) {
		t.Errorf("entries: %q, want %q", got, want)
	}
}

func entriesError(t *testing.T, ctx context.Context, s subject) {
	exporter := exporterOf(t, s)
	must(t, s.Put(ctx, "a", nil, s.lifetime))
	must(t, s.Put(ctx, "b", nil, s.lifetime))
	seen, stop := 0, errors.New("stop")
	err := exporter.Entries(ctx, func(string, []byte, time.Duration) error { seen++; return stop })
	if !errors.Is(err, stop) || seen != 1 {
		t.Errorf("%d entries, then %v", seen, err)
	}
	ended, end := context.WithCancel(ctx)
	end()
	err = exporter.Entries(ended, func(string, []byte, time.Duration) error { return nil })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of its context: %v", err)
	}
}

func exporterOf(t *testing.T, s subject) store.Exporter {
	exporter, ok := s.Store.(store.Exporter)
	if !ok {
		t.Skip("not a store.Exporter")
	}
	return exporter
}
