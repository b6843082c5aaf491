package postgresstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

func newTestStore(t *testing.T, followed ...string) *Store {
	t.Helper()
	s, err := New(Config{DSN: "host=/nowhere", SubscribedKinds: followed})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// Changes are sent in the order of their keys, to avoid deadlocks. Gets are sent separately. Keys that a text column cannot
// store are rejected.
func TestStep(t *testing.T) {
	t.Parallel()
	s := newTestStore(t, "revoked")
	p, err := newStep([]*store.Call{
		{Op: store.Take, Key: "code:1"},
		{Op: store.Get, Key: "a:read"},
		{Op: store.Put, Key: "revoked:1", TTL: time.Nanosecond},
		{Op: store.Add, Key: "assertion:1", TTL: time.Second},
	}, &s.database.config)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"assertion:1", "code:1", "revoked:1"}; !slices.Equal(p.args.keys, want) {
		t.Errorf("keys %q, want %q", p.args.keys, want)
	}
	if want := []bool{false, false, true}; !slices.Equal(p.args.announced, want) {
		t.Errorf("follows %v, want %v", p.args.announced, want)
	}
	if want := []int64{1000, 0, 1}; !slices.Equal(p.args.lifetimes, want) {
		t.Errorf("lifetimes %v ms, want %v", p.args.lifetimes, want)
	}
	if p.boundedRows != 2 || !slices.Equal(p.args.getKeys, []string{"a:read"}) || slices.ContainsFunc(p.args.values, func(b []byte) bool { return b == nil }) {
		t.Errorf("adds %d, asks for %q, stores %q", p.boundedRows, p.args.getKeys, p.args.values)
	}
	for _, key := range []string{"", "a\x00b", "\xff", "#1"} {
		if _, err := newStep([]*store.Call{{Op: store.Get, Key: key}}, &s.database.config); err == nil {
			t.Errorf("%q is taken for a key", key)
		}
	}
}

// The error is that of the first failing call in the caller's order.
func TestRefusedStep(t *testing.T) {
	t.Parallel()
	s := newTestStore(t)
	take, add := &store.Call{Op: store.Take, Key: "z"}, &store.Call{Op: store.Add, Key: "a"}
	for _, tt := range []struct {
		name   string
		failed int
		stored [][]byte
		want   error
		call   *store.Call
	}{
		{"both", 1, [][]byte{{}, nil}, store.ErrNotFound, take},
		{"the second", 1, [][]byte{{}, []byte("v")}, store.ErrExists, add},
		{"the first", 2, [][]byte{nil, nil}, store.ErrNotFound, take},
		{"a call that could succeed by now", 1, [][]byte{nil, []byte("v")}, store.ErrExists, add},
		{"full store", -1, nil, store.ErrFull, add},
	} {
		t.Run(tt.name, func(t *testing.T) {
			take.Err, add.Err = nil, nil
			p, err := newStep([]*store.Call{take, add}, &s.database.config)
			if err != nil {
				t.Fatal(err)
			}
			if err := p.callError(tt.failed, tt.stored); !errors.Is(err, tt.want) || !errors.Is(tt.call.Err, tt.want) {
				t.Errorf("error %v, of the call %v, want %v", err, tt.call.Err, tt.want)
			}
		})
	}
}

// Each error is classified correctly: temporary, to be fixed by the operator, or worth a retry.
func TestErrors(t *testing.T) {
	t.Parallel()
	s := newTestStore(t)
	server := func(code string) error { return &pgconn.PgError{Code: code} }
	for _, tt := range []struct {
		name                string
		err                 error
		full, mistake, once bool
	}{
		{"a lost connection", io.ErrUnexpectedEOF, false, false, false},
		{"no server", &net.OpError{Op: "dial"}, false, false, true},
		{"a connection lost while it was made", &pgconn.ConnectError{}, false, false, false},
		{"a server that ends", server("57P01"), false, false, false},
		{"a deadlock", server("40P01"), false, false, false},
		{"a table that is gone", server("42P01"), false, true, false},
		{"a full disk", server("53100"), true, false, true},
		{"too many connections", server("53300"), false, false, true},
		{"a wrong password", server("28P01"), false, true, true},
		{"no such database", server("3D000"), false, true, true},
		{"no right", server("42501"), false, true, false},
		{"a right that is named", fmt.Errorf("%w: %w", errUnusable, server("42501")), false, true, true},
		{"a standby", fmt.Errorf("%w: standby", errUnusable), false, true, true},
		{"another certificate", &tls.CertificateVerificationError{}, false, true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := s.database.storeError(t.Context(), tt.err); errors.Is(err, store.ErrFull) != tt.full || errors.Is(err, store.ErrUnavailable) == tt.full {
				t.Errorf("it is %v", err)
			}
			if isConfigurationError(tt.err) != tt.mistake || isRetryable(tt.err) == tt.once {
				t.Errorf("a mistake: %v, repeatable: %v", isConfigurationError(tt.err), isRetryable(tt.err))
			}
		})
	}
}

// If there is no server, calls fail immediately. Later calls may succeed, and no call is executed twice.
func TestNoServer(t *testing.T) {
	t.Parallel()
	s := newTestStore(t)
	for name, call := range map[string]func() error{
		"Open":   func() error { return s.Open(t.Context()) },
		"Get":    func() error { _, err := s.Get(t.Context(), "k"); return err },
		"Put":    func() error { return s.Put(t.Context(), "k", nil, time.Minute) },
		"List":   func() error { _, err := s.List(t.Context(), ""); return err },
		"Follow": func() error { return s.Subscribe(t.Context(), func(store.Update) {}) },
	} {
		if err := call(); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := s.Subscribe(ended, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("Follow after the end: %v", err)
	}
	_ = s.Close()
	if err := s.Put(t.Context(), "k", nil, time.Minute); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// Statements contain no unreplaced placeholders and refer only to objects of their table.
func TestStatements(t *testing.T) {
	t.Parallel()
	sql := statementsFor("gateway.sessions")
	for _, text := range []string{sql.schema, sql.execute, sql.get, sql.sweep, sql.count, sql.page, sql.changes} {
		if strings.ContainsAny(text, "{}") || !strings.Contains(text, "gateway.sessions") {
			t.Errorf("statement %q", text)
		}
	}
	if sql.channel != "sessions" || !strings.Contains(sql.schema, "INDEX IF NOT EXISTS sessions_expires ON gateway.sessions") {
		t.Errorf("channel %q", sql.channel)
	}
}
