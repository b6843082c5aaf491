package adminpage

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// If an administrator changes an e-mail address, it must be verified again.
func TestAdminPageUnverifiesAnotherAddress(t *testing.T) {
	t.Parallel()
	was := json.RawMessage(`{"email":"alice@example.org","email_verified":true}`)
	for address, want := range map[string]bool{"alice@example.org": false, "mallory@example.org": true, "": true} {
		fields := mergePatch(Users, Fields{Email: address}, was)
		if value, removed := fields["email_verified"]; removed != want || value != nil {
			t.Errorf("%q: email_verified %v, changed: %v", address, value, removed)
		}
	}
}

// Only clients can be approved, not users.
func TestAdminPageApprovesNoPerson(t *testing.T) {
	t.Parallel()
	for _, action := range []string{"approve", "x", ""} {
		secret, err := managedStore{}.Change(context.Background(), Change{
			Kind: Users, Action: action, Fields: Fields{Name: "alice"},
		})
		if err == nil || secret != "" {
			t.Errorf("%q: %q, %v", action, secret, err)
		}
	}
}

// The page shows why a change was rejected, such as exceeded capacity, but not the cause of an internal error.
func TestReasons(t *testing.T) {
	t.Parallel()
	refused := caddy.APIError{HTTPStatus: http.StatusInsufficientStorage, Err: store.ErrFull}
	if converted, ok := errors.AsType[*oauth2.Error](convertError(refused)); !ok || !strings.Contains(converted.Description, store.ErrFull.Error()) || converted.Status != refused.HTTPStatus {
		t.Errorf("%+v", converted)
	}
	for _, failed := range []error{store.ErrUnavailable, caddy.APIError{HTTPStatus: http.StatusInternalServerError, Err: errors.New("x")}} {
		if converted, ok := errors.AsType[*oauth2.Error](convertError(failed)); ok {
			t.Errorf("%v: %+v", failed, converted)
		}
	}
}
