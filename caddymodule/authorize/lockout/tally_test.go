package lockout

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// Names and addresses share the counters of failures. Which two share one cannot be
// worked out, to pick an address whose failures count as somebody else's.
func TestCountersCannotBeForeseen(t *testing.T) {
	t.Parallel()
	limiter := func(storage keyring.Storage) *Limiter {
		return &Limiter{Keys: keyring.New(storage, "keys", slog.New(slog.DiscardHandler))}
	}
	storage := new(providertest.Storage)
	ours, replica, others := limiter(storage), limiter(storage), limiter(new(providertest.Storage))
	same := 0
	for i := range 256 {
		var found [3]counter
		for j, s := range []*Limiter{ours, replica, others} {
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

// What a form may bring is more than is worth comparing.
func TestCanonicalNameIsBounded(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ﷺ", 20_000) // each becomes 18 characters
	if got := CanonicalName(long); len(got) > 20*maxName {
		t.Errorf("%d bytes", len(got))
	}
}

// A success takes back the failures of its own account, and of none that shares the
// counter by its hash.
func TestTallyForgives(t *testing.T) {
	t.Parallel()
	fails := func(owners ...string) (t tally) {
		for _, owner := range owners {
			t.fail(owner, 100, time.Minute, time.Now())
		}
		return t
	}
	many := []string{"alice"}
	for i := range maxOwners {
		many = append(many, fmt.Sprint(i))
	}
	for _, tt := range []struct {
		name  string
		tally tally
		want  int
	}{
		{"one's own", fails("alice", "alice", "alice"), 0},
		{"another's", fails("mallory", "mallory"), 2},
		{"both", fails("alice", "mallory", "alice"), 1},
		{"an address's", fails("", ""), 2},
		{"forgotten among many", fails(many...), len(many)},
		{"none", fails(), 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.tally.forgive("alice")
			if tt.tally.forgive("alice") {
				t.Error("forgiven twice")
			}
			if tt.tally.Failures != tt.want || len(tt.tally.Owners) > maxOwners {
				t.Errorf("left are %+v, want %d", tt.tally, tt.want)
			}
		})
	}
}

// However many names are tried, their failures take no more room than there are counters.
func TestFloodOfNamesIsBounded(t *testing.T) {
	t.Parallel()
	counts, discard := store.NewMemory(0, 0), slog.New(slog.DiscardHandler)
	l := &Limiter{Store: counts, Keys: keyring.New(new(providertest.Storage), "keys", discard), Logger: discard}
	if err := l.Complete(); err != nil {
		t.Fatal(err)
	}
	for i := range 3 * counterBuckets / 2 {
		c, err := l.newCounter(t.Context(), Password, fmt.Sprint(i), "", l.Failures)
		if err != nil {
			t.Fatal(err)
		}
		err = l.Attempt(t.Context(), []counter{c}, errWrong, func() error { return errWrong })
		if _, waits := errors.AsType[*WaitError](err); err == nil || !waits && !errors.Is(err, errWrong) {
			t.Fatal(err)
		}
	}
	keys, err := counts.List(t.Context(), "lockout:")
	if err != nil || len(keys) > counterBuckets || len(keys) < counterBuckets/2 {
		t.Errorf("%d entries, %v", len(keys), err)
	}
}
