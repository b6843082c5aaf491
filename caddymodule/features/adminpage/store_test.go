package adminpage

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/roster"
)

// An e-mail address that an administrator changes has to be verified again.
func TestAdminPageUnverifiesAnotherAddress(t *testing.T) {
	t.Parallel()
	was := json.RawMessage(`{"email":"alice@example.org","email_verified":true}`)
	for address, want := range map[string]bool{"alice@example.org": false, "mallory@example.org": true, "": true} {
		fields := fieldsOf(roster.Users, Fields{Email: address}, was)
		if value, removed := fields["email_verified"]; removed != want || value != nil {
			t.Errorf("%q: email_verified %v, changed: %v", address, value, removed)
		}
	}
}

// Only clients are approved.
func TestAdminPageApprovesNoPerson(t *testing.T) {
	t.Parallel()
	for _, action := range []string{"approve", "x", ""} {
		secret, err := rosterStore{}.Change(context.Background(), Change{
			Kind: string(roster.Users), Action: action, Fields: Fields{Name: "alice"},
		})
		if err == nil || secret != "" {
			t.Errorf("%q: %q, %v", action, secret, err)
		}
	}
}

// Entries beyond the store's capacity are rejected, and the page gives the reason.
func TestRosterIsFull(t *testing.T) {
	t.Parallel()
	for _, full := range []error{roster.ErrFull, store.ErrFull} {
		if shown, ok := errors.AsType[*oauth2.Error](pageError(full)); !ok || !strings.Contains(shown.Description, full.Error()) {
			t.Errorf("%v: %+v", full, shown)
		}
	}
}
