package rawjson_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/rawjson"
)

// readers are the ways to read a whole text. All must find what is wrong with it.
var readers = map[string]func(text string) error{
	"skipped": func(text string) error { return rawjson.Check([]byte(text)) },
	"skipped, duplicates allowed": func(text string) error {
		c := rawjson.NewCursor([]byte(text)).AllowDuplicates()
		if err := c.Skip(); err != nil {
			return err
		}
		return c.End()
	},
	"read": func(text string) error { _, err := whole(text); return err },
}

func TestMalformed(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, text string
		offset     int
	}{
		{"empty", "", 0},
		{"white space alone", " \n\t\r", 4},
		{"a byte order mark", "\ufeff{}", 0},
		{"a form feed as white space", "\f{}", 0},
		{"a non-breaking space as white space", "\u00a0{}", 0},
		{"a zero byte", "\x00", 0},
		{"a zero byte behind", "{}\x00", 2},
		{"two values", "{} {}", 3},
		{"a comment", "/* */ {}", 0},
		{"no JSON", "undefined", 0},
		{"NaN", "NaN", 0},

		{"an object without end", "{", 1},
		{"an object of commas", "{,}", 1},
		{"a trailing comma in an object", `{"a":1,}`, 7},
		{"a comma alone", `{"a":1,`, 7},
		{"no comma in an object", `{"a":1 "b":2}`, 7},
		{"a semicolon", `{"a":1;"b":2}`, 6},
		{"no colon", `{"a" 1}`, 5},
		{"a colon twice", `{"a"::1}`, 5},
		{"no value", `{"a":}`, 5},
		{"no value, at the end", `{"a":`, 5},
		{"no quotation marks", `{a:1}`, 1},
		{"apostrophes", `{'a':1}`, 1},
		{"a number as a name", `{1:1}`, 1},
		{"the other bracket for an object", `{"a":1]`, 6},
		{"the closing brace alone", "}", 0},

		{"an array without end", "[1", 2},
		{"an array of commas", "[,1]", 1},
		{"a trailing comma in an array", "[1,]", 3},
		{"two commas", "[1,,2]", 3},
		{"no comma in an array", "[1 2]", 3},
		{"the other bracket for an array", "[1}", 2},
		{"a colon in an array", `["a":1]`, 4},

		{"a string without end", `"abc`, 4},
		{"a string without end, of eight", `"12345678`, 9},
		{"a name without end", `{"a`, 3},
		{"a line break in a string", "\"a\nb\"", 2},
		{"a control character in a long string", "\"123456789\x1f\"", 10},
		{"a zero byte in a string", "\"a\x00\"", 2},
		{"an unknown escape", `"a\x41"`, 3},
		{"an escaped apostrophe", `"\'"`, 2},
		{"a capital U", `"\U0041"`, 2},
		{"a backslash at the end", `"\`, 2},
		{"an escaped quotation mark at the end", `"\"`, 3},
		{"three digits", `"\u004"`, 3},
		{"no digits", `"\u`, 3},
		{"a letter among the digits", `"\u00g0"`, 3},
		{"a control character among the digits", "\"\\u00\x100\"", 3},
		{"a high surrogate alone", `"\ud83d"`, 3},
		{"a high surrogate before another character", `"\ud83dx"`, 3},
		{"a high surrogate before another escape", `"\ud83d\n0000"`, 3},
		{"a high surrogate before a letter", `"\ud83d\u0041"`, 3},
		{"two high surrogates", `"\ud83d\ud83d"`, 3},
		{"a low surrogate alone", `"\ude00"`, 3},
		{"surrogates the wrong way round", `"\ude00\ud83d"`, 3},

		{"invalid UTF-8", "\"a\xffb\"", 1},
		{"half a character", "\"a\xc3\"", 1},
		{"half a character before an escape", "\"a\xc3\\n\xa9\"", 1},
		{"an overlong slash", "\"\xc0\xaf\"", 1},
		{"a surrogate in UTF-8", "\"\xed\xa0\x80\"", 1},
		{"beyond Unicode", "\"\xf4\x90\x80\x80\"", 1},
		{"invalid UTF-8 in a name", "{\"12345678\xff\":1}", 2},
		{"invalid UTF-8 outside of strings", "{}\xff", 2},

		{"a leading zero", "01", 0},
		{"a leading zero behind a minus", "-01", 1},
		{"two zeros", "[00]", 1},
		{"a minus alone", "-", 1},
		{"two minuses", "--1", 1},
		{"a plus", "+1", 0},
		{"no digits before the point", ".5", 0},
		{"no digits behind the point", "[1.]", 3},
		{"a point before the exponent", "1.e3", 2},
		{"no digits in the exponent", "1e", 2},
		{"no digits behind the sign", "[1e+]", 4},
		{"hexadecimal", "0x10", 1},
		{"Infinity", "-Infinity", 1},
		{"two points", "1.2.3", 3},

		{"half a literal", "tru", 0},
		{"a literal and more", "[truefalse]", 5},
		{"a literal in capitals", "True", 0},
		{"a literal that ends otherwise", "nulL", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			for way, read := range readers {
				err := read(test.text)
				var at *rawjson.Error
				if !errors.Is(err, rawjson.ErrSyntax) || !errors.As(err, &at) || at.Offset != test.offset {
					t.Errorf("%s: %v", way, err)
				}
			}
		})
	}
}

func TestDuplicates(t *testing.T) {
	t.Parallel()
	var many strings.Builder
	for n := range 1000 {
		fmt.Fprintf(&many, `"name%d":{"x":1},`, n)
	}
	for _, test := range []struct {
		name, text string
		offset     int // 0 if there are none
	}{
		{"none", `{"a":1,"b":2,"A":3,"":4,"ab":5,"ba":6,"aab":7,"abb":8}`, 0},
		{"in two objects", `[{"a":1},{"a":{"a":2}}]`, 0},
		{"next to each other", `{"a":1,"a":2}`, 7},
		{"the empty name", `{"":1,"":2}`, 6},
		{"behind a nested object", `{"a":{"b":1,"c":2},"b":3,"a":4}`, 25},
		{"in a nested object", `{"a":[{"b":1,"b":2}]}`, 13},
		{"escaped", `{"reference":1,"ref\u0065rence":2}`, 15},
		{"many", "{" + many.String() + `"a":1}`, 0},
		{"one of many", "{" + many.String() + `"name7":1}`, 1 + many.Len()},
		{"the last of many", "{" + many.String() + `"name999":1}`, 1 + many.Len()},
		{"behind many", "{" + many.String() + `"new":1,"new":2}`, 1 + many.Len() + 8},
		{"names alike", `{"12345678-a-12345678":1,"12345678-b-12345678":2}`, 0},
		{"long names", `{"12345678-a-12345678":1,"12345678-a-12345678":2}`, 25},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			for _, way := range []string{"skipped", "read"} {
				err := readers[way](test.text)
				var at *rawjson.Error
				if test.offset == 0 && err != nil {
					t.Errorf("%s: %v", way, err)
				}
				if test.offset > 0 && (!errors.Is(err, rawjson.ErrDuplicate) || !errors.As(err, &at) || at.Offset != test.offset) {
					t.Errorf("%s: %v", way, err)
				}
			}
		})
	}
}

func TestAllowDuplicates(t *testing.T) {
	t.Parallel()
	text := []byte(`{"a":{"b":1,"b":2}}`)
	if err := rawjson.NewCursor(text).AllowDuplicates().Skip(); err != nil {
		t.Error(err)
	}
	c := rawjson.NewCursor(text).AllowDuplicates()
	err := c.Object(func([]byte) error { return c.Object(func([]byte) error { return c.Skip() }) })
	if !errors.Is(err, rawjson.ErrDuplicate) {
		t.Errorf("read: %v", err)
	}
}

func TestDepth(t *testing.T) {
	t.Parallel()
	for _, brackets := range [][2]string{{"[", "]"}, {`{"a":`, "}"}, {`[{"a":`, "}]"}} {
		each := strings.Count(brackets[0], "[") + strings.Count(brackets[0], "{")
		for way, read := range readers {
			times := rawjson.MaxDepth / each
			if err := read(strings.Repeat(brackets[0], times) + "1" + strings.Repeat(brackets[1], times)); err != nil {
				t.Errorf("%s, %s, %d deep: %v", brackets, way, rawjson.MaxDepth, err)
			}
			err := read(strings.Repeat(brackets[0], 100_000))
			var at *rawjson.Error
			if !errors.Is(err, rawjson.ErrDepth) || !errors.As(err, &at) || at.Offset != times*len(brackets[0]) {
				t.Errorf("%s, %s, too deep: %v", brackets, way, err)
			}
		}
	}
	// The depth is of what is open.
	if err := rawjson.Check([]byte("[" + strings.Repeat("[[]],", 1000) + "[]]")); err != nil {
		t.Error(err)
	}
}
