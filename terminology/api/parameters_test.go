package api_test

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	"github.com/caddy-fhir/caddy-fhir/terminology/expansion"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/compose"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest/fixture"
)

func TestExpandParameters(t *testing.T) {
	l := terminologytest.ColourLibrary(t)
	tests := []struct {
		name  string
		pairs []string
		want  string
	}{
		{"plain: a list", nil, "any[Any colour] red[Red] pink[Pink](status=retired) blue[Blue]"},
		{"plain with an ignored parameter", []string{"_", "1700000000"}, "any[Any colour] red[Red] pink[Pink](status=retired) blue[Blue]"},
		{"a tree", []string{"excludeNested", "false"}, "any[Any colour]{red[Red]{pink[Pink](status=retired)} blue[Blue]}"},
		{"a page is a list", []string{"excludeNested", "false", "count", "2"}, "any[Any colour] red[Red]"},
		{"no inactive ones", []string{"activeOnly", "true"}, "any[Any colour] red[Red] blue[Blue]"},
		{"a tree of those that are for users", []string{"excludeNotForUI", "true", "excludeNested", "false"}, "red[Red]{pink[Pink](status=retired)} blue[Blue]"},
		{"language", []string{"displayLanguage", "de"}, "any[Any colour] red[Rot] pink[Pink](status=retired) blue[Blau]"},
		{"narrower language first", []string{"displayLanguage", "de-CH, *;q=0"}, "any red[Rot (CH)] pink(status=retired) blue[Blau]"},
		{"language by weight", []string{"displayLanguage", "de;q=0.5,nl", "count", "2"}, "any[Any colour] red[Rood]"},
		{"designations", []string{"includeDesignations", "true", "filter", "red"}, "red[Red]<de:Rot><de-CH:Rot (CH)><fr:Rouge><nl:Rood>"},
		{"designations by language", []string{"designation", "urn:ietf:bcp:47|de", "filter", "red"}, "red[Red]<de:Rot>"},
		{"designations by use", []string{"designation", "http://x/use|formal", "filter", "red"}, "red[Red]<fr:Rouge>"},
		{"properties", []string{"property", "hue", "property", "definition", "count", "2"}, "any[Any colour](definition=All of them) red[Red](hue=0)"},
		{"the hierarchy as properties", []string{"property", "parent", "property", "child", "count", "2"}, "any[Any colour](child=red,child=blue) red[Red](parent=any,child=pink)"},
		{"all properties", []string{"property", "*", "activeOnly", "true", "filter", "red"}, "red[Red](hue=0,kin=)"},
		{"supplement", []string{"useSupplement", "http://x/notes", "property", "mood", "filter", "red"}, "red[Red](weight=1.50,mood=angry)"},
		{"system excluded", []string{"exclude-system", "http://x/colours"}, ""},
		{"other system excluded", []string{"exclude-system", "http://x/colours|2", "count", "1"}, "any[Any colour]"},
		{"as on a date", []string{"date", "2026-01-01", "count", "1"}, "any[Any colour]"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := terminologytest.Expand(t, l, append([]string{"url", "http://x/colours/vs"}, test.pairs...)...)
			if o := terminologytest.Outline(got.Expansion.Contains); o != test.want {
				t.Errorf("got  %s\nwant %s", o, test.want)
			}
		})
	}
}

func TestExpandSubjects(t *testing.T) {
	h := &api.Handler{Library: terminologytest.ColourLibrary(t)}
	inline := `{"resourceType":"ValueSet","status":"active","contained":[{"resourceType":"ValueSet","id":"in","compose":{"include":[
		{"system":"http://x/colours","concept":[{"code":"blue"}]}]}}],"compose":{"include":[{"valueSet":["#in"]}]}}`
	green := `{"resourceType":"CodeSystem","url":"http://x/colours","version":"0.9","content":"complete","status":"active","concept":[{"code":"green"}]}`
	tests := []struct{ name, method, path, body, want string }{
		{"listed", "GET", "/ValueSet/$expand?url=http://x/listed", "", "red[Crimson] blue[Blue]"},
		{"listed, in a language", "GET", "/ValueSet/$expand?url=http://x/listed&displayLanguage=de", "", "red[Karmesin] blue[Blau]"},
		{"all of a code system", "GET", "/ValueSet/$expand?url=http://x/colours?fhir_vs&count=1", "", "any[Any colour]"},
		{"below a concept", "GET", "/ValueSet/$expand?url=http://x/colours%3Ffhir_vs=isa/red", "", "red[Red] pink[Pink](status=retired)"},
		{"context", "GET", "/ValueSet/$expand?context=http://x/Paint%23Paint.colour&contextDirection=outgoing&activeOnly=true", "", "red[Red]"},
		{"bare value set", "POST", "/ValueSet/$expand", inline, "blue[Blue]"},
		{"value set in Parameters", "POST", "/ValueSet/$expand", `{"resourceType":"Parameters","parameter":[{"name":"valueSet","resource":` + inline + `}]}`, "blue[Blue]"},
		{"form", "POST", "/ValueSet/$expand?count=1", "", "any[Any colour]"},
		{"brought along", "POST", "/ValueSet/$expand", `{"resourceType":"Parameters","parameter":[{"name":"url","valueUri":"http://x/colours/vs"},
			{"name":"tx-resource","resource":` + green + `}]}`, "green"},
		{"the library is as it was", "GET", "/ValueSet/$expand?url=http://x/colours/vs&count=1", "", "any[Any colour]"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			path, body := test.path, test.body
			if test.name == "form" {
				path += "&url=http://x/colours/vs"
			}
			w, _ := terminologytest.Call(t, h, test.method, path, body)
			var got terminologytest.Expanded
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != 200 {
				t.Fatalf("got %d %s", w.Code, w.Body)
			}
			if o := terminologytest.Outline(got.Expansion.Contains); o != test.want {
				t.Errorf("got  %s\nwant %s", o, test.want)
			}
		})
	}
}

func TestExpandInstance(t *testing.T) {
	h := &api.Handler{Library: terminologytest.Core(t)}
	_, byID := terminologytest.Call(t, h, "GET", "/ValueSet/administrative-gender/$expand?filter=male", "")
	_, byURL := terminologytest.Call(t, h, "GET", "/ValueSet/$expand?filter=male&url="+gender, "")
	if a, b := jsonOf(byID), jsonOf(byURL); a != b {
		t.Errorf("got %s, want %s", a, b)
	}
	if w, _ := terminologytest.Call(t, h, "GET", "/ValueSet/administrative-gender/$expand?url="+gender+"|4.0.1", ""); w.Code != 200 {
		t.Errorf("its own url: got %d %s", w.Code, w.Body)
	}
	if w, _ := terminologytest.Call(t, h, "GET", "/ValueSet/administrative-gender/$expand?url=http://hl7.org/fhir/ValueSet/languages", ""); w.Code != 400 {
		t.Errorf("the url of another: got %d %s", w.Code, w.Body)
	}
	if w, answer := terminologytest.Call(t, h, "GET", "/ValueSet/none/$expand", ""); w.Code != 404 || answer["resourceType"] != "OperationOutcome" {
		t.Errorf("got %d %v", w.Code, answer)
	}
}

// jsonOf returns the JSON of v with sorted members.
func jsonOf(v any) string {
	text, _ := json.Marshal(v)
	return string(text)
}

func TestIncludeDefinition(t *testing.T) {
	h := &api.Handler{Library: terminologytest.Library(t, fixture.Colours, `{"resourceType":"ValueSet","id":"v","url":"http://x/v","status":"draft","publisher":"P",
		"extension":[{"url":"http://x/e","valueString":"kept"}],"compose":{"include":[{"system":"http://x/colours"}]}}`)}
	_, plain := terminologytest.Call(t, h, "GET", "/ValueSet/v/$expand", "")
	_, withDefinition := terminologytest.Call(t, h, "GET", "/ValueSet/v/$expand?includeDefinition=true", "")
	for _, member := range []string{"id", "publisher", "extension", "compose"} {
		if plain[member] != nil || withDefinition[member] == nil {
			t.Errorf("%s: got %v and %v", member, plain[member], withDefinition[member])
		}
	}
}

func TestVersionRules(t *testing.T) {
	version := func(v string) string {
		return strings.ReplaceAll(fixture.SingleConceptCodeSystem("http://x/cs", v, "c"), `{"code":"c"}`, `{"code":"c","display":"`+v+`"}`)
	}
	l := terminologytest.Library(t, version("1.0.0"), version("1.2.0"), version("2.0.0"), fixture.AllCodesOf("http://x/cs"),
		fixture.ValueSet("http://x/one", `{"include":[{"system":"http://x/cs","version":"1.x"}]}`))
	tests := []struct {
		name, url string
		pairs     []string
		want      string // display, or part of the error message
	}{
		{"latest", "cs-all", nil, "2.0.0"},
		{"wildcard", "one", nil, "1.2.0"},
		{"preferred", "cs-all", []string{"system-version", "http://x/cs|1.0.0"}, "1.0.0"},
		{"preferred, but fixed by the value set", "one", []string{"system-version", "http://x/cs|2.0.0"}, "1.2.0"},
		{"forced", "one", []string{"force-system-version", "http://x/cs|1.0.x"}, "1.0.0"},
		{"required", "cs-all", []string{"check-system-version", "http://x/cs|1.x"}, "1.2.0"},
		{"required, but fixed by the value set", "one", []string{"check-system-version", "http://x/cs|2.x"}, "required to be '2.x'"},
		{"forced and not here", "one", []string{"force-system-version", "http://x/cs|3"}, "Valid versions: 1.0.0, 1.2.0 or 2.0.0"},
		{"of another system", "cs-all", []string{"force-system-version", "http://x/other|1.0.0"}, "2.0.0"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w, err := terminologytest.Request(&api.Handler{Library: l}, http.MethodGet, terminologytest.Query(append([]string{"url", "http://x/" + test.url}, test.pairs...)...))
			got := w.Body.String()
			if err != nil {
				got = err.Error()
			}
			if !strings.Contains(got, test.want) || err == nil && !strings.Contains(got, `"display":"`+test.want+`"`) {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func TestFormats(t *testing.T) {
	h := &api.Handler{Library: terminologytest.Core(t)}
	path := "/ValueSet/$expand?url=" + gender
	if w, _ := terminologytest.Call(t, h, "GET", path, "", "Accept", "text/html,application/xml;q=0.9,*/*"); w.Body.Bytes()[0] != '{' {
		t.Errorf("got %.50s", w.Body)
	}
	if w, _ := terminologytest.Call(t, h, "GET", path+"&_pretty=true", ""); !strings.Contains(w.Body.String(), "\n") {
		t.Errorf("got %.50s", w.Body)
	}
	if w, _ := terminologytest.Call(t, h, "GET", path+"&_format=turtle", ""); w.Code != http.StatusNotAcceptable {
		t.Errorf("got %d", w.Code)
	}
}

// TestWithoutXML checks that a build without package fhirxml, such as this test, rejects XML instead of returning JSON.
func TestWithoutXML(t *testing.T) {
	h := &api.Handler{Library: terminologytest.Core(t)}
	path := "/ValueSet/$expand?url=" + gender
	for name, test := range map[string]struct {
		method, query, body, header, value string
		status                             int
	}{
		"_format":             {method: "GET", query: "&_format=xml", status: http.StatusNotAcceptable},
		"Accept":              {method: "GET", header: "Accept", value: "application/fhir+xml", status: http.StatusNotAcceptable},
		"Accept of a browser": {method: "GET", header: "Accept", value: "text/html,application/xml;q=0.9", status: http.StatusOK},
		"JSON as well":        {method: "GET", header: "Accept", value: "application/fhir+xml, application/fhir+json;q=0.1", status: http.StatusOK},
		"no XML at all":       {method: "GET", header: "Accept", value: "application/fhir+xml;q=0", status: http.StatusOK},
		"a body":              {method: "POST", body: `<Parameters xmlns="http://hl7.org/fhir"/>`, header: "Content-Type", value: "application/fhir+xml", status: http.StatusUnsupportedMediaType},
	} {
		t.Run(name, func(t *testing.T) {
			w, answer := terminologytest.Call(t, h, test.method, path+test.query, test.body, test.header, test.value)
			if kind, ok := answer["resourceType"]; w.Code != test.status || !ok || (kind == "ValueSet") != (test.status == http.StatusOK) {
				t.Errorf("got %d %.200s", w.Code, w.Body)
			}
		})
	}
	w, _ := terminologytest.Call(t, h, "GET", "/metadata", "")
	fixture.WantContains(t, w.Body.String(), `"format":["application/fhir+json","json"]`)
}

func TestEntityTags(t *testing.T) {
	h := &api.Handler{Library: terminologytest.Core(t)}
	path := "/ValueSet/$expand?url=" + gender
	w, _ := terminologytest.Call(t, h, "GET", path, "")
	tag := w.Header().Get("ETag")
	for _, header := range []string{tag, "W/" + tag, `"x", ` + tag, "*"} {
		if again, _ := terminologytest.Call(t, h, "GET", path, "", "If-None-Match", header); again.Code != http.StatusNotModified || again.Body.Len() > 0 {
			t.Errorf("If-None-Match %s: got %d", header, again.Code)
		}
	}
	tags := []string{tag}
	for _, other := range []string{"&count=1", "&filter=m", "&_pretty=true", "&excludeNested=true", "&displayLanguage=de"} {
		w, _ := terminologytest.Call(t, h, "GET", path+other, "", "If-None-Match", tag)
		if got := w.Header().Get("ETag"); w.Code != 200 || slices.Contains(tags, got) {
			t.Errorf("%s: got %d %s", other, w.Code, got)
		}
	}
}

func TestStreamedResponse(t *testing.T) {
	var concepts []string
	for i := range 5000 {
		concepts = append(concepts, `{"code":"c`+strings.Repeat("0", i%7)+jsonOf(i)+`"}`)
	}
	l := terminologytest.Library(t, `{"resourceType":"CodeSystem","url":"http://x/big","status":"active","content":"complete","concept":[`+strings.Join(concepts, ",")+`]}`, fixture.AllCodesOf("http://x/big"))
	got := terminologytest.Expand(t, l, "url", "http://x/big-all")
	if len(got.Codes()) != 5000 || *got.Expansion.Total != 5000 {
		t.Errorf("got %d of %d", len(got.Codes()), *got.Expansion.Total)
	}
}

func TestCacheID(t *testing.T) {
	h := &api.Handler{Library: terminologytest.Core(t)}
	h.SetMaxCachedBytes(1000)
	parameters := func(more string) string {
		return `{"resourceType":"Parameters","parameter":[{"name":"url","valueUri":"http://x/cs-all"},{"name":"cache-id","valueId":"1"}` + more + `]}`
	}
	resource := func(r string) string { return `,{"name":"tx-resource","resource":` + r + `}` }
	status := func(body string, headers ...string) int {
		w, _ := terminologytest.Call(t, h, "POST", "/ValueSet/$expand", body, headers...)
		return w.Code
	}
	steps := []struct {
		name string
		got  int
		want int
	}{
		{"nothing yet", status(parameters("")), 404},
		{"a part", status(parameters(resource(fixture.AllCodesOf("http://x/cs")))), 422},
		{"the rest", status(parameters(resource(fixture.SingleConceptCodeSystem("http://x/cs", "1", "a")))), 200},
		{"remembered", status(parameters("")), 200},
		{"of another client", status(parameters(""), "Authorization", "Bearer x"), 404},
		{"too much to remember", status(parameters(resource(fixture.SingleConceptCodeSystem("http://x/y", "1", strings.Repeat("a", 1000))))), 200},
		{"still remembered", status(parameters("")), 200},
	}
	for _, step := range steps {
		if step.got != step.want {
			t.Errorf("%s: got %d, want %d", step.name, step.got, step.want)
		}
	}
}

// TestMaxGathered checks that Bounds.VisitedCodes limits the codes that a value set includes plus those it examines without a
// match. Otherwise, a request could contain a value set that takes unlimited time.
func TestMaxGathered(t *testing.T) {
	many := func(n int, include string) string { return strings.TrimSuffix(strings.Repeat(include+",", n), ",") }
	filtered := func(filters string) string { return `{"system":"http://x/colours","filter":[` + filters + `]}` }
	containing := func(n int, resource, include string) string {
		return `"contained":[` + many(n, resource) + `],"compose":{"include":[` + many(n, include) + `]}`
	}
	const (
		none   = `{"property":"code","op":"=","value":"none"}`
		anyOf  = `{"property":"concept","op":"is-a","value":"any"}`
		system = `{"resourceType":"CodeSystem","id":"c","url":"http://x/c","status":"active","content":"complete"}`
		set    = `{"resourceType":"ValueSet","id":"v","url":"http://x/v","status":"active","compose":{"include":[{"system":"http://x","concept":[]}]}}`
	)
	for name, members := range map[string]string{
		"codes":                      `"compose":{"include":[` + many(10, `{"system":"http://x/colours"}`) + `]}`,
		"filters that find nothing":  `"compose":{"include":[` + many(10, filtered(none)) + `]}`,
		"a regex of many states":     `"compose":{"include":[` + filtered(`{"property":"code","op":"regex","value":"x{50}"}`) + `]}`,
		"filters by the hierarchy":   `"compose":{"include":[` + many(5, filtered(anyOf+","+none)) + `]}`,
		"contained value sets":       containing(10, set, `{"valueSet":["#v"]}`),
		"contained code systems":     containing(10, system, `{"system":"#c"}`),
		"imports, one for each name": `"compose":{"include":[{"valueSet":[` + many(60, `"http://x/colours/vs"`) + `]}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			body := `{"resourceType":"ValueSet","url":"http://x/v","status":"active",` + members + `}`
			for limit, want := range map[int]int{30: 422, 100_000: 200} {
				l := terminologytest.ColourLibrary(t) // new for each limit, because a cached expansion has no cost
				l.Definitions().Bounds.VisitedCodes = limit
				if w, _ := terminologytest.Call(t, &api.Handler{Library: l}, "POST", "/ValueSet/$expand", body); w.Code != want || want != 200 && !strings.Contains(w.Body.String(), "too-costly") {
					t.Errorf("up to %d: got %d %s", limit, w.Code, w.Body)
				}
			}
		})
	}
}

// unrelated lists parameters that do not affect the form of a response. Their values do not exclude any codes.
var unrelated = [][2]string{
	{"displayLanguage", "de"}, {"displayLanguage", "x-none, *;q=0"}, {"includeDesignations", "true"}, {"includeDesignations", "false"},
	{"includeDefinition", "true"}, {"activeOnly", "false"}, {"excludeNotForUI", "false"}, {"excludePostCoordinated", "true"},
	{"designation", "urn:ietf:bcp:47|de"}, {"property", "hue"}, {"property", "*"}, {"useSupplement", "http://x/notes"}, {"date", "2026-01-01"},
	{"contextDirection", "incoming"}, {"exclude-system", "http://x/other"}, {"system-version", "http://x/colours|1.0.0"},
	{"check-system-version", "http://x/colours|1.0.0"}, {"force-system-version", "http://x/colours|1.0.0"}, {"versionsMatch", "false"},
	{"default-valueset-version", "http://x/other|1"}, {"cache-id", "1"}, {"_", "1700000000"}, {"_pretty", "true"}, {"_elements", "expansion"}, {"filter", " "},
}

// TestResponseForm checks that only the HTTP method and excludeNested determine whether a response is a list or a tree, and
// whether it has an offset. Otherwise, a client that adds another parameter could miss codes at the top level.
func TestResponseForm(t *testing.T) {
	h := &api.Handler{Library: terminologytest.ColourLibrary(t)}
	forms := []struct {
		method, excludeNested string
		tree, offset          bool
	}{
		{"GET", "", false, true}, {"GET", "true", false, true}, {"GET", "false", true, true},
		{"POST", "", true, false}, {"POST", "true", false, false}, {"POST", "false", true, false},
	}
	ask := func(method string, query url.Values) (contains []terminologytest.Entry, offset bool) {
		t.Helper()
		path, body := "/ValueSet/$expand?"+query.Encode(), ""
		if method == "POST" {
			var sent []string
			for name, values := range query {
				value, _ := json.Marshal(values[0])
				sent = append(sent, `{"name":"`+name+`","valueString":`+string(value)+`}`)
			}
			path, body = "/ValueSet/$expand", fixture.ParametersOf(sent...)
		}
		w, _ := terminologytest.Call(t, h, method, path, body)
		var got terminologytest.Expanded
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != 200 {
			t.Fatalf("%s: got %d %s", path, w.Code, w.Body)
		}
		return got.Expansion.Contains, got.Expansion.Offset != nil
	}
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 9))
		form := forms[seed%uint64(len(forms))]
		query := url.Values{"url": {"http://x/colours/vs"}}
		if form.excludeNested != "" {
			query.Set("excludeNested", form.excludeNested)
		}
		for range r.IntN(5) {
			more := unrelated[r.IntN(len(unrelated))]
			query.Set(more[0], more[1])
		}
		contains, offset := ask(form.method, query)
		want := "any red pink blue"
		if form.tree {
			want = "any{red{pink} blue}"
		}
		if got := codesOnly(contains); got != want || offset != form.offset {
			t.Errorf("%s %s: got %s, has offset: %t", form.method, query.Encode(), got, offset)
		}
	}
}

// codesOnly formats an expansion as a list of codes, with nested entries in braces: code{nested codes}.
func codesOnly(contains []terminologytest.Entry) string {
	var list []string
	for _, c := range contains {
		code := c.Code
		if len(c.Contains) > 0 {
			code += "{" + codesOnly(c.Contains) + "}"
		}
		list = append(list, code)
	}
	return strings.Join(list, " ")
}

// TestFormByValueSet checks that expansion parameters in a value set cannot turn the list of a GET into a tree.
func TestFormByValueSet(t *testing.T) {
	vs := `{"resourceType":"ValueSet","url":"http://x/own","status":"active","compose":{"extension":[{"url":"http://hl7.org/fhir/StructureDefinition/valueset-expansion-parameter",
		"extension":[{"url":"name","valueCode":"excludeNested"},{"url":"value","valueBoolean":false}]}],"include":[{"system":"http://x/colours"}]}}`
	h := &api.Handler{Library: terminologytest.Library(t, fixture.Colours, vs)}
	for query, want := range map[string]string{"": "any red pink blue", "&excludeNested=false": "any{red{pink} blue}"} {
		w, _ := terminologytest.Call(t, h, "GET", "/ValueSet/$expand?url=http://x/own"+query, "")
		var got terminologytest.Expanded
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || codesOnly(got.Expansion.Contains) != want {
			t.Errorf("%s: got %s", query, w.Body)
		}
	}
}

// members requests an expansion. It returns the sorted member names of the response, separated by spaces, and the members.
func members(t *testing.T, h *api.Handler, pairs ...string) (names string, answer map[string]json.RawMessage) {
	t.Helper()
	w, err := terminologytest.Request(h, http.MethodGet, terminologytest.Query(pairs...))
	if err != nil {
		t.Fatalf("%q: %v", pairs, err)
	}
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
		t.Fatalf("%q: %v", pairs, err)
	}
	return strings.Join(slices.Sorted(maps.Keys(answer)), " "), answer
}

const described = `{"resourceType":"ValueSet","id":"v","url":"http://x/v","version":"1","name":"V","title":"A v","status":"active",
	"experimental":false,"description":"all of it","immutable":true,"compose":{"include":[{"system":"http://x/s","concept":[{"code":"a"},{"code":"b"}]}]}}`

func TestSubset(t *testing.T) {
	h := &api.Handler{Library: terminologytest.Library(t, described)}
	for _, test := range []struct {
		name  string
		query []string
		want  string
	}{
		{"everything", nil, "expansion experimental name resourceType status title url version"},
		{"everything, explicitly", []string{"_summary", "false"}, "expansion experimental name resourceType status title url version"},
		{"summary", []string{"_summary", "true"}, "experimental meta name resourceType status title url version"},
		{"summary of the definition", []string{"_summary", "true", "includeDefinition", "true"}, "experimental id immutable meta name resourceType status title url version"},
		{"without narrative", []string{"_summary", "data"}, "expansion experimental meta name resourceType status title url version"},
		{"narrative", []string{"_summary", "text"}, "meta resourceType status"},
		{"count", []string{"_summary", "count"}, "expansion meta resourceType status"},
		{"one element", []string{"_elements", "url"}, "meta resourceType status url"},
		{"several", []string{"_elements", "url, title", "_elements", "ValueSet.expansion.contains"}, "expansion meta resourceType status title url"},
		{"unknown ones", []string{"_elements", "nothing"}, "meta resourceType status"},
		{"none", []string{"_elements", ""}, "expansion experimental name resourceType status title url version"},
		{"of the definition", []string{"_elements", "description,compose", "includeDefinition", "true"}, "compose description id meta resourceType status"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, answer := members(t, h, append([]string{"url", "http://x/v"}, test.query...)...)
			if got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
			if meta, ok := answer["meta"]; ok {
				fixture.WantContains(t, string(meta), `"code":"SUBSETTED"`, `"system":"http://terminology.hl7.org/CodeSystem/v3-ObservationValue"`)
			}
		})
	}
}

// TestSubsetCount checks that the total can be requested even if there are too many codes to return.
func TestSubsetCount(t *testing.T) {
	h := &api.Handler{Library: terminologytest.Library(t, described), Limits: expansion.Limits{Entries: 1}}
	_, answer := members(t, h, "url", "http://x/v", "_summary", "count")
	var expansion map[string]any
	if err := json.Unmarshal(answer["expansion"], &expansion); err != nil {
		t.Fatal(err)
	}
	if names := slices.Sorted(maps.Keys(expansion)); !slices.Equal(names, []string{"identifier", "timestamp", "total"}) || expansion["total"] != 2.0 {
		t.Errorf("got %v", expansion)
	}
}

func TestSubsetRefused(t *testing.T) {
	l := terminologytest.Library(t, described)
	for _, pairs := range [][]string{{"_summary", "some"}, {"_summary", ""}, {"_summary", "true", "_elements", "url"}, {"_summary", "true", "_summary", "text"}} {
		if e := terminologytest.ExpandError(t, l, append([]string{"url", "http://x/v"}, pairs...)...); e.Status != http.StatusBadRequest {
			t.Errorf("%q: got %d %s", pairs, e.Status, e.Text)
		}
	}
}

// TestSubsetTags checks that each subset of a response has a separate entity tag.
func TestSubsetTags(t *testing.T) {
	h := &api.Handler{Library: terminologytest.Library(t, described)}
	seen := make(map[string]string)
	for _, part := range []string{"", "&_summary=true", "&_summary=data", "&_summary=count", "&_elements=url", "&_elements=url,expansion"} {
		w, err := terminologytest.Request(h, http.MethodGet, "url=http://x/v"+part)
		if err != nil {
			t.Fatal(err)
		}
		tag := w.Header().Get("ETag")
		if other, ok := seen[tag]; ok || tag == "" {
			t.Errorf("%q and %q have the same tag %s", part, other, tag)
		}
		seen[tag] = part
	}
}

// TestRequestOverridesValueSet checks that even a blank request parameter takes precedence over that of the value set.
func TestRequestOverridesValueSet(t *testing.T) {
	for _, test := range []struct {
		name   string
		own    []string
		query  string
		status int
		want   string
	}{
		{"own filter", []string{"filter", "re"}, "", 200, "red"},
		{"blank filter", []string{"filter", "re"}, "&filter=", 200, "any red pink blue"},
		{"filter of spaces", []string{"filter", "re"}, "&filter=%20", 200, "any red pink blue"},
		{"own date", []string{"date", "2001"}, "", 200, "any red pink blue"},
		{"invalid count", []string{"count", "few"}, "", 400, ""},
		{"invalid count, not needed", []string{"count", "few"}, "&count=1", 200, "any"},
		{"invalid boolean, not needed", []string{"activeOnly", "maybe"}, "&activeOnly=true", 200, "any red blue"},
		{"invalid rule, not needed", []string{"system-version", "1"}, "&system-version=http://x/y|1", 200, "any red pink blue"},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := &api.Handler{Library: terminologytest.Library(t, fixture.Colours, fixture.WithParameters(test.own...))}
			w, _ := terminologytest.Call(t, h, "GET", "/ValueSet/$expand?url=http://x/own"+test.query, "")
			var got terminologytest.Expanded
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != test.status || codesOnly(got.Expansion.Contains) != test.want {
				t.Errorf("got %d %s", w.Code, w.Body)
			}
		})
	}
}

func TestBlankDateOverridesValueSet(t *testing.T) {
	h := &api.Handler{Library: terminologytest.Library(t, fixture.Colours, fixture.WithParameters("date", "2001-02-03"))}
	for query, wantDate := range map[string]bool{"": true, "&date=": false} {
		w, _ := terminologytest.Call(t, h, "GET", "/ValueSet/$expand?url=http://x/own"+query, "")
		if strings.Contains(w.Body.String(), "2001-02-03") != wantDate {
			t.Errorf("%q: got %s", query, w.Body)
		}
	}
}

// TestQueryOverridesValueSet checks that the fields of a Query take precedence over the value set's parameters.
func TestQueryOverridesValueSet(t *testing.T) {
	l := terminologytest.Library(t, fixture.Colours, fixture.WithParameters("count", "few", "filter", "re"))
	q := expansion.Query{ValueSetRef: compose.ValueSetRef{URL: "http://x/own"}, Page: expansion.Page{Count: new(3)}}
	x, err := l.Expand(t.Context(), q)
	if err != nil || x.Total() != 1 {
		t.Errorf("got %+v, %v", x, err)
	}
}

func TestSubsetByValueSet(t *testing.T) {
	for _, test := range []struct {
		own   []string
		query []string
		want  string
	}{
		{[]string{"_summary", "count"}, nil, "expansion meta resourceType status"},
		{[]string{"_elements", "url"}, nil, "meta resourceType status url"},
		{[]string{"_elements", "url"}, []string{"_elements", "name"}, "meta resourceType status"},
		{[]string{"_summary", "count"}, []string{"_summary", "false"}, "expansion resourceType status url"},
	} {
		h := &api.Handler{Library: terminologytest.Library(t, fixture.Colours, fixture.WithParameters(test.own...)), Limits: expansion.Limits{Entries: 4}}
		if got, _ := members(t, h, append([]string{"url", "http://x/own"}, test.query...)...); got != test.want {
			t.Errorf("%q and %q: got %s", test.own, test.query, got)
		}
	}
}

// TestSummaryByValueSetIsNotTooCostly checks that a value set that requests only its total never exceeds the limit of codes.
func TestSummaryByValueSetIsNotTooCostly(t *testing.T) {
	h := &api.Handler{Library: terminologytest.Library(t, fixture.Colours, fixture.WithParameters("_summary", "count")), Limits: expansion.Limits{Entries: 1}}
	if w, err := terminologytest.Request(h, http.MethodGet, terminologytest.Query("url", "http://x/own")); err != nil {
		t.Errorf("got %v %s", err, w.Body)
	}
}

// TestFilterIsCheckedFirst checks that the filter is validated before the resources in the request are read.
func TestFilterIsCheckedFirst(t *testing.T) {
	h := &api.Handler{Library: terminologytest.Library(t, fixture.Colours)}
	w, _ := terminologytest.Call(t, h, "POST", "/ValueSet/$expand", `{"resourceType":"Parameters","parameter":[{"name":"url","valueUri":"http://x/own"},
		{"name":"filter","valueString":"`+strings.Repeat("x", 1001)+`"},{"name":"tx-resource","resource":{"resourceType":"ValueSet","compose":1}}]}`)
	fixture.WantContains(t, w.Body.String(), "the filter is longer than 1000 bytes")
}

// moreCodes is a supplement that adds an alternate code to a concept of fixture.ComplexCodeSystem.
const moreCodes = `{"resourceType":"CodeSystem","url":"http://x/more","content":"supplement","status":"active","supplements":"http://x/demanding",
	"concept":[{"code":"b","extension":[{"url":"http://hl7.org/fhir/StructureDefinition/codesystem-alternate","extension":[{"url":"code","valueCode":"b1"}]}]}]}`

// TestAlternateCodes checks that all alternate codes of a concept are returned, and those of a supplement only on request.
func TestAlternateCodes(t *testing.T) {
	h := &api.Handler{Library: terminologytest.Library(t, fixture.ComplexCodeSystem, moreCodes, fixture.ValueSet("http://x/v", `{"include":[{"system":"http://x/demanding"}]}`))}
	alternate := func(code string) string {
		return `"http://hl7.org/fhir/StructureDefinition/codesystem-alternate","extension":[{"url":"code","valueCode":"` + code + `"}`
	}
	w, _ := terminologytest.Call(t, h, "GET", "/ValueSet/$expand?url=http://x/v", "")
	fixture.WantContains(t, w.Body.String(), alternate("a1"), alternate("a2"), `coding-sctdescid","valueId":"7"`)
	if strings.Contains(w.Body.String(), alternate("b1")) {
		t.Errorf("unrequested supplement: %s", w.Body)
	}
	w, _ = terminologytest.Call(t, h, "GET", "/ValueSet/$expand?url=http://x/v&useSupplement=http://x/more", "")
	fixture.WantContains(t, w.Body.String(), alternate("a1"), alternate("b1"))
}
