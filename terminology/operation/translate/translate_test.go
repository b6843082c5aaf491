package translate_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest/fixture"
)

// translations contains concept maps with each kind of mapping.
var translations = []string{
	fixture.ConceptMap("plain", `{"code":"1","target":[{"code":"one","display":"One","equivalence":"equivalent"},{"code":"uno","equivalence":"wider","comment":"see"}]},
		{"code":"2","target":[{"code":"two","equivalence":"disjoint"}]},{"code":"3","target":[{"equivalence":"unmatched","comment":"none"}]},{"code":"4","noMap":true},
		{"code":"5","comment":"from","target":[{"code":"five","relationship":"source-is-broader-than-target","product":[{"property":"http://x/p","system":"http://x/s","value":"v"}]}]}`, ""),
	fixture.ConceptMap("fixed", `{"code":"1","target":[{"code":"one"}]},{"code":"3","target":[{"equivalence":"unmatched"}]}`, `,"unmapped":{"mode":"fixed","code":"rest","display":"Rest"}`),
	fixture.ConceptMap("provided", "", `,"unmapped":{"mode":"provided"}`), fixture.ConceptMap("as-is", "", `,"unmapped":{"mode":"use-source-code","relationship":"related-to"}`),
	fixture.ConceptMap("ours", `{"code":"1","target":[{"code":"eins","equivalence":"equal"}]}`, fixture.OtherMap("middle")), fixture.ConceptMap("middle", "", fixture.OtherMap("plain|1")),
	fixture.ConceptMap("round", "", fixture.OtherMap("about")), fixture.ConceptMap("about", "", fixture.OtherMap("round")), fixture.ConceptMap("lost", "", fixture.OtherMap("nowhere")),
	`{"resourceType":"ConceptMap","url":"http://x/groups","status":"active","sourceCanonical":"http://x/vs|2","group":[
		{"source":"http://x/a","target":"http://x/b","element":[{"code":"1","target":[{"code":"one"}]}]},
		{"source":"http://x/a","sourceVersion":"2","target":"http://x/c","element":[{"code":"1","target":[{"code":"I"}]}]},
		{"source":"http://x/a","target":"http://x/b","unmapped":{"mode":"fixed","code":"rest"},"element":[{"code":"2","target":[{"code":"two"}]}]}]}`,
}

// matches returns the result of $translate and a summary of each match: equivalence, concept and other parts.
func matches(t *testing.T, body []byte) (result bool, list []string) {
	t.Helper()
	type part struct {
		Name, ValueCode, ValueString, ValueCanonical, ValueURI string
		ValueBoolean                                           bool
		ValueCoding                                            struct{ System, Code, Display string }
		Part                                                   []part
	}
	var answer struct{ Parameter []part }
	if err := json.Unmarshal(body, &answer); err != nil {
		t.Fatal(err)
	}
	for _, p := range answer.Parameter {
		if p.Name == "result" {
			result = p.ValueBoolean
		}
		var parts []string
		for _, q := range p.Part {
			text := q.ValueCode + q.ValueCoding.Code
			switch q.Name {
			case "source", "sourceComment", "targetComment":
				text = q.Name + "=" + q.ValueCoding.Code + q.ValueString
			case "product":
				text = q.Part[0].ValueURI + "=" + q.Part[1].ValueCoding.Code
			case "originMap", "used-conceptmap":
				text = strings.TrimPrefix(q.ValueCanonical, "http://x/")
			}
			parts = append(parts, text)
		}
		if p.Name == "match" {
			list = append(list, strings.Join(parts, " "))
		}
	}
	return result, list
}

// TestTranslate checks R4 ConceptMap/$translate and ConceptMap.group.unmapped. Parameters that R4 lacks follow the HL7
// terminology ecosystem IG.
func TestTranslate(t *testing.T) {
	h := &api.Handler{Library: terminologytest.Library(t, translations...)}
	tests := []struct {
		name, query string
		result      bool
		want        []string
	}{
		{"several targets", "url=http://x/plain&system=http://x/a&code=1", true, []string{"equivalent one plain|1", "wider uno plain|1 targetComment=see"}},
		{"disjoint is a match, but no translation", "url=http://x/plain&system=http://x/a&code=2", false, []string{"disjoint two plain|1"}},
		{"no target", "url=http://x/plain&system=http://x/a&code=3", false, []string{"unmatched plain|1 targetComment=none"}},
		{"no target, in R5 form", "url=http://x/plain&system=http://x/a&code=4", false, []string{"unmatched plain|1"}},
		{"product, comment and relationship", "url=http://x/plain&system=http://x/a&code=5", true, []string{"narrower five http://x/p=v plain|1 sourceComment=from"}},
		{"not mapped", "url=http://x/plain&system=http://x/a&code=6", false, nil},
		{"unmapped: fixed", "url=http://x/fixed&system=http://x/a&code=6", true, []string{"relatedto rest fixed|1"}},
		{"unmapped: not where there is an element", "url=http://x/fixed&system=http://x/a&code=1", true, []string{"relatedto one fixed|1"}},
		{"unmapped: not where the element is unmatched", "url=http://x/fixed&system=http://x/a&code=3", false, []string{"unmatched fixed|1"}},
		{"unmapped: not of another system", "url=http://x/fixed&system=http://x/z&code=6", false, nil},
		{"unmapped: not in reverse", "url=http://x/fixed&targetSystem=http://x/b&targetCode=6", false, nil},
		{"unmapped: as provided", "url=http://x/provided&system=http://x/a&code=6", true, []string{"equivalent 6 provided|1"}},
		{"unmapped: with R5's words", "url=http://x/as-is&system=http://x/a&code=6", true, []string{"relatedto 6 as-is|1"}},
		{"other map: not needed", "url=http://x/ours&system=http://x/a&code=1", true, []string{"equal eins ours|1"}},
		{"other map: of another", "url=http://x/ours&system=http://x/a&code=5", true, []string{"narrower five http://x/p=v ours|1 middle|1 plain|1 sourceComment=from"}},
		{"other map: not here", "url=http://x/lost&system=http://x/a&code=1", false, nil},
		{"groups of several targets", "url=http://x/groups&system=http://x/a&code=1", true, []string{"relatedto one groups", "relatedto I groups"}},
		{"groups with one target are combined", "url=http://x/groups&system=http://x/a&code=2", true, []string{"relatedto two groups"}},
		{"one target", "url=http://x/groups&system=http://x/a&code=1&targetsystem=http://x/c", true, []string{"relatedto I groups"}},
		{"source version", "url=http://x/groups&system=http://x/a&version=1&code=1", true, []string{"relatedto one groups"}},
		{"source value set", "source=http://x/vs&system=http://x/a&code=1&targetsystem=http://x/c", true, []string{"relatedto I groups"}},
		{"source value set in another version", "source=http://x/vs|3&system=http://x/a&code=1&targetsystem=http://x/c", false, nil},
		{"back, as R5 has it", "url=http://x/plain&targetSystem=http://x/b&targetCode=uno&sourceSystem=http://x/a", true, []string{"wider uno source=1 plain|1 targetComment=see"}},
		{"back, as R4 has it", "url=http://x/plain&system=http://x/b&code=uno&reverse=true", true, []string{"narrower 1 plain|1 targetComment=see"}},
		{"back, to a system", "url=http://x/plain&system=http://x/b&targetsystem=http://x/a&code=uno&reverse=true", true, []string{"narrower 1 plain|1 targetComment=see"}},
		{"back, with all turned round", "url=http://x/plain&system=http://x/a&targetsystem=http://x/b&code=uno&reverse=true", true, []string{"narrower 1 plain|1 targetComment=see"}},
		{"back, with value sets turned round", "url=http://x/groups&target=http://x/vs&system=http://x/c&code=I&reverse=true", true, []string{"relatedto 1 groups"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w, _ := terminologytest.Call(t, h, "GET", "/ConceptMap/$translate?"+test.query, "")
			result, got := matches(t, w.Body.Bytes())
			if result != test.result || !slices.Equal(got, test.want) {
				t.Errorf("got %t %q\nwant %t %q\nin %s", result, got, test.result, test.want, w.Body)
			}
			if !result {
				fixture.WantContains(t, w.Body.String(), `"name":"message"`)
			}
		})
	}
}

func TestTranslateConcept(t *testing.T) {
	h := &api.Handler{Library: terminologytest.Library(t, translations...)}
	concept := func(name string) string {
		return fixture.ParametersOf(fixture.URI("url", "http://x/plain"), `{"name":"`+name+`","valueCodeableConcept":{"coding":[{"system":"http://x/z","code":"1"},{"system":"http://x/a","code":"1"}]}}`)
	}
	for _, name := range []string{"codeableConcept", "sourceCodeableConcept"} {
		w, _ := terminologytest.Call(t, h, "POST", "/ConceptMap/$translate", concept(name))
		if result, got := matches(t, w.Body.Bytes()); !result || len(got) != 2 {
			t.Errorf("%s: got %s", name, w.Body)
		}
	}
	if w, _ := terminologytest.Call(t, h, "GET", "/ConceptMap/$translate?code=1&sourceCode=1&system=http://x/a", ""); w.Code != 400 {
		t.Errorf("two codes: got %d", w.Code)
	}
}

// TestTranslateInline checks that if a request contains a concept map, no other is used (R4 ConceptMap/$translate, parameter
// conceptMap), except for loaded concept maps that it refers to.
func TestTranslateInline(t *testing.T) {
	h := &api.Handler{Library: terminologytest.Library(t, translations...)}
	inline := func(resource string) string { return `{"name":"conceptMap","resource":` + resource + `}` }
	one := `{"name":"code","valueCode":"1"}`
	own := inline(`{"resourceType":"ConceptMap","group":[{"source":"http://x/a","target":"http://x/b","element":[{"code":"1","target":[{"code":"mine"}]}]}]}`)
	tests := []struct {
		name   string
		sent   []string
		status int
		want   []string
	}{
		{"alone", []string{own, one}, 200, []string{"relatedto mine"}},
		{"beside the url of another", []string{own, one, fixture.URI("url", "http://x/plain")}, 200, []string{"relatedto mine"}},
		{"with others brought along", []string{own, one, `{"name":"tx-resource","resource":` + fixture.ConceptMap("brought", `{"code":"1","target":[{"code":"other"}]}`, "") + `}`}, 200, []string{"relatedto mine"}},
		{"not mapped by it", []string{own, `{"name":"code","valueCode":"5"}`}, 200, nil},
		{"hands on", []string{inline(fixture.ConceptMap("ours", "", fixture.OtherMap("plain"))), `{"name":"code","valueCode":"5"}`}, 200, []string{"narrower five http://x/p=v ours|1 plain|1 sourceComment=from"}},
		{"not a concept map", []string{inline(`{"resourceType":"ValueSet"}`), one}, 400, nil},
		{"two", []string{own, own, one}, 400, nil},
		{"no resource", []string{`{"name":"conceptMap","valueString":"x"}`, one}, 400, nil},
		{"broken", []string{inline(`{"resourceType":"ConceptMap","group":1}`), one}, 400, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w, _ := terminologytest.Call(t, h, "POST", "/ConceptMap/$translate", fixture.ParametersOf(append(test.sent, fixture.URI("system", "http://x/a"))...))
			if _, got := matches(t, w.Body.Bytes()); w.Code != test.status || !slices.Equal(got, test.want) {
				t.Errorf("got %d %q\nwant %d %q\nin %s", w.Code, got, test.status, test.want, w.Body)
			}
		})
	}
	err := terminologytest.ServeError(&api.Handler{Library: h.Library, HasOtherServers: true}, httptest.NewRecorder(), httptest.NewRequest("POST", "/ConceptMap/$translate",
		strings.NewReader(fixture.ParametersOf(own, `{"name":"code","valueCode":"5"}`))))
	if err != nil {
		t.Errorf("other servers without the map are called: %v", err)
	}
}

// TestTranslateDependency checks that a target that depends on another element applies only if the element has that value. If
// the request lacks the element, the match includes the dependency (R4 ConceptMap.group.element.target.dependsOn).
func TestTranslateDependency(t *testing.T) {
	on := func(code, value string) string {
		return `{"code":"` + code + `","dependsOn":[{"property":"http://x/sex","system":"http://x/s|2","value":"` + value + `"}]}`
	}
	h := &api.Handler{Library: terminologytest.Library(t, fixture.ConceptMap("sexes", `{"code":"1","target":[`+on("male-1", "m")+`,`+on("female-1", "f")+`,{"code":"both-1"}]},
		{"code":"2","target":[`+on("male-2", "m")+`]},{"code":"3","target":[{"code":"old","dependsOn":[{"property":"http://x/age","value":"old"}]}]}`,
		`,"unmapped":{"mode":"fixed","code":"rest"}`))}
	dependency := func(element, value string) string {
		return `{"name":"dependency","part":[{"name":"element","valueUri":"` + element + `"},` + value + `]}`
	}
	concept := func(codings, text string) string {
		return `{"name":"concept","valueCodeableConcept":{"coding":[` + codings + `],"text":"` + text + `"}}`
	}
	male := concept(`{"system":"http://x/z","code":"f"},{"system":"http://x/s","code":"m"}`, "")
	tests := []struct {
		name, code, dependency string
		want                   string
	}{
		{"no dependency given", "1", "", "male-1 female-1 both-1"},
		{"told", "1", dependency("http://x/sex", male), "male-1 both-1"},
		{"another value", "1", dependency("http://x/sex", concept(`{"system":"http://x/s","code":"u"}`, "")), "both-1"},
		{"another element", "1", dependency("http://x/age", male), "male-1 female-1 both-1"},
		{"as R5 has it", "1", `{"name":"dependency","part":[{"name":"attribute","valueUri":"http://x/sex"},{"name":"value","valueCoding":{"system":"http://x/s","code":"f"}}]}`, "female-1 both-1"},
		{"two values of one element", "1", dependency("http://x/sex", male) + `,` + dependency("http://x/sex", concept(`{"system":"http://x/s","code":"f"}`, "")), "male-1 female-1 both-1"},
		{"none is left: unmapped", "2", dependency("http://x/sex", concept("", "?")), "rest"},
		{"a text", "3", dependency("http://x/age", concept("", "old")), "old"},
		{"a string", "3", dependency("http://x/age", `{"name":"value","valueString":"young"}`), "rest"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			sent := []string{fixture.URI("url", "http://x/sexes"), fixture.URI("system", "http://x/a"), `{"name":"code","valueCode":"` + test.code + `"}`}
			if test.dependency != "" {
				sent = append(sent, test.dependency)
			}
			w, _ := terminologytest.Call(t, h, "POST", "/ConceptMap/$translate", fixture.ParametersOf(sent...))
			_, list := matches(t, w.Body.Bytes())
			var codes []string
			for _, match := range list {
				codes = append(codes, strings.Fields(match)[1])
			}
			if got := strings.Join(codes, " "); got != test.want {
				t.Errorf("got %q, want %q in %s", got, test.want, w.Body)
			}
		})
	}
	w, _ := terminologytest.Call(t, h, "POST", "/ConceptMap/$translate", fixture.ParametersOf(fixture.URI("system", "http://x/a"), `{"name":"code","valueCode":"1"}`, `{"name":"dependency","part":[]}`))
	if w.Code != 400 {
		t.Errorf("without an element: got %d", w.Code)
	}
}

// TestProductWithoutValue checks products with an unsupported value, such as an R5 value that is not a code.
func TestProductWithoutValue(t *testing.T) {
	h := &api.Handler{Library: terminologytest.Library(t, fixture.ConceptMap("empty", `{"code":"1","target":[{"code":"one","product":[{"property":"http://x/p"}],"dependsOn":[{"property":"http://x/d"}]}]}`, ""))}
	w, _ := terminologytest.Call(t, h, "GET", "/ConceptMap/$translate?url=http://x/empty&system=http://x/a&code=1", "")
	fixture.WantContains(t, w.Body.String(), `{"name":"product","part":[{"name":"element","valueUri":"http://x/p"}]}`, `{"name":"dependsOn","part":[{"name":"element","valueUri":"http://x/d"}]}`)
}

// TestTranslateInCircles checks that concept maps that refer to each other, or branch endlessly, result in an error.
func TestTranslateInCircles(t *testing.T) {
	h := &api.Handler{Library: terminologytest.Library(t, translations...)}
	w, _ := terminologytest.Call(t, h, "GET", "/ConceptMap/$translate?url=http://x/round&system=http://x/a&code=1", "")
	if w.Code != 422 || !strings.Contains(w.Body.String(), "http://x/round|1 -> http://x/about|1 -> http://x/round|1") {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	var many []string
	for i := range 40 {
		group := `{"source":"http://x/a","target":"http://x/b","element":[]` + fixture.OtherMap(fmt.Sprint(i+1)) + `}`
		many = append(many, fmt.Sprintf(`{"resourceType":"ConceptMap","url":"http://x/%d","status":"active","group":[%s,%s]}`, i, group, group))
	}
	w, _ = terminologytest.Call(t, &api.Handler{Library: terminologytest.Library(t, many...)}, "GET", "/ConceptMap/$translate?url=http://x/0&system=http://x/a&code=1", "")
	if w.Code != 422 || !strings.Contains(w.Body.String(), "too-costly") {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
}

// TestTranslateTooCostly checks that the number of matches is limited like that of an expansion's entries. A request may
// contain a concept map with many targets, and many codings.
func TestTranslateTooCostly(t *testing.T) {
	h := &api.Handler{Library: terminologytest.Library(t, fixture.ConceptMap("wide", `{"code":"1","target":[`+strings.Repeat(`{"code":"x"},`, 99)+`{"code":"y"}]}`, ""))}
	ask := func(codings int, code string) error {
		body := `{"resourceType":"Parameters","parameter":[{"name":"url","valueUri":"http://x/wide"},{"name":"codeableConcept","valueCodeableConcept":{"coding":[` +
			strings.Repeat(`{"system":"http://x/a","code":"`+code+`"},`, codings-1) + `{"system":"http://x/a","code":"` + code + `"}]}}]}`
		return terminologytest.ServeError(h, httptest.NewRecorder(), httptest.NewRequest("POST", "/ConceptMap/$translate", strings.NewReader(body)))
	}
	wantCostly := func(name string, err error, want bool) {
		t.Helper()
		var e *outcome.Error
		if costly := errors.As(err, &e) && e.Code == "too-costly" && e.Status == http.StatusUnprocessableEntity; costly != want || !costly && err != nil {
			t.Errorf("%s: got %v", name, err)
		}
	}
	wantCostly("as many matches as may be", ask(100, "1"), false)
	wantCostly("too many matches", ask(101, "1"), true)
	h.Library.Definitions().Bounds.VisitedCodes = 1100
	wantCostly("as many targets as may be", ask(10, "2"), false)
	wantCostly("too many targets", ask(11, "2"), true)
}

// TestTwoTypes checks resources with a duplicate resourceType.
func TestTwoTypes(t *testing.T) {
	for _, parameter := range []string{"conceptMap", "tx-resource"} {
		body := fixture.ParametersOf(`{"name":"coding","valueCoding":{"system":"http://x/a","code":"c"}}`,
			`{"name":"`+parameter+`","resource":{"resourceType":"ConceptMap","resourceType":"Patient"}}`)
		w, _ := terminologytest.Call(t, &api.Handler{Library: terminologytest.ColourLibrary(t)}, http.MethodPost, "/ConceptMap/$translate", body)
		if w.Code != http.StatusBadRequest {
			t.Errorf("%s: got %d %s", parameter, w.Code, w.Body)
		}
	}
}

// TestLargeTranslation checks the maximum size of a response. The comments in it are twice as long in JSON as in memory.
func TestLargeTranslation(t *testing.T) {
	t.Parallel()
	h := &api.Handler{Library: terminologytest.Library(t, `{"resourceType":"ConceptMap","url":"http://x/m","status":"active","group":[{"source":"http://x/a","target":"http://x/b",
		"element":[{"code":"a","target":[{"code":"b","equivalence":"equal","comment":"`+strings.Repeat(`\"`, 2<<20-8)+`"}]}]}]}`)}
	for codings, status := range map[int]int{15: 200, 16: 422} {
		w := httptest.NewRecorder() // not fixture.Call, because decoding the response would take a second
		terminologytest.Serve(h).ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/fhir/R4/ConceptMap/$translate", strings.NewReader(`{"resourceType":"Parameters","parameter":[{"name":"codeableConcept","valueCodeableConcept":{"coding":[`+
			strings.TrimSuffix(strings.Repeat(`{"system":"http://x/a","code":"a"},`, codings), ",")+`]}}]}`)))
		if w.Code != status {
			t.Errorf("%d codings: got %d, want %d", codings, w.Code, status)
		}
	}
}

// TestTranslateCore checks that R4's concept maps are loaded, except for examples.
func TestTranslateCore(t *testing.T) {
	h := &api.Handler{Library: terminologytest.Core(t)}
	const gender, v3 = "http://hl7.org/fhir/administrative-gender", "http://terminology.hl7.org/CodeSystem/v3-AdministrativeGender"
	for path, want := range map[string]string{
		"/ConceptMap/$translate?system=" + gender + "&code=male&targetsystem=" + v3:                                               `{"name":"result","valueBoolean":true}`,
		"/ConceptMap/$translate?url=http://hl7.org/fhir/ConceptMap/cm-administrative-gender-v3&system=" + gender + "&code=female": `"code":"F"`,
		"/ConceptMap/cm-administrative-gender-v3/$translate?system=" + gender + "&code=other":                                     `"code":"UN"`,
		"/ConceptMap/$translate?system=http://snomed.info/sct&code=263204007&targetsystem=http://hl7.org/fhir/sid/icd-10-us":      `{"name":"result","valueBoolean":false}`,
	} {
		w, _ := terminologytest.Call(t, h, "GET", path, "")
		fixture.WantContains(t, w.Body.String(), want)
	}
}
