package compose

import "testing"

func TestRegexStates(t *testing.T) {
	for pattern, want := range map[string]int{
		"abc": 3, "a(b": 0, "[a-z]": 1, "[a-z0-9]*": 2, "a|bc": 4, "a{1000}": 1000, "a{7,}": 7, "((a{2}){3}){4}": 40,
	} {
		if got, err := regexStates(pattern); got != want || (err != nil) != (want == 0) {
			t.Errorf("%s: got %d, %v, want %d", pattern, got, err, want)
		}
	}
}
