package definitions

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/packed"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest/fixture"
)

func TestBrokenDefinitions(t *testing.T) {
	whole := tgz(t, "package/a.json", fixture.SystemWith("http://x/a", "1", strings.Repeat("c", 4000)))
	damaged := bytes.Clone(whole)
	damaged[len(damaged)-6] ^= 1 // in the checksum
	tests := []struct {
		name, file, content, reason string
		is                          error
	}{
		{"truncated JSON", "x.json", fixture.SystemWith("http://x/a", "1", "c")[:80], "EOF", io.ErrUnexpectedEOF},
		{"truncated in a concept", "x.json", fixture.SystemWith("http://x/a", "1", "c")[:110], "EOF", io.ErrUnexpectedEOF},
		{"truncated second resource", "x.json", fixture.SystemWith("http://x/a", "1", "c") + `{"resourceType"`, "EOF", io.ErrUnexpectedEOF},
		{"no JSON", "x.json", "resourceType: ValueSet", "invalid character 'r'", nil},
		{"more after the resource", "x.json", fixture.SystemWith("http://x/a", "1", "c") + `]`, "want an object", nil},
		{"empty", "x.json", " \n", "empty", errEmpty},
		{"no resource", "x.json", `{"name":"x","version":"1"}`, "no resourceType", fhirjson.ErrNoResourceType},
		{"no object", "x.json", `["a"]`, "want an object, found an array", nil},
		{"number for a string", "x.json", `{"resourceType":"ValueSet","url":7}`, "/url: want a string, found a number", nil},
		{"null for a string", "x.json", `{"resourceType":"ValueSet","url":null}`, "want a string, found null", nil},
		{"string for a boolean", "x.json", `{"resourceType":"CodeSystem","caseSensitive":"yes"}`, "want true or false, found a string", nil},
		{"object for an array", "x.json", `{"resourceType":"CodeSystem","concept":{"code":"a"}}`, "/concept: want an array, found an object", nil},
		{"array for a compose", "x.json", `{"resourceType":"ValueSet","compose":[]}`, "/compose: want an object", nil},
		{"wrong type deep down", "x.json", `{"resourceType":"CodeSystem","concept":[{"code":"a","concept":[{"code":1}]}]}`, "/concept/0/concept/0/code: want a string", nil},
		{"wrong type before resourceType", "x.json", `{"compose":{"include":1},"resourceType":"ValueSet"}`, "compose: /include: want an array", nil},
		{"concept without code", "x.json", `{"resourceType":"CodeSystem","concept":[{"display":"a"}]}`, "concept without a code", nil},
		{"property without code", "x.json", `{"resourceType":"CodeSystem","concept":[{"code":"a","property":[{"valueString":"b"}]}]}`, "/concept/0/property/0: property without a code", nil},
		{"listed concept without code", "x.json", fixture.ValueSet("http://x/a", `{"include":[{"system":"s","concept":[{"display":"a"}]}]}`), "/include/0/concept/0: concept without a code", nil},
		{"invalid UTF-8", "x.json", "{\"resourceType\":\"CodeSystem\",\"url\":\"\xff\"}", "invalid UTF-8", nil},
		{"bundles in bundles", "x.json", strings.Repeat(`{"resourceType":"Bundle","entry":[{"resource":`, 20), "nested deeper", nil},
		{"other extension", "x.txt", "", "none of .json, .xml, .tgz", nil},
		{"XML in a build without XML", "x.xml", `<ValueSet xmlns="http://hl7.org/fhir"/>`, "cannot convert FHIR XML", nil},
		{"no gzip", "x.tgz", "PK\x03\x04 something that is not gzip", "gzip", gzip.ErrHeader},
		{"empty package", "x.tgz", "", "EOF", nil},
		{"truncated package", "x.tgz", string(whole[:len(whole)/2]), "unexpected EOF", io.ErrUnexpectedEOF},
		{"package without its end", "x.tgz", string(whole[:len(whole)-4]), "unexpected EOF", io.ErrUnexpectedEOF},
		{"damaged package", "x.tgz", string(damaged), "checksum", gzip.ErrChecksum},
		{"broken file in a package", "x.tgz", string(tgz(t, "package/bad.json", `{"resourceType":`)), "package/bad.json", io.ErrUnexpectedEOF},
		{"no FHIR package", "x.tgz", string(tgz(t, "README", "hello")), "not a FHIR package", nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			name := filepath.Join(t.TempDir(), test.file)
			fixture.WriteFile(t, name, []byte(test.content))
			_, err := Load(t.Context(), Options{Definitions: []string{name}})
			if err == nil {
				t.Fatal("no error")
			}
			fixture.WantText(t, err.Error(), name, test.reason)
			if test.is != nil && !errors.Is(err, test.is) {
				t.Errorf("%v does not wrap %v", err, test.is)
			}
		})
	}
}

// A table that the program brings along is not read before somebody asks for its concepts.
func TestSourceIsNotRead(t *testing.T) {
	source := codesystem.Source{URL: "http://x/packed", System: packed.New([]byte("not readable"))}
	l, err := Load(t.Context(), Options{Sources: []codesystem.Source{source}})
	if err != nil {
		t.Fatal(err)
	}
	l.IndexLarge(t.Context(), NoLog)
	if got := l.Counts(); got != (Counts{}) {
		t.Errorf("got %v", got)
	}
	cs := l.Systems.CodeSystems[l.Systems.CodeSystem(source.URL, "")]
	defer func() {
		if recover() == nil {
			t.Error("want a panic once it is read: is it the table?")
		}
	}()
	cs.Concepts.Len()
}

// The value sets of a source are there, unless the definitions have them too.
func TestValueSetsOfSource(t *testing.T) {
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	valueSet := func(url, name string) string {
		return `{"resourceType":"ValueSet","url":"` + url + `","name":"` + name + `"}`
	}
	source := codesystem.Source{
		URL: "http://x/own", System: packed.New(nil), ValueSets: w.EncodeAll([]byte(valueSet("http://x/a", "Own")+valueSet("http://x/b", "Own")), nil),
	}
	name := filepath.Join(t.TempDir(), "b.json")
	if err := os.WriteFile(name, []byte(valueSet("http://x/b", "Loaded")), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := Load(t.Context(), Options{Sources: []codesystem.Source{source}, Definitions: []string{name}})
	if err != nil {
		t.Fatal(err)
	}
	for url, want := range map[string]string{"http://x/a": "Own", "http://x/b": "Loaded"} {
		if vs, ok := l.ValueSets.Find(url); !ok || vs.Name != want {
			t.Errorf("%s: got %+v, want the one named %s", url, vs, want)
		}
	}
	source.ValueSets = []byte("no zstd")
	if _, err := Load(t.Context(), Options{Sources: []codesystem.Source{source}}); err == nil {
		t.Error("no error for data that cannot be read")
	}
}
