package oauth2

import "testing"

// Random ids do not look like flags, so that fhir-keys retire <kid> works for every key. Otherwise, one in 64 would fail.
func TestRandomTokenIsNoFlag(t *testing.T) {
	t.Parallel()
	for range 2000 {
		if token := RandomToken(); token[0] == '-' || len(token) != 43 {
			t.Fatal(token)
		}
	}
}
