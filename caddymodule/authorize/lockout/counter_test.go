package lockout

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
)

// Names and addresses share the counters of failures. Which two share one cannot be
// worked out, to pick an address whose failures count as somebody else's.
func TestCountersCannotBeForeseen(t *testing.T) {
	t.Parallel()
	limiter := func(storage keyring.Storage) *Limiter {
		return &Limiter{Keys: keyring.New(storage, "keys", slog.New(slog.DiscardHandler))}
	}
	storage := new(authorizetest.Storage)
	ours, replica, others := limiter(storage), limiter(storage), limiter(new(authorizetest.Storage))
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
