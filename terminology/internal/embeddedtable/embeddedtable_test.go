package embeddedtable

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
)

const colours = `{"resourceType":"CodeSystem","url":"http://x/colours","language":"en","caseSensitive":false,"content":"complete",
	"property":[{"code":"hue","type":"integer"}],
	"concept":[{"code":"red","display":"Red","definition":"as blood","designation":[{"language":"de","value":"Rot"}],
		"property":[{"code":"hue","valueInteger":0}],"concept":[{"code":"pink","display":"Pink"}]}]}`

func pack(t *testing.T, resource string) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return w.EncodeAll([]byte(resource), nil)
}

func TestTable(t *testing.T) {
	s := codesystem.DetectInterfaces(New(pack(t, colours)))
	red, ok := s.Locate([]byte("RED"))
	code, display, flags := s.Concept(red)
	got := fmt.Sprintln(ok, string(code), string(display), flags&codesystem.FlagHasDesignations != 0, s.Len(), s.Language(), s.Hierarchy.Children(red.Number),
		s.Hierarchy.Parents(1), string(s.Code(codesystem.ConceptAt(1))), s.Filterable.Properties(), s.Multilingual.HasLanguage("de"), string(s.Annotations.Definition(red)))
	if want := "true red Red true 2 en [1] [0] pink [{hue  }] true as blood\n"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if found := s.Searchable.SearchIndex("de"); found == nil || len(s.AppendTexts(nil, red)) != 2 || len(s.AppendValues(nil, red)) != 1 {
		t.Error("not all of it is there")
	}
}

func TestWeigh(t *testing.T) {
	plain := New(pack(t, colours)).(*system)
	weighed := codesystem.DetectInterfaces(plain.WithWeights(maps.All(map[string]float64{"pink": 3})))
	if got := []float64{weighed.Searchable.SearchWeight(1), plain.SearchWeight(1)}; !slices.Equal(got, []float64{3, 0}) {
		t.Errorf("got %v", got)
	}
}

// TestReadOnFirstUse checks that data is not read before its first use.
func TestReadOnFirstUse(t *testing.T) {
	s := New([]byte("no zstd"))
	codesystem.DetectInterfaces(s)
	defer func() {
		if recover() == nil {
			t.Error("want a panic once it is read")
		}
	}()
	s.Locate(nil)
}
