package smart

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestParseParameters(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, query string
		want        []Parameter
	}{
		{"none", "", nil},
		{"separators only", "&&", nil},
		{"separators too many", "&a=b&&c=d&", []Parameter{{"a", "b"}, {"c", "d"}}},
		{"in their order", "b=1&a=2&b=0", []Parameter{{"b", "1"}, {"a", "2"}, {"b", "0"}}},
		{"no equals sign", "_summary", []Parameter{{"_summary", ""}}},
		{"no value", "name=", []Parameter{{"name", ""}}},
		{"two equals signs", "a=b=c", []Parameter{{"a", "b=c"}}},
		{"modifier", "name:exact=a", []Parameter{{"name:exact", "a"}}},
		{"modifier, encoded", "name%3Aexact=a", []Parameter{{"name:exact", "a"}}},
		{"chain", "subject:Patient.name=a", []Parameter{{"subject:Patient.name", "a"}}},
		{"reverse chain", "_has:Observation:patient:code=a", []Parameter{{"_has:Observation:patient:code", "a"}}},
		{"plus", "a=b+c", []Parameter{{"a", "b c"}}},
		{"plus, encoded", "a=b%2bc", []Parameter{{"a", "b+c"}}},
		{"bar", "a=b|c", []Parameter{{"a", "b|c"}}},
		{"decoded once", "a=%2500", []Parameter{{"a", "%00"}}},
		{"UTF-8", "a=%C3%A4", []Parameter{{"a", "ä"}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := ParseParameters(test.query)
			if err != nil || !slices.Equal(got, test.want) {
				t.Errorf("got %q, %v, want %q", got, err, test.want)
			}
		})
	}
}

func TestParseParametersRefused(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, query string }{
		{"no name", "=a"},
		{"semicolon", "a=b;c=d"},
		{"semicolon in a name", "a;b=c"},
		{"number sign", "a=b#c"},
		{"cut escape", "a=%2"},
		{"no escape", "a=%gg"},
		{"cut escape in a name", "a%=b"},
		{"NUL", "a=b%00"},
		{"NUL in a name", "a%00=b"},
		{"invalid UTF-8", "a=%C3%28"},
		{"overlong UTF-8", "a=%C0%AF"},
		{"surrogate", "a=%ED%A0%80"},
		{"UTF-8, not encoded", "a=ä"},
		{"Latin-1, not encoded", "a=\xe4"},
		{"space", "a=b c"},
		{"line break", "a=b\r\nc"},
		{"delete", "a=\x7f"},
		{"brackets in a name", "a[]=b"},
		{"space in a name", "a+b=c"},
		{"question mark in a name", "Patient?a=b"},
		{"separator in a name", "a%26b=c"},
		{"equals sign in a name", "a%3Db=c"},
		{"letters like ours in a name", "%D0%B0=b"},
		{"after a good one", "a=b&c=%"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := ParseParameters(test.query)
			if !errors.Is(err, errParameters) || got != nil {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}

func FuzzParseParameters(f *testing.F) {
	for _, seed := range []string{"", "a=b&c=d", "a", "a=b+c%20d", "a=%2541", "code=http://loinc.org|1", "a=b;c", "&=%"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, query string) {
		list, err := ParseParameters(query)
		if err != nil {
			if !errors.Is(err, errParameters) || list != nil {
				t.Fatalf("%q: %q, %v", query, list, err)
			}
			return
		}
		if strings.ContainsAny(query, ";#\x00") {
			t.Errorf("%q is read as %q", query, list)
		}
		again, err := ParseParameters(EncodeParameters(list))
		if err != nil || !slices.Equal(again, list) {
			t.Errorf("%q: read again %q, %v, want %q", query, again, err, list)
		}
	})
}
