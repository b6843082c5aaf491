package people

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"
)

// Stored accounts keep their members: others could not be read by other gateways during an upgrade.
func TestStoredAccountMembers(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal(storedAccount{User: User{ID: "x", Patients: []string{"x"}, TokensBoundTo: "x", username: "x", Groups: []string{"x"}}})
	if err != nil {
		t.Fatal(err)
	}
	var account, user map[string]json.RawMessage
	if err := json.Unmarshal(text, &account); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(account["user"], &user); err != nil {
		t.Fatal(err)
	}
	if got, want := slices.Sorted(maps.Keys(account)), []string{"issuer", "provider", "subject", "user"}; !slices.Equal(got, want) {
		t.Errorf("account: %q, want %q", got, want)
	}
	want := []string{"Claims", "Disabled", "Email", "EmailVerified", "FHIRUser", "ID", "Name", "PasswordHash", "Patients", "Phone", "TOTPSecret"}
	if got := slices.Sorted(maps.Keys(user)); !slices.Equal(got, want) {
		t.Errorf("user: %q, want %q", got, want)
	}
}
