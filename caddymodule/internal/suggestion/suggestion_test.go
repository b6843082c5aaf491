package suggestion

import "testing"

func TestNearest(t *testing.T) {
	t.Parallel()
	candidates := []string{"issuer", "fhir_base", "redirect_uri", "response_type", "password_hash", "scope", "user", "offline_access", "online_access"}
	for word, want := range map[string]string{
		"isuer":           "issuer",
		"isseur":          "issuer",
		"redirect_uris":   "redirect_uri",
		"redirectUri":     "redirect_uri",
		"ofline_access":   "offline_access",
		"oflnie_access":   "offline_access",
		"scopes":          "scope",
		"password":        "password_hash",
		"fhir-base":       "fhir_base",
		"Issuer":          "issuer",
		"use":             "user",
		"token":           "",
		"x":               "",
		"":                "",
		"resource_server": "",
	} {
		if got := Nearest(word, candidates); got != want {
			t.Errorf("%s: got %q, want %q", word, got, want)
		}
	}
}

func TestTypingErrors(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"abc", "abc", 0}, {"abc", "acb", 1}, {"abc", "ab", 1}, {"abc", "axc", 1}, {"kitten", "sitting", 3}, {"ca", "abc", 3}} {
		if got := CountTypingErrors(tt.a, tt.b); got != tt.want {
			t.Errorf("%q and %q: %d, want %d", tt.a, tt.b, got, tt.want)
		}
	}
}
