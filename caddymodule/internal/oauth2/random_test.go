package oauth2

import "testing"

// No id looks like a flag: fhir-keys retire <kid> must work for every key. Without the check, one in 64 would fail.
func TestRandomTokenIsNoFlag(t *testing.T) {
	t.Parallel()
	for range 2000 {
		if token := RandomToken(); token[0] == '-' || len(token) != 43 {
			t.Fatal(token)
		}
	}
}
