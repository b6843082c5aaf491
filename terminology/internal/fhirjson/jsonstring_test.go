package fhirjson

import (
	"encoding/json"
	"testing"
)

func TestJSONStrings(t *testing.T) {
	for _, s := range []string{"", "plain", "\x00\x1f\x7f", `"\/`, "é😀\u2028", "\xff", "a\xc3", "\xed\xa0\x80", "\ufffd", "\xf0\x9f\x98"} {
		var back, want string
		if err := json.Unmarshal(AppendString(nil, s), &back); err != nil {
			t.Errorf("%q: %v", s, err)
		}
		standard, _ := json.Marshal(s)
		if err := json.Unmarshal(standard, &want); err != nil || back != want {
			t.Errorf("%q: got %q, want %q", s, back, want)
		}
		if string(AppendString(nil, []byte(s))) != string(AppendString(nil, s)) {
			t.Errorf("%q: bytes and string differ", s)
		}
	}
}
