package token

import (
	"errors"
	"testing"
)

// Without a person, what everybody gave would end.
func TestNobodyEndsNothing(t *testing.T) {
	t.Parallel()
	for _, clientID := range []string{"", "app"} {
		if err := new(Revoker).EndApps(t.Context(), "", clientID); !errors.Is(err, ErrUnknownHolder) {
			t.Errorf("%q: %v", clientID, err)
		}
	}
}
