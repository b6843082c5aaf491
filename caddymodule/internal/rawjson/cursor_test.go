package rawjson_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/rawjson"
)

// value reads the next value as encoding/json does into an any, with Number.
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

// whole reads a text that is one value.
func whole(text string) (any, error) {
	c := rawjson.NewCursor([]byte(text))
	read, err := value(c)
	if err != nil {
		return nil, err
	}
	return read, c.End()
}

func TestWayThrough(t *testing.T) {
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
	if err != nil || c.End() != nil {
		t.Fatal(err, c.End())
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
			if got, err := c.Text(); err != nil || got != test.want || c.End() != nil {
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

// A function that reads nothing, or two values, or hides an error, does not get the cursor out of step.
func TestFunctionsOutOfStep(t *testing.T) {
	t.Parallel()
	stop := errors.New("stop")
	for _, test := range []struct {
		name string
		read func(c *rawjson.Cursor) error
		want error
	}{
		{"reads nothing", func(*rawjson.Cursor) error { return nil }, rawjson.ErrNotRead},
		{"looks at it alone", func(c *rawjson.Cursor) error { c.Kind(); return nil }, rawjson.ErrNotRead},
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
			if err := c.End(); !errors.Is(err, test.want) {
				t.Errorf("end: %v", err)
			}
			c = rawjson.NewCursor([]byte(`[{"x":1,"y":2},{"b":3}]`))
			if err := c.Array(func() error { return test.read(c) }); !errors.Is(err, test.want) {
				t.Errorf("array: %v", err)
			}
		})
	}
}

// Nothing is allocated for what is in the text: reading takes the Cursor alone, and one more piece of memory when built
// with -race.
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

// entries counts the subjects of the resources in a bundle.
func entries(t testing.TB, c *rawjson.Cursor) (count int) {
	if err := in(c, "entry", func() error {
		return c.Array(func() error {
			return in(c, "resource", func() error {
				return in(c, "subject", func() error {
					return in(c, "reference", func() error {
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

// in reads one member of the next value, an object.
func in(c *rawjson.Cursor, member string, read func() error) error {
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
