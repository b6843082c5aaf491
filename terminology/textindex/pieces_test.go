package textindex

import (
	"testing"
)

func TestContaining(t *testing.T) {
	x := New(documents{{Code: "a", Display: "Hypertension"}, {Code: "b", Display: "Hypotension, arterial"}, {Code: "c", Display: "Ménière"}})
	for _, test := range []struct {
		name, part string
		want       int
	}{
		{"in two words", "tension", 2},
		{"at the end", "terial", 1},
		{"a whole word", "hypertension", 1},
		{"with a letter of two bytes", "日本日本日", 0},
		{"pieces of several words", "hypertension arterial", 0},
		{"all but the last letter", "tensiom", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := len(x.containing([]byte(test.part))); got != test.want {
				t.Errorf("got %d words, want %d", got, test.want)
			}
			if test.want > 0 && !x.pieces.mayContain([]byte(test.part)) {
				t.Error("its pieces are not there")
			}
		})
	}
	if x.pieces.mayContain([]byte("zzzzz")) {
		t.Error("pieces of no word are there")
	}
}
