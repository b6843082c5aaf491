package smart

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestParseScopes(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, in string
		want     []string
	}{
		{"none", "", nil},
		{"one", "openid", []string{"openid"}},
		{"several, in their order", "openid launch/patient patient/*.rs", []string{"openid", "launch/patient", "patient/*.rs"}},
		{"repeated", "b a b a", []string{"b", "a"}},
		{"case matters", "a A", []string{"a", "A"}},
		{"all edges of the grammar", "! # [ ] ~", []string{"!", "#", "[", "]", "~"}},
		{"a query", "user/*.rs?code=http://x|y", []string{"user/*.rs?code=http://x|y"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := ParseScopes(test.in)
			if err != nil || !slices.Equal(got, test.want) {
				t.Errorf("got %q, %v, want %q", got, err, test.want)
			}
		})
	}
}

func TestParseScopesMalformed(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, in string }{
		{"a space alone", " "},
		{"leading space", " a"},
		{"trailing space", "a "},
		{"double space", "a  b"},
		{"tab", "a\tb"},
		{"line break", "a\nb"},
		{"carriage return", "a\r"},
		{"quotation mark", `a"b`},
		{"backslash", `a\b`},
		{"control character", "a\x00"},
		{"delete", "a\x7f"},
		{"not ASCII", "ä"},
		{"no-break space", "a\u00a0b"},
		{"invalid UTF-8", "a\xff"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := ParseScopes(test.in)
			if !errors.Is(err, errMalformed) || got != nil {
				t.Errorf("got %q, %v, want errMalformed", got, err)
			}
		})
	}
}

func FuzzParseScopes(f *testing.F) {
	for _, seed := range []string{"", "openid", "a b a", " a", "a  b", "patient/*.rs?x=y", "ä", "a\\b"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		scopes, err := ParseScopes(in)
		if err != nil {
			if !errors.Is(err, errMalformed) || len(scopes) > 0 {
				t.Fatalf("%q: %q, %v", in, scopes, err)
			}
			return
		}
		for i, scope := range scopes {
			if strings.ContainsFunc(scope, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '\\' }) {
				t.Errorf("%q: scope %q breaks the grammar", in, scope)
			}
			if scope == "" || slices.Contains(scopes[:i], scope) {
				t.Errorf("%q: scope %q is empty or repeated", in, scope)
			}
			if !slices.Contains(strings.Split(in, " "), scope) {
				t.Errorf("%q: scope %q is not in it", in, scope)
			}
		}
		again, err := ParseScopes(strings.Join(scopes, " "))
		if err != nil || !slices.Equal(again, scopes) {
			t.Errorf("%q: parsed again %q, %v, want %q", in, again, err, scopes)
		}
	})
}
