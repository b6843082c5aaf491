package api_test

import (
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest/fixture"
)

// TestBombWhileWatched checks that the loaded definitions stay in use if a package is replaced by a decompression bomb.
func TestBombWhileWatched(t *testing.T) {
	name := filepath.Join(t.TempDir(), "x.tgz")
	fixture.WriteFile(t, name, fixture.Package(t, "package/a.json", fixture.Colours))
	w, err := terminology.NewWatch(t.Context(), definitions.Options{Definitions: []string{name}, MaxPackage: 1 << 20}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	before := w.Current()
	fixture.WriteFile(t, name, fixture.Package(t, "package/a.json", fixture.Colours, "package/b.json", strings.Repeat(" ", 1<<20)))
	var large *fhirjson.TooLargeError
	if err := w.Refresh(t.Context()); !errors.As(err, &large) {
		t.Errorf("got %v", err)
	}
	if w.Current() != before || w.State().Err == nil {
		t.Error("the earlier definitions are not in use, or the error is not reported")
	}
}

// TestRequestDefinitionsAreBounded sends definitions that need far more memory or time than their size suggests.
func TestRequestDefinitionsAreBounded(t *testing.T) {
	bundle := func(n int, resource func(i int) string) string {
		return `{"resourceType":"Bundle","entry":[` + fixture.Repeat(n, func(i int) string { return `{"resource":` + resource(i) + `}` }) + `]}`
	}
	version := func(i int) string {
		return fmt.Sprintf(`{"resourceType":"CodeSystem","url":"http://x/b","version":"%d","content":"complete"}`, i)
	}
	empty := func(int) string { return `{"resourceType":"ValueSet"}` }
	half := strings.Repeat("{},", fhirjson.DefaultMaxOverhead/(160-4)*6/10)
	for _, test := range []struct{ name, brought, want string }{
		{"empty elements", `{"resourceType":"ConceptMap","group":[{"element":[` + strings.Repeat("{},", fhirjson.DefaultMaxOverhead/(160-4)) + `{}]}]}`, "too many definitions or tiny elements"},
		{"empty elements in two resources", `{"resourceType":"ConceptMap","group":[{"element":[` + half + `{}]}]}},{"name":"tx-resource","resource":` +
			`{"resourceType":"ConceptMap","group":[{"element":[` + half + `{}]}]}`, "too many definitions or tiny elements"},
		{"empty elements before the type", `{"group":[{"element":[` + half + `{}]}],"group":[{"element":[` + half + `{}]}],"resourceType":"ConceptMap"}`, "too many definitions or tiny elements"},
		{"a long url", `{"resourceType":"CodeSystem","url":"` + strings.Repeat("x", fhirjson.MaxName+1) + `"}`, "a url or version is larger than"},
		{"a long version", `{"resourceType":"CodeSystem","url":"http://x/b","version":"` + strings.Repeat("x", fhirjson.MaxName+1) + `"}`, "a url or version is larger than"},
		{"a long system", fixture.ValueSet("http://x/vs", `{"include":[{"system":"`+strings.Repeat("x", fhirjson.MaxName+1)+`"}]}`), "a url or version is larger than"},
		{"as many versions of a code system as may be", bundle(100, version), ""},
		{"versions of a code system", bundle(100+1, version), "more than 100 versions"},
		{"as many definitions as may be", bundle(10_000-1, empty), ""}, // 10,000 definitions are allowed, including the Bundle
		{"definitions", bundle(10_000, empty), "the request contains more than 10000 definitions"},
		{"contained definitions", `{"resourceType":"ValueSet","contained":[` + fixture.Repeat(10_000+1, empty) + `]}`, "the request contains more than 10000 definitions"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w, _ := terminologytest.Call(t, &api.Handler{Library: terminologytest.ColourLibrary(t)}, "POST", "/ValueSet/$expand", fixture.ParametersOf(`{"name":"url","valueUri":"http://x/colours/vs"}`, fixture.TxResource(test.brought)))
			if want := test.want; (w.Code == http.StatusBadRequest) != (want != "") || !strings.Contains(w.Body.String(), want) {
				t.Errorf("got %d %.300s", w.Code, w.Body)
			}
		})
	}
}

const (
	allMeasures   = `{"system":"http://x/measures"}`
	lengths       = `{"system":"http://x/measures","filter":[{"property":"base","op":"=","value":"7cm"}]}`
	unclosed      = " unclosed The code System 'http://x/measures' has a grammar and so has infinite members. This extension is based on http://x/ValueSet/common"
	draft         = " warning-draft=http://x/ValueSet/common|1"
	someMeasures  = `{"system":"http://x/measures","concept":[{"code":"5m","display":"Five"},{"code":"9min"},{"code":"20cm"}]}`
	measuresUsed  = " used-codesystem=http://x/measures|2"
	allOfMeasures = "1m=1 metres 20cm=20 centimetres 100cm=100 centimetres 3s=3 seconds"
)

// summarize summarizes an expansion: codes with displays, parameters, and why it is incomplete.
func summarize(x terminologytest.Expanded) string {
	var list []string
	for _, c := range x.Expansion.Contains {
		list = append(list, c.Code+"="+c.Display)
	}
	list = append(list, x.Parameters()...)
	for _, extension := range x.Expansion.Extension {
		if strings.HasSuffix(extension.URL, "valueset-unclosed-reason") {
			list = append(list, "unclosed "+extension.ValueString)
		}
	}
	return strings.Join(list, " ")
}

func TestExpandSource(t *testing.T) {
	vs := func(name, compose string) string { return fixture.ValueSet("http://x/"+name, compose) }
	l := terminologytest.SourceLibrary(t, vs("all", `{"include":[`+allMeasures+`]}`), vs("lengths", `{"include":[`+lengths+`]}`), vs("some", `{"include":[`+someMeasures+`]}`),
		vs("length-of-some", `{"include":[{"valueSet":["http://x/some"],`+lengths[1:]+`]}`),
		vs("some-without-lengths", `{"include":[`+someMeasures+`],"exclude":[`+lengths+`]}`),
		vs("some-without-imported", `{"include":[`+someMeasures+`],"exclude":[{"valueSet":["http://x/lengths"]}]}`),
		vs("none", `{"include":[`+someMeasures+`],"exclude":[{"valueSet":["http://x/all"]}]}`),
		vs("excluded-first", `{"include":[{"valueSet":["http://x/some-without-imported"]},{"valueSet":["http://x/lengths"]}]}`),
		vs("both", `{"include":[`+someMeasures+`,`+lengths+`,{"valueSet":["http://x/lengths"]}],"exclude":[{"valueSet":["http://x/lengths"]},{"system":"http://x/shapes"}]}`),
		vs("mixed", `{"include":[`+someMeasures+`,{"system":"http://x/shapes","filter":[{"property":"sides","op":"=","value":"4"}]},{"system":"http://x/else","concept":[{"code":"e"}]}]}`),
		vs("imported", `{"include":[{"valueSet":["http://x/all"]}]}`))
	tests := []struct{ name, url, filter, want string }{
		{"all", "all", "", allOfMeasures + measuresUsed + draft + unclosed},
		{"implied", "measures?fhir_vs", "", allOfMeasures + measuresUsed + draft + unclosed},
		{"imported", "imported", "", allOfMeasures + measuresUsed + draft + " used-valueset=http://x/all" + unclosed},
		{"filtered", "lengths", "", "1m=1 metres 20cm=20 centimetres 100cm=100 centimetres" + measuresUsed + unclosed},
		{"bounded by a value set", "length-of-some", "", "5m=5 metres 20cm=20 centimetres" + measuresUsed + " used-valueset=http://x/some"},
		{"excluded", "some-without-lengths", "", "9min=9 minutes" + measuresUsed},
		{"excluded value set", "some-without-imported", "", "9min=9 minutes" + measuresUsed + " used-valueset=http://x/lengths"},
		{"all excluded", "none", "", "used-codesystem=http://x/measures|2 used-valueset=http://x/all"},
		{"excluded before it is included", "excluded-first", "", "9min=9 minutes 1m=1 metres 20cm=20 centimetres 100cm=100 centimetres" + measuresUsed +
			" used-valueset=http://x/some-without-imported used-valueset=http://x/lengths" + unclosed},
		{"included and excluded", "both", "", "9min=9 minutes used-codesystem=http://x/measures|2 used-codesystem=http://x/shapes|1 used-valueset=http://x/lengths" + unclosed},
		{"mixed", "mixed", "", "5m=Five 9min=9 minutes 20cm=20 centimetres square=Square e= used-codesystem=http://x/measures|2 used-codesystem=http://x/shapes|1 warning-unknown-system=http://x/else"},
		{"searched", "all", "cent", "20cm=20 centimetres 100cm=100 centimetres filter=cent" + measuresUsed + draft + unclosed},
		{"searched by a display of the value set that it is based on", "all", "yard", "filter=yard" + measuresUsed + draft + unclosed},
		{"mixed, searched", "mixed", "squ", "square=Square filter=squ used-codesystem=http://x/measures|2 used-codesystem=http://x/shapes|1 warning-unknown-system=http://x/else"},
		{"table", "ValueSet/shapes", "tri", "triangle=Triangle filter=tri used-codesystem=http://x/shapes|1"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			pairs := []string{"url", "http://x/" + test.url}
			if test.filter != "" {
				pairs = append(pairs, "filter", test.filter)
			}
			got := summarize(terminologytest.Expand(t, l, pairs...))
			if got = strings.TrimSuffix(got, " offset=0"); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
	if x, page := terminologytest.Expand(t, l, "url", "http://x/all"), terminologytest.Expand(t, l, "url", "http://x/all", "count", "2"); x.Expansion.Total != nil || page.Expansion.Total == nil || *page.Expansion.Total != 4 {
		t.Errorf("got %v in all and %v on a page", x.Expansion.Total, page.Expansion.Total)
	}
	w, _ := terminologytest.Call(t, &api.Handler{Library: l}, "GET", "/ValueSet/$expand?url=http://x/all&includeDefinition=true", "")
	fixture.WantContains(t, w.Body.String(), `{"name":"copyright","valueString":"© of measures"}`)
	for _, compose := range []string{`{"include":[{"system":"http://x/closed"}]}`, `{"include":[{"system":"http://x/measures","filter":[{"property":"base","op":"=","value":"7"}]}]}`} {
		w, answer := terminologytest.Call(t, &api.Handler{Library: l}, "POST", "/ValueSet/$expand", fixture.ParametersOf(`{"name":"valueSet","resource":`+fixture.ValueSet("http://x/new", compose)+`}`))
		if w.Code != http.StatusUnprocessableEntity || !strings.Contains(w.Body.String(), "too-costly") && !strings.Contains(w.Body.String(), "no unit at column 2") {
			t.Errorf("got %d %v", w.Code, answer)
		}
	}
}

// TestPublishedSources checks that built-in sources can be read as CodeSystems with the notices that their licenses require.
func TestPublishedSources(t *testing.T) {
	h := &api.Handler{Library: terminologytest.SourceLibrary(t)}
	for path, want := range map[string]string{
		"/CodeSystem?url=http://x/measures": `"title":"All measures"|"copyright":"© of measures"|"content":"not-present"|"version":"2"`,
		"/CodeSystem?title=all%20sha":       `"url":"http://x/shapes"|"content":"complete"|"property":[|"code":"square"`,
		"/CodeSystem/shapes":                `"url":"http://x/shapes"|"hierarchyMeaning":"is-a"|"code":"square"`,
	} {
		w, _ := terminologytest.Call(t, h, "GET", path, "")
		fixture.WantContains(t, w.Body.String(), strings.Split(want, "|")...)
	}
	capabilities := string(h.Library.Capabilities().AppendJSON(nil))
	fixture.WantContains(t, capabilities, `"copyright":"Measures: © of measures\n\nShapes: © of shapes"`, `{"uri":"http://x/measures","version":[{"code":"2"`)
}
