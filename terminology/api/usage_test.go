package api

import (
	"bytes"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
)

// weighed loads resources with files of weights, and returns what was logged.
func weighed(t *testing.T, resources []string, files ...string) (l *terminology.Library, log string, err error) {
	t.Helper()
	folder := t.TempDir()
	var o definitions.Options
	for i, resource := range resources {
		o.Definitions = append(o.Definitions, filepath.Join(folder, fmt.Sprintf("%03d.json", i)))
		writeFile(t, o.Definitions[i], []byte(resource))
	}
	for i, file := range files {
		if file != definitions.DefinitionWeights {
			name := filepath.Join(folder, fmt.Sprintf("%d.csv", i))
			writeFile(t, name, []byte(file))
			file = name
		}
		o.Weights = append(o.Weights, file)
	}
	var text bytes.Buffer
	o.Logger = slog.New(slog.NewTextHandler(&text, nil))
	l, err = terminology.Load(t.Context(), o)
	return l, text.String(), err
}

// fevers is a code system with so many concepts that match "fever" equally well, the first of which cannot be chosen,
// and which may have weights in their definitions.
func fevers(url string, n int) string {
	var b strings.Builder
	fmt.Fprintf(&b, `{"resourceType":"CodeSystem","url":%q,"content":"complete","concept":[
		{"code":"0","display":"Fever","property":[{"code":"notSelectable","valueBoolean":true}]}`, url)
	for i := 1; i < n; i++ {
		fmt.Fprintf(&b, `,{"code":"%d","display":"Fever n%d"`, i, i)
		if i == 3 {
			b.WriteString(`,"extension":[{"url":"http://hl7.org/fhir/StructureDefinition/itemWeight","valueDecimal":1.5}]`)
		}
		b.WriteString(`}`)
	}
	return b.String() + `]}`
}

// TestWeights has who comes first, in a code system that is scanned and in one that has an index.
func TestWeights(t *testing.T) {
	t.Parallel()
	for _, n := range []int{6, 600} {
		own := valueSetOf("http://x/own", `{"include":[{"system":"http://x/cs"}]}`)
		listing := valueSetOf("http://x/listing", `{"include":[{"system":"http://x/cs","concept":[{"code":"1"},{"code":"2"},{"code":"3"},
			{"code":"4","extension":[{"url":"http://hl7.org/fhir/StructureDefinition/itemWeight","valueDecimal":9}]}]},
			{"system":"http://x/elsewhere","concept":[{"code":"a","display":"Fever n1"},{"code":"b","display":"Fever n1"}]}]}`)
		supplement := `{"resourceType":"CodeSystem","url":"http://x/used","content":"supplement","supplements":"http://x/cs","concept":[
			{"code":"5","extension":[{"url":"http://hl7.org/fhir/StructureDefinition/itemWeight","valueDecimal":7}]}]}`
		all := allOf("http://x/cs")
		for _, test := range []struct {
			name, of, query string
			files           []string
			want            string
		}{
			{"none", "http://x/cs-all", "", nil, "1 2 3"},
			{"of the code system", "http://x/cs-all", "", []string{"#! http://x/cs\n2,5\n5,70\n0,900\n"}, "5 2 1"},
			{"in another value set", "http://x/own", "", []string{"#! http://x/cs\n2,5\n5,70\n"}, "5 2 1"},
			{"of several files", "http://x/cs-all", "", []string{"#! http://x/cs\n2,5\n5,70\n", "#! http://x/cs\n2,70\n"}, "2 5 1"},
			{"of the value set", "http://x/own", "", []string{"#! http://x/own\n4,5\n3,4\n#! http://x/cs\n5,70\n"}, "4 3 1"},
			{"of another value set", "http://x/cs-all", "", []string{"#! http://x/own\n4,5\n3,4\n"}, "1 2 3"},
			{"of the definitions", "http://x/cs-all", "", []string{definitions.DefinitionWeights}, "3 1 2"},
			{"of the definitions, not asked for", "http://x/cs-all", "", []string{"#! http://x/other\n1,2\n"}, "1 2 3"},
			{"a file before the definitions", "http://x/cs-all", "", []string{definitions.DefinitionWeights, "#! http://x/cs\n4,1\n"}, "4 1 2"},
			{"of a value set that lists", "http://x/listing", "", []string{definitions.DefinitionWeights}, "4 3 a b"},
			{"of codes whose code system is not here", "http://x/listing", "", []string{"#! http://x/elsewhere\nb,2\n"}, "b a 1"},
			{"of the value set, whose code system is not here", "http://x/listing", "", []string{"#! http://x/listing\nb,2\n2,4\n"}, "2 b a"},
			{"of a supplement", "http://x/own", "http://x/used", []string{definitions.DefinitionWeights}, "5 3 1"},
		} {
			t.Run(fmt.Sprint(n, test.name), func(t *testing.T) {
				t.Parallel()
				l, _, err := weighed(t, []string{fevers("http://x/cs", n), all, own, listing, supplement}, test.files...)
				if err != nil {
					t.Fatal(err)
				}
				pairs := []string{"url", test.of, "filter", "fever n", "count", fmt.Sprint(len(strings.Fields(test.want)))}
				if test.query != "" {
					pairs = append(pairs, "useSupplement", test.query)
				}
				wantCodes(t, expand(t, l, pairs...), test.want)
				if l, err = l.With(); err != nil {
					t.Fatal(err)
				}
				wantCodes(t, expand(t, l, pairs...), test.want)
			})
		}
	}
}

// TestWeightsOfARequest has a code system that comes with the request.
func TestWeightsOfARequest(t *testing.T) {
	t.Parallel()
	l, _, err := weighed(t, []string{allOf("http://x/cs")}, "#! http://x/cs\n2,5\n")
	if err != nil {
		t.Fatal(err)
	}
	if l, err = l.With(jsontext.Value(fevers("http://x/cs", 4))); err != nil {
		t.Fatal(err)
	}
	wantCodes(t, expand(t, l, "url", "http://x/cs-all", "filter", "fever n"), "2 1 3")
}

// TestWeightsAreChecked has what is said about weights when they are loaded.
func TestWeightsAreChecked(t *testing.T) {
	t.Parallel()
	resources := []string{fevers("http://x/cs", 4), allOf("http://x/cs")}
	for _, test := range []struct{ name, file, log, err string }{
		{"all there", "#! http://x/cs\n2,5\n#! http://x/cs-all\n1,2\n", "", ""},
		{"codes that are not there", "#! http://x/cs\n2,5\nx,5\ny,7\n", `url=http://x/cs codes=2 weights=3`, ""},
		{"not in the value set", "#! http://x/cs-all\n2,5\nx,5\n", `url=http://x/cs-all codes=1 weights=2`, ""},
		{"nothing of this url", "#! http://x/no\n2,5\n", `url=http://x/no`, ""},
		{"no count", "#! http://x/cs\n2,five\n", "", "0.csv: line 2: the count"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, log, err := weighed(t, resources, test.file)
			if test.err == "" && err != nil || test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
				t.Errorf("error %v, want %q", err, test.err)
			}
			if strings.Count(log, "level=WARN") != min(len(test.log), 1) || !strings.Contains(log, test.log) {
				t.Errorf("logged %q, want %q", log, test.log)
			}
		})
	}
	if _, err := terminology.Load(t.Context(), definitions.Options{Weights: []string{filepath.Join(t.TempDir(), "gone.csv")}}); err == nil || !strings.Contains(err.Error(), "gone.csv") {
		t.Errorf("a file that is not there: %v", err)
	}
}

// TestWeightsChange has a changed file count once it is noticed.
func TestWeightsChange(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	o := definitions.Options{Definitions: []string{filepath.Join(folder, "cs.json"), filepath.Join(folder, "vs.json")}, Weights: []string{filepath.Join(folder, "w.csv")}}
	writeFile(t, o.Definitions[0], []byte(fevers("http://x/cs", 4)))
	writeFile(t, o.Definitions[1], []byte(allOf("http://x/cs")))
	writeFile(t, o.Weights[0], []byte("#! http://x/cs\n2,5\n"))
	w, err := terminology.NewWatch(t.Context(), o, 0)
	if err != nil {
		t.Fatal(err)
	}
	wantCodes(t, expand(t, w.Current(), "url", "http://x/cs-all", "filter", "fever n"), "2 1 3")
	writeFile(t, o.Weights[0], []byte("#! http://x/cs\n3,10\n"))
	if err := w.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantCodes(t, expand(t, w.Current(), "url", "http://x/cs-all", "filter", "fever n"), "3 1 2")
}
