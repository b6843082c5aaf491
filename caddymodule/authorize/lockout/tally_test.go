package lockout

import (
	"fmt"
	"testing"
	"time"
)

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
		{"an address's, or of a tally of an earlier version", fails("", ""), 2},
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
