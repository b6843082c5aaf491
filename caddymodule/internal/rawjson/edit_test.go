package rawjson_test

import (
	"errors"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/rawjson"
)

func TestEdit(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, object, with, without string }{
		{"empty", `{}`, `{"b":[0]}`, `{}`},
		{"empty, with white space", " { } ", ` {"b":[0] } `, " { } "},
		{"absent", `{"a": 1 }`, `{"a": 1,"b":[0] }`, `{"a": 1 }`},
		{"absent, indented", "{\n  \"a\": 1\n}\n", "{\n  \"a\": 1,\"b\":[0]\n}\n", "{\n  \"a\": 1\n}\n"},
		{"alone", `{ "b" : 1 }`, `{ "b" : [0] }`, `{ }`},
		{"first", "{\n  \"b\": 1 ,\n  \"a\": 2.50\n}", "{\n  \"b\": [0] ,\n  \"a\": 2.50\n}", "{\n  \"a\": 2.50\n}"},
		{"in the middle", `{"a":{"b":1}, "b":"," ,"c":3}`, `{"a":{"b":1}, "b":[0] ,"c":3}`, `{"a":{"b":1} ,"c":3}`},
		{"last", "{\n  \"a\": 1,\n  \"b\": {\"b\":2}\n}", "{\n  \"a\": 1,\n  \"b\": [0]\n}", "{\n  \"a\": 1\n}"},
		{"escaped", `{"a":1,"\u0062":2}`, `{"a":1,"\u0062":[0]}`, `{"a":1}`},
		{"nested alone", `{"a":{"b":1}}`, `{"a":{"b":1},"b":[0]}`, `{"a":{"b":1}}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			object := []byte(test.object)
			if got, err := rawjson.WithMember(object, "b", []byte("[0]")); err != nil || string(got) != test.with {
				t.Errorf("with: %s, %v", got, err)
			}
			without, err := rawjson.WithoutMember(object, "b")
			if err != nil || string(without) != test.without {
				t.Errorf("without: %s, %v", without, err)
			}
			clear(without)
			if string(object) != test.object {
				t.Errorf("changed: %s", object)
			}
		})
	}
}

func TestEditRefuses(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, object string
		want         error
	}{
		{"no object", `[]`, rawjson.ErrKind},
		{"nothing", ``, rawjson.ErrSyntax},
		{"a trailing comma", `{"b":1,}`, rawjson.ErrSyntax},
		{"something behind", `{"b":1} x`, rawjson.ErrSyntax},
		{"the name twice", `{"b":1,"b":2}`, rawjson.ErrDuplicate},
		{"another name twice", `{"a":1,"b":{"c":1,"c":2}}`, rawjson.ErrDuplicate},
	} {
		if got, err := rawjson.WithMember([]byte(test.object), "b", []byte("1")); got != nil || !errors.Is(err, test.want) {
			t.Errorf("%s, with: %s, %v", test.name, got, err)
		}
		if got, err := rawjson.WithoutMember([]byte(test.object), "b"); got != nil || !errors.Is(err, test.want) {
			t.Errorf("%s, without: %s, %v", test.name, got, err)
		}
	}
	for _, value := range []string{"", "1,", `1,"c":2`, "}", "x"} {
		if got, err := rawjson.WithMember([]byte(`{}`), "b", []byte(value)); got != nil || !errors.Is(err, rawjson.ErrSyntax) {
			t.Errorf("with %q: %s, %v", value, got, err)
		}
	}
}

func TestEditQuotesNames(t *testing.T) {
	t.Parallel()
	name := "a\"\\\n"
	object, err := rawjson.WithMember([]byte(`{}`), name, []byte("1"))
	if err != nil {
		t.Fatal(err)
	}
	if again, err := rawjson.WithoutMember(object, name); err != nil || string(again) != "{}" {
		t.Errorf("%s, then %s, %v", object, again, err)
	}
}
