package subject

import "testing"

// The names that registration may give to clients are nobody's, whatever their length: that of today has the form of a hash.
func TestCheckConfiguredRegistered(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{"registered-": false, "registered-x": false, "registered-app-of-ours": false, "registered": true, "my-registered-app": true} {
		if err := CheckConfigured(name); (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}
