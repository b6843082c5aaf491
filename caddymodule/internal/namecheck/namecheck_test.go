package namecheck

import (
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, text             string
		isSubject, isHeader    bool
		mayBeConfiguredAsAName bool
	}{
		{"one letter", "a", true, true, true},
		{"an address", "alice@hospital.example", true, true, true},
		{"Auth0's", "google-oauth2|1234", true, true, true},
		{"a backslash", `HOSPITAL\alice`, true, true, true},
		{"a space inside", "Alice Adams", true, true, true},
		{"two spaces inside", "Alice  Adams", true, true, true},
		{"255 characters", strings.Repeat("x", 255), true, true, true},
		{"42 characters of base64url", strings.Repeat("A", 42), true, true, true},

		{"the form of a hash", strings.Repeat("A", 43), true, true, false},
		{"a client that registered itself", "registered-" + strings.Repeat("0", 32), true, true, false},

		{"empty", "", false, true, false},
		{"256 characters", strings.Repeat("x", 256), false, true, false},
		{"a space behind", "alice ", false, false, false},
		{"a space before", " alice", false, false, false},
		{"a space alone", " ", false, false, false},
		{"a tab", "al\tice", false, false, false},
		{"NUL", "alice\x00", false, false, false},
		{"CR LF", "alice\r\nX-Admin: 1", false, false, false},
		{"LF", "alice\n", false, false, false},
		{"DEL", "alice\x7f", false, false, false},
		{"not ASCII", "müller", false, false, false},
		{"a no-break space", "alice\u00a0", false, false, false},
		{"invalid UTF-8", "alice\xff", false, false, false},
	} {
		for kind, check := range map[string]struct {
			err  error
			want bool
		}{
			"subject":    {Check(tt.text), tt.isSubject},
			"header":     {CheckHeaderValue(tt.text), tt.isHeader},
			"configured": {CheckConfigured(tt.text), tt.mayBeConfiguredAsAName},
		} {
			if (check.err == nil) != check.want {
				t.Errorf("%s as %s: %v", tt.name, kind, check.err)
			}
		}
	}
}

// Names that registration may assign are rejected regardless of their length. Currently assigned names look like a hash.
func TestCheckConfiguredRegistered(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{"registered-": false, "registered-x": false, "registered-app-of-ours": false, "registered": true, "my-registered-app": true} {
		if err := CheckConfigured(name); (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}
