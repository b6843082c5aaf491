package definitions

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/embeddedtable"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/offheap"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest/fixture"
)

func TestBrokenDefinitions(t *testing.T) {
	archive := fixture.Package(t, "package/a.json", fixture.SingleConceptCodeSystem("http://x/a", "1", strings.Repeat("c", 4000)))
	damaged := bytes.Clone(archive)
	damaged[len(damaged)-6] ^= 1 // corrupts the checksum
	tests := []struct {
		name, file, content, reason string
		is                          error
	}{
		{"truncated JSON", "x.json", fixture.SingleConceptCodeSystem("http://x/a", "1", "c")[:80], "EOF", io.ErrUnexpectedEOF},
		{"truncated in a concept", "x.json", fixture.SingleConceptCodeSystem("http://x/a", "1", "c")[:110], "EOF", io.ErrUnexpectedEOF},
		{"truncated second resource", "x.json", fixture.SingleConceptCodeSystem("http://x/a", "1", "c") + `{"resourceType"`, "EOF", io.ErrUnexpectedEOF},
		{"no JSON", "x.json", "resourceType: ValueSet", "invalid character 'r'", nil},
		{"unexpected content after the resource", "x.json", fixture.SingleConceptCodeSystem("http://x/a", "1", "c") + `]`, "expected an object", nil},
		{"empty", "x.json", " \n", "no resource found", errNoResources},
		{"no resource", "x.json", `{"name":"x","version":"1"}`, "no resourceType", fhirjson.ErrNoResourceType},
		{"no object", "x.json", `["a"]`, "expected an object, found an array", nil},
		{"number for a string", "x.json", `{"resourceType":"ValueSet","url":7}`, "/url: expected a string, found a number", nil},
		{"null for a string", "x.json", `{"resourceType":"ValueSet","url":null}`, "expected a string, found null", nil},
		{"string for a boolean", "x.json", `{"resourceType":"CodeSystem","caseSensitive":"yes"}`, "expected true or false, found a string", nil},
		{"object for an array", "x.json", `{"resourceType":"CodeSystem","concept":{"code":"a"}}`, "/concept: expected an array, found an object", nil},
		{"array for a compose", "x.json", `{"resourceType":"ValueSet","compose":[]}`, "/compose: expected an object", nil},
		{"wrong type deep down", "x.json", `{"resourceType":"CodeSystem","concept":[{"code":"a","concept":[{"code":1}]}]}`, "/concept/0/concept/0/code: expected a string", nil},
		{"wrong type before resourceType", "x.json", `{"compose":{"include":1},"resourceType":"ValueSet"}`, "compose: /include: expected an array", nil},
		{"concept without code", "x.json", `{"resourceType":"CodeSystem","concept":[{"display":"a"}]}`, "concept without a code", nil},
		{"property without code", "x.json", `{"resourceType":"CodeSystem","concept":[{"code":"a","property":[{"valueString":"b"}]}]}`, "/concept/0/property/0: property without a code", nil},
		{"listed concept without code", "x.json", fixture.ValueSet("http://x/a", `{"include":[{"system":"s","concept":[{"display":"a"}]}]}`), "/include/0/concept/0: concept without a code", nil},
		{"invalid UTF-8", "x.json", "{\"resourceType\":\"CodeSystem\",\"url\":\"\xff\"}", "invalid UTF-8", nil},
		{"bundles in bundles", "x.json", strings.Repeat(`{"resourceType":"Bundle","entry":[{"resource":`, 20), "nested more than 8 deep", nil},
		{"other extension", "x.txt", "", "none of .json, .xml, .tgz", nil},
		{"XML in a build without XML", "x.xml", `<ValueSet xmlns="http://hl7.org/fhir"/>`, "cannot convert FHIR XML", nil},
		{"no gzip", "x.tgz", "PK\x03\x04 something that is not gzip", "gzip", gzip.ErrHeader},
		{"empty package", "x.tgz", "", "EOF", nil},
		{"truncated package", "x.tgz", string(archive[:len(archive)/2]), "unexpected EOF", io.ErrUnexpectedEOF},
		{"package without its end", "x.tgz", string(archive[:len(archive)-4]), "unexpected EOF", io.ErrUnexpectedEOF},
		{"damaged package", "x.tgz", string(damaged), "checksum", gzip.ErrChecksum},
		{"broken file in a package", "x.tgz", string(fixture.Package(t, "package/bad.json", `{"resourceType":`)), "package/bad.json", io.ErrUnexpectedEOF},
		{"no FHIR package", "x.tgz", string(fixture.Package(t, "README", "hello")), "not a FHIR package", nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			name := filepath.Join(t.TempDir(), test.file)
			fixture.WriteFile(t, name, []byte(test.content))
			_, err := Load(t.Context(), Options{Definitions: []string{name}})
			if err == nil {
				t.Fatal("no error")
			}
			fixture.WantContains(t, err.Error(), name, test.reason)
			if test.is != nil && !errors.Is(err, test.is) {
				t.Errorf("%v does not wrap %v", err, test.is)
			}
		})
	}
}

// TestSourceIsNotRead checks that an embedded table is not read before its concepts are requested.
func TestSourceIsNotRead(t *testing.T) {
	source := codesystem.Source{URL: "http://x/packed", System: embeddedtable.New([]byte("not readable"))}
	l, err := Load(t.Context(), Options{Sources: []codesystem.Source{source}})
	if err != nil {
		t.Fatal(err)
	}
	l.IndexLarge(t.Context(), DiscardLogger)
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

// TestValueSetsOfSource checks that the value sets of a source are available unless a definition replaces them.
func TestValueSetsOfSource(t *testing.T) {
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	valueSet := func(url, name string) string {
		return `{"resourceType":"ValueSet","url":"` + url + `","name":"` + name + `"}`
	}
	source := codesystem.Source{
		URL: "http://x/own", System: embeddedtable.New(nil), ValueSets: w.EncodeAll([]byte(valueSet("http://x/a", "Own")+valueSet("http://x/b", "Own")), nil),
	}
	name := filepath.Join(t.TempDir(), "b.json")
	fixture.WriteFile(t, name, []byte(valueSet("http://x/b", "Loaded")))
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

// TestDefinitionBombs checks that the error for a file that would exhaust memory identifies the oversized value.
func TestDefinitionBombs(t *testing.T) {
	long := strings.Repeat("a", fhirjson.MaxString)
	empties := `{"resourceType":"ConceptMap","group":[{"element":[` + strings.Repeat("{},", maxFileOverhead/(smallPartSize-4)*6/10) + `{}]}]}`
	bundleOf := func(n int, resource string) string {
		return `{"resourceType":"Bundle","entry":[` + fixture.Repeat(n, func(int) string { return `{"resource":` + resource + `}` }) + `]}`
	}
	for _, test := range []struct {
		name, file, content string
		options             Options
		want                []string
	}{
		{name: "a value", file: "x.json", content: `{"resourceType":"ValueSet","compose":{"x":"` + long + `"}}`, options: Options{MaxValue: 1 << 20}, want: []string{"x.json", "a value is larger than the limit of 1 MiB"}},
		{name: "a value that is not wanted", file: "x.json", content: `{"resourceType":"Patient","photo":"` + long + `"}`, options: Options{MaxValue: 1 << 20}, want: []string{"a value is larger than the limit of 1 MiB"}},
		{name: "a value before its resourceType", file: "x.json", content: `{"concept":[` + strings.Repeat(`{"code":"a"},`, 1<<18), options: Options{MaxValue: 1 << 20}, want: []string{"a value is larger than the limit of 1 MiB"}},
		{name: "a string", file: "x.json", content: `{"resourceType":"CodeSystem","concept":[{"code":"a","display":"` + long + `"}]}`, want: []string{"/concept/0/display", "a string is larger than the limit of 4 MiB"}},
		{name: "deep", file: "x.json", content: `{"resourceType":"CodeSystem","concept":` + strings.Repeat(`[{"code":"a","concept":`, 20_000), want: []string{"x.json", "depth"}},
		{name: "deep, and not wanted", file: "x.json", content: `{"resourceType":"Patient","x":` + strings.Repeat(`[`, 20_000), want: []string{"depth"}},
		{name: "a file in a package", file: "x.tgz", content: string(fixture.Package(t, "package/a.json", strings.Repeat(" ", 2000))), options: Options{MaxPackage: 1000}, want: []string{"package/a.json", "the file is larger than the limit of 1000 bytes"}},
		{name: "a package", file: "x.tgz", content: string(fixture.Package(t, "package/a.json", fixture.Colours+strings.Repeat(" ", 5000), "package/b.json", fixture.Colours+strings.Repeat(" ", 5000))), options: Options{MaxPackage: 8000}, want: []string{"x.tgz", "the unpacked package is larger than the limit of 8000 bytes"}},
		{name: "package without definitions", file: "x.tgz", content: string(fixture.Package(t, "other/a", strings.Repeat(" ", 9000))), options: Options{MaxPackage: 8000}, want: []string{"the unpacked package is larger than the limit of 8000 bytes"}},
		{name: "short elements in several files of a package", file: "x.tgz", content: string(fixture.Package(t, "package/a.json", empties, "package/b.json", empties)), want: []string{"package/b.json", "too many definitions or tiny elements"}},
		{name: "parts of concept maps", file: "x.json", content: bundleOf(100, `{"resourceType":"ConceptMap","group":[{"element":[`+strings.Repeat(`{"code":"aaaaaaaaaaaaaaaaaaaaaaa"},`, 6000)+`{}]}]}`), want: []string{"too many definitions or tiny elements"}},
		{name: "small definitions", file: "x.json", content: bundleOf(maxFileOverhead/900, `{"resourceType":"ValueSet"}`), want: []string{"too many definitions or tiny elements"}},
		{name: "small contained definitions", file: "x.json", content: `{"resourceType":"ValueSet","contained":[` + fixture.Repeat(maxFileOverhead/900, func(int) string { return `{"resourceType":"ValueSet"}` }) + `]}`, want: []string{"too many definitions or tiny elements"}},
		{name: "versions of a code system", file: "x.json", content: `{"resourceType":"Bundle","entry":[` + fixture.Repeat(maxLoadedVersions+1, func(i int) string {
			return fmt.Sprintf(`{"resource":{"resourceType":"CodeSystem","url":"http://x/b","version":"%d","content":"complete"}}`, i)
		}) + `]}`, want: []string{"http://x/b", "more than 1000 versions"}},
		{name: "a package that was made for it", file: "x.tgz", content: string(fixture.Package(t, "package/a.json", strings.Repeat(" ", minRatioSize+1<<20))), want: []string{"x.tgz", "more than 50 times its size"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			name := filepath.Join(t.TempDir(), test.file)
			fixture.WriteFile(t, name, []byte(test.content))
			test.options.Definitions = []string{name}
			_, err := Load(t.Context(), test.options)
			if err == nil {
				t.Fatal("it is loaded")
			}
			fixture.WantContains(t, err.Error(), test.want...)
		})
	}
}

// TestLoadingEnds checks that loading a large resource stops when the context is canceled.
func TestLoadingEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	l := newResourceLoader(newEmptySet())
	l.options = &Options{MaxValue: 1 << 20}
	src := io.MultiReader(strings.NewReader(`{"resourceType":"CodeSystem","concept":[`), &cancelingReader{cancel: cancel})
	if err := l.readResources(ctx, src, fhirjson.NewOverhead(fhirjson.DefaultMaxOverhead)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// cancelingReader is an endless list of concepts. Its third read cancels the context.
type cancelingReader struct {
	cancel context.CancelFunc
	reads  int
}

func (e *cancelingReader) Read(b []byte) (int, error) {
	if e.reads++; e.reads == 3 {
		e.cancel()
	}
	if e.reads > 100 {
		return 0, errors.New("it reads on")
	}
	return copy(b, `{"code":"a"},`), nil
}

// slowReader returns a full buffer per read and advances the clock by one second each time.
type slowReader struct{ now time.Time }

func (s *slowReader) Read(b []byte) (int, error) {
	s.now = s.now.Add(time.Second)
	return len(b), nil
}

func TestProgress(t *testing.T) {
	src := &slowReader{now: fixture.Time}
	var log, terminal bytes.Buffer
	o := Options{Now: func() time.Time { return src.now }, Logger: slog.New(slog.NewTextHandler(&log, nil)), Terminal: &terminal}
	p := newProgress(t.Context(), src, "big.json", 20<<20, &o)
	buffer := make([]byte, 1<<20)
	for range 20 {
		if _, err := p.Read(buffer); err != nil {
			t.Fatal(err)
		}
	}
	p.clearBar()
	fixture.WantContains(t, log.String(), "loading definitions", "file=big.json", "percent=25", "percent=100")
	if n := strings.Count(log.String(), "\n"); n != 4 {
		t.Errorf("%d lines in 20 s, want one every five seconds:\n%s", n, log.String())
	}
	fixture.WantContains(t, terminal.String(), "\r[====================                    ]  50 % big.json", " 100 % big.json\r\x1b[K")
}

func TestProgressOfSmallFiles(t *testing.T) {
	var log, terminal bytes.Buffer
	name := t.TempDir() + "/small.json"
	fixture.WriteFile(t, name, []byte(fixture.Animals))
	logger := slog.New(slog.NewTextHandler(&log, nil)) // logs level info and above
	if _, err := Load(t.Context(), Options{Definitions: []string{name}, Logger: logger, Terminal: &terminal}); err != nil {
		t.Fatal(err)
	}
	if log.Len()+terminal.Len() > 0 {
		t.Errorf("got log %q, bar %q", log.String(), terminal.String())
	}
}

func TestTerminal(t *testing.T) {
	f, err := os.Create(t.TempDir() + "/file")
	if err != nil {
		t.Fatal(err)
	}
	if w := Terminal(f); w != nil {
		t.Errorf("a file is a terminal: %v", w)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if w := Terminal(f); w != nil {
		t.Errorf("a closed file is a terminal: %v", w)
	}
}

// TestCoreFile checks that the embedded file matches the output of the generator.
func TestCoreFile(t *testing.T) {
	decoder, err := zstd.NewReader(bytes.NewReader(coreDefinitions))
	if err != nil {
		t.Fatal(err)
	}
	defer decoder.Close()
	lines := bufio.NewScanner(decoder)
	lines.Buffer(nil, 1<<22)
	count := map[string]int{}
	for lines.Scan() {
		var resource map[string]json.RawMessage
		if err := json.Unmarshal(lines.Bytes(), &resource); err != nil {
			t.Fatal(err)
		}
		if !bytes.HasPrefix(lines.Bytes(), []byte(`{"resourceType":"`)) {
			t.Fatalf("a line begins with %.40s", lines.Bytes())
		}
		for _, name := range []string{"text", "meta", "contact", "description", "copyright"} {
			if resource[name] != nil {
				t.Errorf("%s has %s", resource["url"], name)
			}
		}
		count[string(resource["resourceType"])]++
	}
	if err := lines.Err(); err != nil || count[`"CodeSystem"`] != 1063 || count[`"ValueSet"`] != 1317 || count[`"ConceptMap"`] != 16 || count[`"StructureDefinition"`] != 176 || len(count) != 4 {
		t.Errorf("got %v, %v", count, err)
	}
}

// TestCoreBindings checks that elements of R4 resources are bound to the expected value sets.
func TestCoreBindings(t *testing.T) {
	l := coreSet(t)
	// ResearchStudy and EvidenceVariable have elements of a later FHIR release, the others bindings outside HL7.
	elsewhere := regexp.MustCompile(`StructureDefinition/(ResearchStudy|EvidenceVariable|ImagingStudy|MolecularSequence|ExplanationOfBenefit)#`)
	missing := 0
	for context, valueSet := range l.ValueSets.bindings.values {
		if _, ok := l.ResolveValueSet(valueSet, ""); !ok {
			missing++
			if !elsewhere.MatchString(context) {
				t.Errorf("%s: %s is not here", context, valueSet)
			}
		}
	}
	if len(l.ValueSets.bindings.values) < 1000 || missing > 20 {
		t.Errorf("%d contexts, %d of them bound to missing value sets", len(l.ValueSets.bindings.values), missing)
	}
}

// TestMemoryOfLarge checks that an off-heap code system equals one on the heap, and that its memory stays mapped until the Set
// becomes unreachable and is then released.
func TestMemoryOfLarge(t *testing.T) {
	resource := fixture.LargeCodeSystem()
	before := offheap.BytesInUse()
	large := setOf(t, resource)
	if fixture.SupportsOffHeap() && offheap.BytesInUse()-before < 4<<20 {
		t.Error("all is on the heap")
	}
	small, err := newEmptySet().WithResources()
	if err != nil {
		t.Fatal(err)
	}
	loader := newResourceLoader(small) // loader of a request overlay, which stores code systems on the heap
	if err := loader.readResource(fhirjson.NewReader(strings.NewReader(resource))); err != nil {
		t.Fatal(err)
	}
	a, b := large.Systems.CodeSystems[0].Concepts, small.Systems.CodeSystems[0].Concepts
	if !sameArrays(reflect.ValueOf(a.System).Elem(), reflect.ValueOf(b.System).Elem()) {
		t.Error("not the same off the heap as on it")
	}
	for range 3 {
		runtime.GC()
	}
	if got, _ := a.Locate([]byte("c5999")); got.Number != 5999 {
		t.Errorf("got concept %d, want 5999", got.Number)
	}
	x, y := a.Searchable.SearchIndex(""), b.Searchable.SearchIndex("")
	if !sameArrays(reflect.ValueOf(x).Elem(), reflect.ValueOf(y).Elem()) {
		t.Error("not the same index")
	}
	runtime.KeepAlive(large)
}

// TestUseRetainsSet checks that Set.Use keeps the Set reachable while its texts are read.
func TestUseRetainsSet(t *testing.T) {
	read := func(l *Set, f func(code []byte)) {
		l.Use(func() { f(l.Systems.CodeSystems[0].Concepts.Code(codesystem.ConceptAt(5999))) })
	}
	set := setOf(t, fixture.LargeCodeSystem())
	before := fixture.OffHeapBytes()
	read(set, func(code []byte) {
		set = nil
		fixture.WantOffHeapInUse(t, before)
		if string(code) != "c5999" {
			t.Errorf("got %s", code)
		}
	})
	fixture.WantOffHeapReleased(t, before)
}

// TestBrokenLargeFile checks that loading a truncated large file doesn't leak memory regions.
func TestBrokenLargeFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "broken.json")
	concept := fmt.Sprintf(`{"code":"%%d","display":%q},`, strings.Repeat("x", 10_000))
	var text strings.Builder
	text.WriteString(`{"resourceType":"CodeSystem","url":"s","content":"complete","concept":[`)
	for i := range 600 {
		fmt.Fprintf(&text, concept, i)
	}
	fixture.WriteFile(t, file, []byte(text.String()))
	l := newResourceLoader(newEmptySet())
	l.options = &Options{}
	l.options.SetDefaults()
	if err := l.loadFile(t.Context(), file); err == nil {
		t.Fatal("a broken file was read")
	}
	if n := l.codeSystem.table.Memory.Regions(); n > 1 {
		t.Errorf("%d regions, want one at most", n)
	}
	l.codeSystem.table.Memory.Release()
}

// sameArrays reports whether a and b contain the same numbers. Both are numbers, slices, or structs of them.
func sameArrays(a, b reflect.Value) bool {
	same := a.Kind() != reflect.Slice || a.Len() == b.Len()
	switch {
	case a.CanUint():
		return a.Uint() == b.Uint()
	case a.Kind() == reflect.Slice:
		for i := 0; same && i < a.Len(); i++ {
			same = sameArrays(a.Index(i), b.Index(i))
		}
	case a.Kind() == reflect.Struct:
		for i := 0; same && i < a.NumField(); i++ {
			same = sameArrays(a.Field(i), b.Field(i))
		}
	}
	return same
}
