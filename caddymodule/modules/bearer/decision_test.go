package bearer

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
)

func TestRefusalIsCounted(t *testing.T) {
	for _, tt := range []struct {
		err  *guard.Error
		want Decision
	}{
		{&guard.Error{Status: http.StatusUnauthorized, Err: guard.ErrNoToken}, decisionNoToken},
		{&guard.Error{Status: http.StatusUnauthorized, Err: fmt.Errorf("x: %w", guard.ErrExpired)}, decisionExpired},
		{&guard.Error{Status: http.StatusUnauthorized, Err: guard.ErrSignature}, decisionInvalid},
		{&guard.Error{Status: http.StatusForbidden}, decisionForbidden},
		{&guard.Error{Status: http.StatusNotFound}, decisionForbidden},
		{&guard.Error{Status: http.StatusServiceUnavailable, Err: guard.ErrUnavailable}, decisionUnavailable},
		{&guard.Error{Status: http.StatusBadRequest, Err: guard.ErrPath}, decisionBadRequest},
	} {
		if got := refusal(tt.err); got != tt.want || decisionCounts[got] == nil {
			t.Errorf("%+v is counted as %q", tt.err, got)
		}
	}
}

func BenchmarkDecided(b *testing.B) {
	for b.Loop() {
		decided(decisionAllowed)
	}
}

// What is counted with every request allocates nothing.
func TestDecidingAllocatesNothing(t *testing.T) {
	expired := &guard.Error{Status: http.StatusUnauthorized, Err: guard.ErrExpired}
	if n := testing.AllocsPerRun(100, func() { decided(decisionAllowed); decided(refusal(expired)) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
