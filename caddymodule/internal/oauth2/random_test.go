package oauth2

import "testing"

// No id is read as a flag: fhir-keys retire <kid> has to work for every key. One in 64 did not.
func TestRandomTokenIsNoFlag(t *testing.T) {
	t.Parallel()
	for range 2000 {
		if token := RandomToken(); token[0] == '-' || len(token) != 43 {
			t.Fatal(token)
		}
	}
}
