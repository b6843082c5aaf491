package token

import (
	"strings"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// TestGraceByClocksThatDiffer asks a gateway whose clock is behind that of the one which replaced a refresh token.
func TestGraceByClocksThatDiffer(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		grace time.Duration
		want  tokenState
	}{
		{"without a grace period", 0, reusedToken},
		{"within it", time.Second, retriedToken},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			fs := &families{durable: store.NewMemory(0, 0)}
			fs.RefreshGrace, fs.Outages = test.grace, func() []store.Outage { return nil }
			f := &refreshFamily{Grant: &Grant{Family: strings.Repeat("A", familyIDSize)}, Key: []byte("key")}
			first := f.first(time.Now())
			f.rotate(first, time.Now().Add(time.Minute))
			if got := fs.state(f, first); got != test.want {
				t.Errorf("state %v, want %v", got, test.want)
			}
		})
	}
}
