package definitions

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest/fixture"
)

// TestDefinitionBombs loads files that are made to fill the memory: each is refused with an error that names what is
// too large.
func TestDefinitionBombs(t *testing.T) {
	long := strings.Repeat("a", fhirjson.MaxString)
	empties := `{"resourceType":"ConceptMap","group":[{"element":[` + strings.Repeat("{},", maxShortInFile/(shortPart-4)*6/10) + `{}]}]}`
	bundleOf := func(n int, resource string) string {
		return `{"resourceType":"Bundle","entry":[` + fixture.Repeat(n, func(int) string { return `{"resource":` + resource + `}` }) + `]}`
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
		{name: "a file in a package", file: "x.tgz", content: string(tgz(t, "package/a.json", strings.Repeat(" ", 2000))), options: Options{MaxPackage: 1000}, want: []string{"package/a.json", "the file is larger than 1000 bytes"}},
		{name: "a package", file: "x.tgz", content: string(tgz(t, "package/a.json", fixture.Colours+strings.Repeat(" ", 5000), "package/b.json", fixture.Colours+strings.Repeat(" ", 5000))), options: Options{MaxPackage: 8000}, want: []string{"x.tgz", "unpacks to is larger than 8000 bytes"}},
		{name: "a package of what is not wanted", file: "x.tgz", content: string(tgz(t, "other/a", strings.Repeat(" ", 9000))), options: Options{MaxPackage: 8000}, want: []string{"unpacks to is larger than 8000 bytes"}},
		{name: "short elements in several files of a package", file: "x.tgz", content: string(tgz(t, "package/a.json", empties, "package/b.json", empties)), want: []string{"package/b.json", "elements of a few bytes"}},
		{name: "parts of concept maps", file: "x.json", content: bundleOf(100, `{"resourceType":"ConceptMap","group":[{"element":[`+strings.Repeat(`{"code":"aaaaaaaaaaaaaaaaaaaaaaa"},`, 6000)+`{}]}]}`), want: []string{"elements of a few bytes"}},
		{name: "small definitions", file: "x.json", content: bundleOf(maxShortInFile/900, `{"resourceType":"ValueSet"}`), want: []string{"elements of a few bytes"}},
		{name: "small contained definitions", file: "x.json", content: `{"resourceType":"ValueSet","contained":[` + fixture.Repeat(maxShortInFile/900, func(int) string { return `{"resourceType":"ValueSet"}` }) + `]}`, want: []string{"elements of a few bytes"}},
		{name: "versions of a code system", file: "x.json", content: `{"resourceType":"Bundle","entry":[` + fixture.Repeat(maxLoadedVersions+1, func(i int) string {
			return fmt.Sprintf(`{"resource":{"resourceType":"CodeSystem","url":"http://x/b","version":"%d","content":"complete"}}`, i)
		}) + `]}`, want: []string{"http://x/b", "more than 1000 versions"}},
		{name: "a package that was made for it", file: "x.tgz", content: string(tgz(t, "package/a.json", strings.Repeat(" ", anyRatio+1<<20))), want: []string{"x.tgz", "more than 50 times its size"}},
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
			fixture.WantText(t, err.Error(), test.want...)
		})
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
