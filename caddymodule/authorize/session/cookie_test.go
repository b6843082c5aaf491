package session

import "testing"

// fhir-sessions end <sid> has to work for every session.
func TestSIDIsNoFlag(t *testing.T) {
	t.Parallel()
	for range 2000 {
		if sid := sidOf(newRoot()); sid[0] == '-' {
			t.Fatal(sid)
		}
	}
}
