package rawjson_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/rawjson"
)

// longest is how long the strings of these tests are at most: several words of eight bytes, and a rest.
const longest = 40

// everyString calls check with strings of each length that have one special part, at each place.
func everyString(check func(said string)) {
	for _, part := range []string{
		`"`, `\`, "\x00", "\x1f", "\t", " ", "!", "#", "[", "]", "\x7f", "\x80", "\x9f", "\xa2", "\xdc", "\xff", "é", "語", "\U0001f600",
		"\xed\xa0\x80", `\"`, `\\`, `\n`, `\u00e9`, `\ud83d\ude00`, `\ud83d`, `\u12`, `\x`,
	} {
		for length := range longest + 1 {
			for at := range length + 1 {
				check(strings.Repeat("a", at) + part + strings.Repeat("z", length-at))
			}
		}
	}
}

// What is valid at one place in a word is so at every other, whatever comes behind, and whoever reads it.
func TestEveryPlace(t *testing.T) {
	t.Parallel()
	layouts := []string{`"%s"`, `"%s`, `["%s"]`, `["1234","%s",1]`, `{"%s":1}`, `{"%s" : 1 }`, `{"a":"%s","%[1]s":""}`, `{"1":{"%s":[]}, "2":3}`}
	everyString(func(said string) {
		for _, layout := range layouts {
			text := fmt.Sprintf(layout, said)
			want := jsontext.Value(text).IsValid()
			for way, read := range readers {
				if err := read(text); (err == nil) != want {
					t.Errorf("%s: %q: %v", way, text, err)
				}
			}
		}
	})
}

// White space of every length may be wherever it may be at all.
func TestEveryWhiteSpace(t *testing.T) {
	t.Parallel()
	for _, other := range []string{"\n", "\t", "\r", "\r\n", "\v", "\x00", "\u00a0", "x"} {
		for length := range longest + 1 {
			for at := range length + 1 {
				space := strings.Repeat(" ", at) + other + strings.Repeat(" ", length-at)
				text := strings.ReplaceAll(`_{_"a"_:_1_,_"b"_:_[_"c"_,_{_}_,_[_]_]_}_`, "_", space)
				for way, read := range readers {
					if err := read(text); (err == nil) != jsontext.Value(text).IsValid() {
						t.Errorf("%s: %q: %v", way, text, err)
					}
				}
			}
		}
	}
}

// A name is found twice however long it is, and not if one of its characters is another.
func TestEveryName(t *testing.T) {
	t.Parallel()
	for length := range longest + 1 {
		name := strings.Repeat("abcdefghij", 4)[:length]
		checkTwice(t, name, name, true)
		checkTwice(t, name, name+"a", false)
		for at := range length {
			checkTwice(t, name, name[:at]+"-"+name[at+1:], false)
			escaped := fmt.Sprintf(`%s\u%04x%s`, name[:at], name[at], name[at+1:])
			checkTwice(t, name, escaped, true)
			checkTwice(t, escaped, name, true)
			checkTwice(t, escaped, escaped, true)
		}
	}
}

// checkTwice has two names in one object, with others in between: none, and more than there are bits for.
func checkTwice(t *testing.T, first, second string, twice bool) {
	t.Helper()
	var between strings.Builder
	for n := range 100 {
		switch n {
		case 0, 1, 30, 31, 99:
			for _, way := range []string{"skipped", "read"} {
				text := fmt.Sprintf(`[{"%s":1,%s"%s":{"x":2}}]`, first, between.String(), second)
				if err := readers[way](text); errors.Is(err, rawjson.ErrDuplicate) != twice || err != nil && !twice {
					t.Errorf("%s: %s: %v", way, text, err)
				}
			}
		}
		fmt.Fprintf(&between, `"%d":{"%d":1},`, n, n)
	}
}

// Numbers are read as encoding/json reads them, at the end of a text and before anything else.
func TestEveryNumber(t *testing.T) {
	t.Parallel()
	parts := []string{"", "-", "0", "1", "42", ".", ".5", ".05", "e", "E7", "e+7", "e-", "e-10"}
	for _, a := range parts {
		for _, b := range parts {
			for _, c := range parts {
				for _, layout := range []string{"%s", "[%s]", "[%s,1]", `{"a":%s}`, `{"a":%s ,"b":[0]}`} {
					text := fmt.Sprintf(layout, a+b+c)
					for way, read := range readers {
						if err := read(text); (err == nil) != jsontext.Value(text).IsValid() {
							t.Errorf("%s: %s: %v", way, text, err)
						}
					}
				}
			}
		}
	}
}
