package controlchar

import (
	"encoding/json"
	"testing"
)

func TestRemove(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string][2]string{
		"plain":               {"Ada Lovelace\n\tÅsa", "Ada Lovelace\n\tÅsa"},
		"right-to-left names": {"דנה לוי محمد", "דנה לוי محمد"},
		"joiners of a script": {"علی\u200cرضا \u200dक्\u200dष", "علی\u200cرضا \u200dक्\u200dष"},
		"overrides":           {"a\u202ab\u202bc\u202cd\u202de\u202ef", "abcdef"},
		"isolates":            {"a\u2066b\u2067c\u2068d\u2069e", "abcde"},
		"marks":               {"a\u200eb\u200fc\u061cd", "abcd"},
		"terminal":            {"a\x1b[2Jb\r\x00\x7f\u009bc", "a[2Jbc"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := Remove(tt[0], "\n\t"); got != tt[1] {
				t.Errorf("%q, want %q", got, tt[1])
			}
		})
	}
}

func TestEscapeJSON(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"Ada דנה 👩": `"Ada דנה 👩"`, "a\u202eb\u061c": `"a\u202eb\u061c"`, "\x7f\u009b\x1b\n": `"\u007f\u009b\u001b\n"`,
	} {
		text, err := json.Marshal(name)
		got := string(EscapeJSON(text))
		var decoded string
		if err == nil {
			err = json.Unmarshal([]byte(got), &decoded)
		}
		if got != want || decoded != name || err != nil {
			t.Errorf("%s, %v, want %s", got, err, want)
		}
	}
}
