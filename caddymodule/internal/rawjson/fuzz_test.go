package rawjson_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/rawjson"
)

// A text is valid here if it is for jsontext, which is as strict, and says what encoding/json reads.
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
		got, readErr := whole(string(text))
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
			t.Fatalf("error %v, while jsontext says %v", err, valid)
		}
		loose := rawjson.NewCursor(text).AllowDuplicates()
		looseErr := errors.Join(loose.Skip(), loose.End())
		if valid := jsontext.Value(text).IsValid(jsontext.AllowDuplicateNames(true)); valid != (looseErr == nil) {
			t.Fatalf("duplicates allowed: error %v, while jsontext says %v", looseErr, valid)
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
		without, err := rawjson.Without(text, name)
		if err != nil {
			t.Fatal(err)
		}
		with, err := rawjson.With(without, name, []byte("[0]"))
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
