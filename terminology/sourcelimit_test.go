package terminology

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/terminology/fhirjson"
)

// TestDefinitionBombs loads files that are made to fill the memory: each is refused with an error that names what is
// too large.
func TestDefinitionBombs(t *testing.T) {
	long := strings.Repeat("a", fhirjson.MaxString)
	empties := `{"resourceType":"ConceptMap","group":[{"element":[` + strings.Repeat("{},", maxShortInFile/(shortPart-4)*6/10) + `{}]}]}`
	bundleOf := func(n int, resource string) string {
		return `{"resourceType":"Bundle","entry":[` + repeat(n, func(int) string { return `{"resource":` + resource + `}` }) + `]}`
	}
	for _, test := range []struct {
		name, file, content string
		options             Options
		want                []string
	}{
		{name: "a value", file: "x.json", content: `{"resourceType":"ValueSet","compose":{"x":"` + long + `"}}`, options: Options{MaxValue: 1 << 20}, want: []string{"x.json", "a value is larger than 1 MiB"}},
		{name: "a value that is not wanted", file: "x.json", content: `{"resourceType":"Patient","photo":"` + long + `"}`, options: Options{MaxValue: 1 << 20}, want: []string{"a value is larger than 1 MiB"}},
		{name: "a value before its resourceType", file: "x.json", content: `{"concept":[` + strings.Repeat(`{"code":"a"},`, 1<<18), options: Options{MaxValue: 1 << 20}, want: []string{"a value is larger than 1 MiB"}},
		{name: "a string", file: "x.json", content: `{"resourceType":"CodeSystem","concept":[{"code":"a","display":"` + long + `"}]}`, want: []string{"/concept/0/display", "a string is larger than 4 MiB"}},
		{name: "deep", file: "x.json", content: `{"resourceType":"CodeSystem","concept":` + strings.Repeat(`[{"code":"a","concept":`, 20_000), want: []string{"x.json", "depth"}},
		{name: "deep, and not wanted", file: "x.json", content: `{"resourceType":"Patient","x":` + strings.Repeat(`[`, 20_000), want: []string{"depth"}},
		{name: "a file in a package", file: "x.tgz", content: string(tgz(t, "package/a.json", strings.Repeat(" ", 2000))), options: Options{MaxEntry: 1000}, want: []string{"package/a.json", "the file is larger than 1000 bytes"}},
		{name: "a package", file: "x.tgz", content: string(tgz(t, "package/a.json", colours+strings.Repeat(" ", 9000))), options: Options{MaxPackage: 8000}, want: []string{"x.tgz", "unpacks to is larger than 8000 bytes"}},
		{name: "a package of what is not wanted", file: "x.tgz", content: string(tgz(t, "other/a", strings.Repeat(" ", 9000))), options: Options{MaxPackage: 8000}, want: []string{"unpacks to is larger than 8000 bytes"}},
		{name: "short elements in several files of a package", file: "x.tgz", content: string(tgz(t, "package/a.json", empties, "package/b.json", empties)), want: []string{"package/b.json", "elements of a few bytes"}},
		{name: "parts of concept maps", file: "x.json", content: bundleOf(100, `{"resourceType":"ConceptMap","group":[{"element":[`+strings.Repeat(`{"code":"aaaaaaaaaaaaaaaaaaaaaaa"},`, 6000)+`{}]}]}`), want: []string{"elements of a few bytes"}},
		{name: "small definitions", file: "x.json", content: bundleOf(maxShortInFile/900, `{"resourceType":"ValueSet"}`), want: []string{"elements of a few bytes"}},
		{name: "small contained definitions", file: "x.json", content: `{"resourceType":"ValueSet","contained":[` + repeat(maxShortInFile/900, func(int) string { return `{"resourceType":"ValueSet"}` }) + `]}`, want: []string{"elements of a few bytes"}},
		{name: "versions of a code system", file: "x.json", content: `{"resourceType":"Bundle","entry":[` + repeat(maxLoadedVersions+1, func(i int) string {
			return fmt.Sprintf(`{"resource":{"resourceType":"CodeSystem","url":"http://x/b","version":"%d","content":"complete"}}`, i)
		}) + `]}`, want: []string{"http://x/b", "more than 1000 versions"}},
		{name: "a package that was made for it", file: "x.tgz", content: string(tgz(t, "package/a.json", strings.Repeat(" ", anyRatio+1<<20))), want: []string{"x.tgz", "more than 50 times its size"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			name := filepath.Join(t.TempDir(), test.file)
			writeFile(t, name, []byte(test.content))
			test.options.Definitions = []string{name}
			_, err := Load(t.Context(), test.options)
			if err == nil {
				t.Fatal("it is loaded")
			}
			wantText(t, err.Error(), test.want...)
		})
	}
}

// TestBombWhileWatched has a good package replaced by one that was made to fill the memory: what was loaded stays.
func TestBombWhileWatched(t *testing.T) {
	name := filepath.Join(t.TempDir(), "x.tgz")
	writeFile(t, name, tgz(t, "package/a.json", colours))
	w, err := NewWatch(t.Context(), Options{Definitions: []string{name}, MaxPackage: 1 << 20}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	before := w.Current()
	writeFile(t, name, tgz(t, "package/a.json", colours, "package/b.json", strings.Repeat(" ", 1<<20)))
	var large *fhirjson.TooLargeError
	if err := w.Refresh(t.Context()); !errors.As(err, &large) {
		t.Errorf("got %v", err)
	}
	if w.Current() != before || w.State().Err == nil {
		t.Error("what was loaded before is not in use, or the error is not told")
	}
}

// TestLoadingEnds has loading end in the middle of a large resource.
func TestLoadingEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	l := newResourceLoader(emptyLibrary())
	l.options = &Options{MaxValue: 1 << 20}
	src := io.MultiReader(strings.NewReader(`{"resourceType":"CodeSystem","concept":[`), &ending{cancel: cancel})
	if err := l.resources(ctx, src, fhirjson.NewShortage(fhirjson.MaxShort)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// ending is concepts without end, whose reader leaves after some.
type ending struct {
	cancel context.CancelFunc
	reads  int
}

func (e *ending) Read(b []byte) (int, error) {
	if e.reads++; e.reads == 3 {
		e.cancel()
	}
	if e.reads > 100 {
		return 0, errors.New("it reads on")
	}
	return copy(b, `{"code":"a"},`), nil
}

// TestBroughtDefinitionsAreBounded brings along what takes many times as much memory, or time, as it is long.
func TestBroughtDefinitionsAreBounded(t *testing.T) {
	bundle := func(n int, resource func(i int) string) string {
		return `{"resourceType":"Bundle","entry":[` + repeat(n, func(i int) string { return `{"resource":` + resource(i) + `}` }) + `]}`
	}
	version := func(i int) string {
		return fmt.Sprintf(`{"resourceType":"CodeSystem","url":"http://x/b","version":"%d","content":"complete"}`, i)
	}
	empty := func(int) string { return `{"resourceType":"ValueSet"}` }
	half := strings.Repeat("{},", fhirjson.MaxShort/(160-4)*6/10)
	for _, test := range []struct{ name, brought, want string }{
		{"empty elements", `{"resourceType":"ConceptMap","group":[{"element":[` + strings.Repeat("{},", fhirjson.MaxShort/(160-4)) + `{}]}]}`, "elements of a few bytes"},
		{"empty elements in two resources", `{"resourceType":"ConceptMap","group":[{"element":[` + half + `{}]}]}},{"name":"tx-resource","resource":` +
			`{"resourceType":"ConceptMap","group":[{"element":[` + half + `{}]}]}`, "elements of a few bytes"},
		{"empty elements before the type", `{"group":[{"element":[` + half + `{}]}],"group":[{"element":[` + half + `{}]}],"resourceType":"ConceptMap"}`, "elements of a few bytes"},
		{"a long url", `{"resourceType":"CodeSystem","url":"` + strings.Repeat("x", fhirjson.MaxName+1) + `"}`, "a url or version is larger than"},
		{"a long version", `{"resourceType":"CodeSystem","url":"http://x/b","version":"` + strings.Repeat("x", fhirjson.MaxName+1) + `"}`, "a url or version is larger than"},
		{"a long system", valueSetOf("http://x/vs", `{"include":[{"system":"`+strings.Repeat("x", fhirjson.MaxName+1)+`"}]}`), "a url or version is larger than"},
		{"as many versions of a code system as may be", bundle(100, version), ""},
		{"versions of a code system", bundle(100+1, version), "more than 100 versions"},
		{"as many definitions as may be", bundle(10_000-1, empty), ""}, // the Bundle is one
		{"definitions", bundle(10_000, empty), "more than 10000 definitions"},
		{"contained definitions", `{"resourceType":"ValueSet","contained":[` + repeat(10_000+1, empty) + `]}`, "more than 10000 definitions"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w, _ := call(t, &Handler{Library: colourLibrary(t)}, "POST", "/ValueSet/$expand", posted(`{"name":"url","valueUri":"http://x/colours/vs"}`, brings(test.brought)))
			if want := test.want; (w.Code == http.StatusBadRequest) != (want != "") || !strings.Contains(w.Body.String(), want) {
				t.Errorf("got %d %.300s", w.Code, w.Body)
			}
		})
	}
}

// TestRoomForBodies has clients say that their bodies are large: room is made for what comes.
func TestRoomForBodies(t *testing.T) {
	r := httptest.NewRequest(http.MethodPost, "/fhir/R4/ValueSet/$expand", nil)
	body := &roomy{Reader: strings.NewReader("{}")}
	r.Body, r.ContentLength = io.NopCloser(body), 16<<20
	if _, err := (&operation{handler: new(Handler)}).readBody(httptest.NewRecorder(), r); err != nil || body.room > 2*maxTrusted {
		t.Errorf("got %v, room for %d bytes", err, body.room)
	}
}

// roomy notes for how much there is room when it is read.
type roomy struct {
	io.Reader
	room int
}

func (r *roomy) Read(b []byte) (int, error) {
	r.room = max(r.room, len(b))
	return r.Reader.Read(b)
}
