package rawjson_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/rawjson"
)

// value decodes the next value like encoding/json with UseNumber.
func value(c *rawjson.Cursor) (any, error) {
	switch c.Kind() {
	case rawjson.Object:
		return object(c)
	case rawjson.Array:
		list := []any{}
		err := c.Array(func() error {
			element, err := value(c)
			list = append(list, element)
			return err
		})
		return list, err
	case rawjson.String:
		return c.Text()
	default:
		return literal(c)
	}
}

func object(c *rawjson.Cursor) (any, error) {
	members := map[string]any{}
	err := c.Object(func(name []byte) (err error) {
		key := string(name)
		members[key], err = value(c)
		return err
	})
	return members, err
}

func literal(c *rawjson.Cursor) (any, error) {
	kind := c.Kind()
	raw, err := c.Raw()
	switch {
	case err != nil || kind == rawjson.Null:
		return nil, err
	case kind == rawjson.Bool:
		return string(raw) == "true", nil
	default:
		return json.Number(raw), nil
	}
}

// decodeOnly decodes a text that consists of a single value.
func decodeOnly(text string) (any, error) {
	c := rawjson.NewCursor([]byte(text))
	read, err := value(c)
	if err != nil {
		return nil, err
	}
	return read, c.CheckEnd()
}

func TestReadObject(t *testing.T) {
	t.Parallel()
	text := ` { "resourceType" : "Observation", "a\u00e9": [1, true ,null,{ }], "subject":{"reference":"Patient/1"}, "id":"x" } `
	c := rawjson.NewCursor([]byte(text))
	var names []string
	var raw, reference string
	err := c.Object(func(name []byte) error {
		names = append(names, string(name))
		switch string(name) {
		case "aé":
			part, err := c.Raw()
			raw = string(part)
			return err
		case "subject":
			return c.Object(func([]byte) (err error) {
				reference, err = c.Text()
				return err
			})
		default:
			return c.Skip()
		}
	})
	if err != nil || c.CheckEnd() != nil {
		t.Fatal(err, c.CheckEnd())
	}
	if want := []string{"resourceType", "aé", "subject", "id"}; !slices.Equal(names, want) {
		t.Errorf("names %q", names)
	}
	if raw != "[1, true ,null,{ }]" || reference != "Patient/1" || c.Offset() != len(text) || c.Kind() != rawjson.None {
		t.Errorf("raw %s, reference %s, offset %d, kind %v", raw, reference, c.Offset(), c.Kind())
	}
}

func TestText(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, text, want string }{
		{"empty", `""`, ""},
		{"plain", `"Patient/1"`, "Patient/1"},
		{"eight bytes", `"12345678"`, "12345678"},
		{"more than eight", `"123456789abcdefgh"`, "123456789abcdefgh"},
		{"not ASCII", `"Zoë, 日本, 😀"`, "Zoë, 日本, 😀"},
		{"all escapes", `"\"\\\/\b\f\n\r\t"`, "\"\\/\b\f\n\r\t"},
		{"by number", `"\u00e9\u65E5\u0000x"`, "é日\x00x"},
		{"a surrogate pair", `"a\ud83d\uDE00b"`, "a😀b"},
		{"an escaped backslash at the end", `"1234567\\"`, `1234567\`},
		{"delete, and the line separator", "\"\x7f\u2028\"", "\x7f\u2028"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := rawjson.NewCursor([]byte(test.text))
			if got, err := c.Text(); err != nil || got != test.want || c.CheckEnd() != nil {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

func TestKinds(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]rawjson.Kind{
		"": rawjson.None, "  ": rawjson.None, "}": rawjson.None, "+1": rawjson.None, "{}": rawjson.Object, "\n[": rawjson.Array,
		`"`: rawjson.String, "-1": rawjson.Number, "0": rawjson.Number, "true": rawjson.Bool, "false": rawjson.Bool, "\t null": rawjson.Null,
	} {
		if got := rawjson.NewCursor([]byte(text)).Kind(); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestWrongKind(t *testing.T) {
	t.Parallel()
	for name, read := range map[string]func(c *rawjson.Cursor) error{
		"object": func(c *rawjson.Cursor) error { return c.Object(func([]byte) error { return c.Skip() }) },
		"array":  func(c *rawjson.Cursor) error { return c.Array(c.Skip) },
		"string": func(c *rawjson.Cursor) error { _, err := c.Text(); return err },
	} {
		c := rawjson.NewCursor([]byte(`  17 `))
		err := read(c)
		var at *rawjson.Error
		if !errors.Is(err, rawjson.ErrKind) || !errors.As(err, &at) || at.Offset != 2 {
			t.Errorf("%s: %v", name, err)
		}
		if want := "number, not " + name; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
		if again := c.Skip(); !errors.Is(again, rawjson.ErrKind) {
			t.Errorf("%s: then %v", name, again)
		}
	}
}

// A callback that reads no value or two values, or that hides an error, does not desynchronize the cursor.
func TestMisbehavingFunctions(t *testing.T) {
	t.Parallel()
	stop := errors.New("stop")
	for _, test := range []struct {
		name string
		read func(c *rawjson.Cursor) error
		want error
	}{
		{"reads nothing", func(*rawjson.Cursor) error { return nil }, rawjson.ErrValueNotRead},
		{"looks at it alone", func(c *rawjson.Cursor) error { c.Kind(); return nil }, rawjson.ErrValueNotRead},
		{"reads two", func(c *rawjson.Cursor) error { _ = c.Skip(); return c.Skip() }, rawjson.ErrSyntax},
		{"hides an error", func(c *rawjson.Cursor) error { _, _ = c.Text(); return nil }, rawjson.ErrKind},
		{"hides where it stopped", func(c *rawjson.Cursor) error {
			_ = c.Object(func([]byte) error { _ = c.Skip(); return stop })
			return nil
		}, stop},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := rawjson.NewCursor([]byte(`{"a":{"x":1,"y":2},"b":3}`))
			if err := c.Object(func([]byte) error { return test.read(c) }); !errors.Is(err, test.want) {
				t.Errorf("object: %v", err)
			}
			if err := c.CheckEnd(); !errors.Is(err, test.want) {
				t.Errorf("end: %v", err)
			}
			c = rawjson.NewCursor([]byte(`[{"x":1,"y":2},{"b":3}]`))
			if err := c.Array(func() error { return test.read(c) }); !errors.Is(err, test.want) {
				t.Errorf("array: %v", err)
			}
		})
	}
}

// Reading allocates only the Cursor (and one more block with -race), regardless of the text.
func TestNoAllocations(t *testing.T) {
	text := bundle(t, true)
	if n := testing.AllocsPerRun(10, func() {
		if err := rawjson.NewCursor(text).AllowDuplicates().Skip(); err != nil {
			t.Error(err)
		}
	}); n != 0 {
		t.Errorf("skipping: %v", n)
	}
	if n := testing.AllocsPerRun(10, func() { entries(t, rawjson.NewCursor(text)) }); n > 2 {
		t.Errorf("reading: %v", n)
	}
}

// entries returns the number of resources in a bundle that have a subject.
func entries(t testing.TB, c *rawjson.Cursor) (count int) {
	if err := readMember(c, "entry", func() error {
		return c.Array(func() error {
			return readMember(c, "resource", func() error {
				return readMember(c, "subject", func() error {
					return readMember(c, "reference", func() error {
						count++
						_, err := c.Bytes()
						return err
					})
				})
			})
		})
	}); err != nil {
		t.Error(err)
	}
	return count
}

// readMember reads one member of the next value, which must be an object.
func readMember(c *rawjson.Cursor, member string, read func() error) error {
	return c.Object(func(name []byte) error {
		if string(name) == member {
			return read()
		}
		return c.Skip()
	})
}

func TestEntries(t *testing.T) {
	t.Parallel()
	for _, indented := range []bool{false, true} {
		if count := entries(t, rawjson.NewCursor(bundle(t, indented)).AllowDuplicates()); count != 50 {
			t.Errorf("%d references", count)
		}
	}
}

func BenchmarkObject(b *testing.B) {
	text := bundle(b, true)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		entries(b, rawjson.NewCursor(text).AllowDuplicates())
	}
}

// readers are the ways to read an entire text. Each must detect every error.
var readers = map[string]func(text string) error{
	"skipped": func(text string) error { return rawjson.Check([]byte(text)) },
	"skipped, duplicates allowed": func(text string) error {
		c := rawjson.NewCursor([]byte(text)).AllowDuplicates()
		if err := c.Skip(); err != nil {
			return err
		}
		return c.CheckEnd()
	},
	"read": func(text string) error { _, err := decodeOnly(text); return err },
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
		offset     int // 0 if there are no duplicates
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
	// Only values that are still open count toward the depth.
	if err := rawjson.Check([]byte("[" + strings.Repeat("[[]],", 1000) + "[]]")); err != nil {
		t.Error(err)
	}
}

// longest is the maximum length of the strings in these tests: several eight-byte words and a remainder.
const longest = 40

// forEachString calls check with strings of each length that contain one special part at each position.
func forEachString(check func(content string)) {
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

// Whether a string is valid does not depend on its position within a word, on the text that follows, or on the reader.
func TestEveryPlace(t *testing.T) {
	t.Parallel()
	layouts := []string{`"%s"`, `"%s`, `["%s"]`, `["1234","%s",1]`, `{"%s":1}`, `{"%s" : 1 }`, `{"a":"%s","%[1]s":""}`, `{"1":{"%s":[]}, "2":3}`}
	forEachString(func(content string) {
		for _, layout := range layouts {
			text := fmt.Sprintf(layout, content)
			want := jsontext.Value(text).IsValid()
			for way, read := range readers {
				if err := read(text); (err == nil) != want {
					t.Errorf("%s: %q: %v", way, text, err)
				}
			}
		}
	})
}

// Whitespace of any length is accepted between tokens. Other space-like characters, such as \v and U+00A0, are rejected.
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

// A duplicate name of any length is detected. Names that differ in one character are not duplicates.
func TestEveryName(t *testing.T) {
	t.Parallel()
	for length := range longest + 1 {
		name := strings.Repeat("abcdefghij", 4)[:length]
		checkDuplicate(t, name, name, true)
		checkDuplicate(t, name, name+"a", false)
		for at := range length {
			checkDuplicate(t, name, name[:at]+"-"+name[at+1:], false)
			escaped := fmt.Sprintf(`%s\u%04x%s`, name[:at], name[at], name[at+1:])
			checkDuplicate(t, name, escaped, true)
			checkDuplicate(t, escaped, name, true)
			checkDuplicate(t, escaped, escaped, true)
		}
	}
}

// checkDuplicate checks two names in an object, both adjacent and separated by more names than the filter has bits.
func checkDuplicate(t *testing.T, first, second string, twice bool) {
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

// Numbers are parsed as by encoding/json, both at the end of a text and before other text.
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

// A text is valid if and only if jsontext, which is equally strict, accepts it. Its value is what encoding/json decodes.
func FuzzCursor(f *testing.F) {
	for _, text := range []string{
		`{"a":[1,-0.5e+10,true,false,null,"x"],"b":{"c":"\u00e9\ud83d\ude00\n"}}`, " [ ] ", `"é"`, `{"a":1,"\u0061":2}`, "01", `"\ud800"`, "\"\xff\"",
		`{"12345678":"12345678"}`, "[1,]", "{\n        \"a\": 1\n}",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		before := bytes.Clone(text)
		err := rawjson.Check(text)
		got, readErr := decodeOnly(string(text))
		if !bytes.Equal(text, before) {
			t.Fatal("the text was changed")
		}
		if (err == nil) != (readErr == nil) || err != nil && err.Error() != readErr.Error() {
			t.Fatalf("skipped: %v, read: %v", err, readErr)
		}
		if errors.Is(err, rawjson.ErrDepth) {
			return
		}
		if valid := jsontext.Value(text).IsValid(); valid != (err == nil) {
			t.Fatalf("error %v, jsontext reports %v", err, valid)
		}
		loose := rawjson.NewCursor(text).AllowDuplicates()
		looseErr := errors.Join(loose.Skip(), loose.CheckEnd())
		if valid := jsontext.Value(text).IsValid(jsontext.AllowDuplicateNames(true)); valid != (looseErr == nil) {
			t.Fatalf("duplicates allowed: error %v, jsontext reports %v", looseErr, valid)
		}
		if err == nil {
			checkValue(t, text, got)
		}
	})
}

func checkValue(t *testing.T, text []byte, got any) {
	t.Helper()
	want := unmarshal(t, text)
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("read %#v, want %#v", got, want)
	}
	members, ok := want.(map[string]any)
	if !ok {
		return
	}
	for name := range members {
		without, err := rawjson.WithoutMember(text, name)
		if err != nil {
			t.Fatal(err)
		}
		with, err := rawjson.WithMember(without, name, []byte("[0]"))
		if err != nil {
			t.Fatal(err)
		}
		changed := unmarshal(t, with).(map[string]any)
		if changed[name] = members[name]; len(unmarshal(t, without).(map[string]any)) != len(members)-1 || !reflect.DeepEqual(changed, want) {
			t.Fatalf("without %q: %s, with it: %s", name, without, with)
		}
	}
}

func unmarshal(t *testing.T, text []byte) (value any) {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		t.Fatal(err)
	}
	return value
}

// entry is the format of an entry in a Bundle of search results. The argument of each verb is the id of the resource.
const entry = `{"fullUrl":"https://fhir.example.org/fhir/R4/Observation/%[1]d","resource":{"resourceType":"Observation","id":"%[1]d",
"meta":{"versionId":"1","lastUpdated":"2026-03-04T05:06:07.089+00:00","source":"#5Yp8mQ2rTz1aBcDe","profile":["http://hl7.org/fhir/StructureDefinition/vitalsigns"]},
"text":{"status":"generated","div":"<div xmlns=\"http://www.w3.org/1999/xhtml\">Blood pressure of Zoë Müller: 107/60 mmHg</div>"},
"identifier":[{"use":"official","system":"urn:ietf:rfc:3986","value":"urn:uuid:187e0c12-8dd2-67e2-99b2-bf273c878281"}],
"status":"final","category":[{"coding":[{"system":"http://terminology.hl7.org/CodeSystem/observation-category","code":"vital-signs","display":"Vital Signs"}]}],
"code":{"coding":[{"system":"http://loinc.org","code":"85354-9","display":"Blood pressure panel with all children optional"}],"text":"Blood pressure"},
"subject":{"reference":"Patient/%[1]d"},"encounter":{"reference":"Encounter/1%[1]d"},"effectiveDateTime":"2026-03-04T05:06:07+01:00",
"performer":[{"reference":"Practitioner/example","display":"Dr. Adam Careful"}],
"interpretation":[{"coding":[{"system":"http://terminology.hl7.org/CodeSystem/v3-ObservationInterpretation","code":"L","display":"low"}]}],
"component":[{"code":{"coding":[{"system":"http://loinc.org","code":"8480-6","display":"Systolic blood pressure"}]},
"valueQuantity":{"value":107.5,"unit":"mmHg","system":"http://unitsofmeasure.org","code":"mm[Hg]"}},
{"code":{"coding":[{"system":"http://loinc.org","code":"8462-4","display":"Diastolic blood pressure"}]},
"valueQuantity":{"value":60,"unit":"mmHg","system":"http://unitsofmeasure.org","code":"mm[Hg]"}}]},
"search":{"mode":"match"}}`

// bundle returns a page of search results as servers format it, compact or indented.
func bundle(t testing.TB, indented bool) []byte {
	t.Helper()
	var raw, text bytes.Buffer
	raw.WriteString(`{"resourceType":"Bundle","id":"page","type":"searchset","total":50,"entry":[`)
	for id := range 50 {
		if id > 0 {
			raw.WriteByte(',')
		}
		fmt.Fprintf(&raw, entry, id)
	}
	raw.WriteString(`]}`)
	err := json.Compact(&text, raw.Bytes())
	if indented {
		text.Reset()
		err = json.Indent(&text, raw.Bytes(), "", "  ")
	}
	if err != nil {
		t.Fatal(err)
	}
	return text.Bytes()
}

func BenchmarkSkip(b *testing.B) {
	for _, layout := range []struct {
		name     string
		indented bool
	}{{"compact", false}, {"indented", true}} {
		text := bundle(b, layout.indented)
		for _, way := range []struct {
			name string
			read func() error
		}{
			{"Cursor", func() error { return rawjson.NewCursor(text).Skip() }},
			{"Cursor that allows duplicates", func() error { return rawjson.NewCursor(text).AllowDuplicates().Skip() }},
			{"jsontext", func() error { return jsontext.NewDecoder(bytes.NewBuffer(text)).SkipValue() }},
		} {
			b.Run(layout.name+"/"+way.name, func(b *testing.B) {
				b.SetBytes(int64(len(text)))
				b.ReportAllocs()
				for b.Loop() {
					if err := way.read(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
