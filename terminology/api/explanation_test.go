package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology/expansion"
	"github.com/caddy-fhir/caddy-fhir/terminology/fhirxml"
	"github.com/caddy-fhir/caddy-fhir/terminology/parameters"
)

// explanations returns what the answer tells of each entry: code, tier, and the rest.
func (e expanded) explanations() (list []string) {
	for _, c := range e.Expansion.Contains {
		for _, x := range c.Extension {
			if x.URL != filterExplanation {
				continue
			}
			line := c.Code
			for _, part := range x.Extension {
				switch part.URL {
				case "tier":
					line += " " + string(part.ValueInteger)
				case "rule":
				case "designation":
					for _, inner := range part.Extension {
						line += " " + inner.ValueString + inner.ValueCode
					}
				default:
					line += " " + part.URL + " " + part.ValueString
				}
			}
			list = append(list, line)
		}
	}
	return list
}

// wantExplanations compares explanations, separated by bars.
func wantExplanations(t *testing.T, got expanded, want string) {
	t.Helper()
	if list := strings.Join(got.explanations(), "|"); list != want {
		t.Errorf("got %q, want %q", list, want)
	}
}

func TestExplainFilter(t *testing.T) {
	h := &Handler{Library: libraryOf(t, colours, coloursInDutch)}
	for _, test := range []struct{ name, language, filter, want string }{
		{"the code", "en", "red", "red 1"},
		{"the beginning of the code and the display", "en", "re", "red 6"},
		{"the display", "de", "rot", "red 2"},
		{"a designation", "en, de", "rot", "red 4 Rot de"},
		{"a designation of a supplement", "en, nl", "roo", "red 7 Rood nl"},
		{"two designations", "en, nl, fr", "rouge rood", "red 4 Rouge fr Rood nl"},
		{"words of the usual display", "de", "any col", "any 6"},
		{"a letter that some have in the middle", "en", "l", "blue 8|any 8 after cannot be chosen"},
		{"a misspelling", "en", "colouur", "any 3"},
	} {
		t.Run(test.name, func(t *testing.T) {
			params := []string{"url", "http://x/colours/vs", "displayLanguage", test.language, "filter", test.filter}
			wantExplanations(t, expandWith(t, h, append(params, "explainFilter", "true")...), test.want)
			wantExplanations(t, expandWith(t, h, append(params, "explainFilter", "false")...), "")
			wantExplanations(t, expandWith(t, h, params...), "")
		})
	}
}

// The entries of a value set with displays and designations of its own, and of an unknown code system, are explained too.
func TestExplainOwnTexts(t *testing.T) {
	h := &Handler{Library: libraryOf(t, colours, `{"resourceType":"ValueSet","url":"http://x/mine","status":"active","compose":{"include":[
		{"system":"http://x/colours","concept":[{"code":"red","display":"Scarlet","designation":[{"language":"it","value":"Rosso"}]}]},
		{"system":"http://x/unknown","concept":[{"code":"q","display":"Quince","designation":[{"value":"Rosaceous fruit"}]}]}]}}`)}
	wantExplanations(t, expandWith(t, h, "url", "http://x/mine", "filter", "ros", "explainFilter", "true"), "q 6 Rosaceous fruit|red 6 after is more special Rosso it")
}

// TestExplainWeights names usage, in a code system that is scanned, in one that has an index, and in a value set with
// weights of its own.
func TestExplainWeights(t *testing.T) {
	t.Parallel()
	for _, n := range []int{6, 600} {
		for _, of := range []string{"http://x/cs", "http://x/own"} {
			l, _, err := weighed(t, []string{fevers("http://x/cs", n), valueSetOf("http://x/own", `{"include":[{"system":"http://x/cs"}]}`)}, "#! "+of+"\n2,5\n5,70\n")
			if err != nil {
				t.Fatal(err)
			}
			got := expand(t, l, "url", "http://x/own", "filter", "fever", "count", "4", "explainFilter", "true")
			wantExplanations(t, got, "5 3|2 3 after is used less|1 3 after is used less|3 3 after is later in the value set")
		}
	}
}

// Without a filter, the parameter changes nothing.
func TestExplainFilterWithoutFilter(t *testing.T) {
	h := &Handler{Library: libraryOf(t, colours)}
	const path = "/ValueSet/$expand?url=http://x/colours/vs"
	plain, _ := call(t, h, http.MethodGet, path, "")
	for _, more := range []string{"&explainFilter=true", "&explainFilter=true&filter=+"} {
		if w, _ := call(t, h, http.MethodGet, path+more, ""); w.Body.String() != plain.Body.String() {
			t.Errorf("%s: got %s", more, w.Body)
		}
	}
}

// An explained answer is another than the plain one, with an identifier and an entity tag of its own, and the same in XML.
func TestExplainedAnswer(t *testing.T) {
	h := &Handler{Library: libraryOf(t, colours)}
	const path = "/ValueSet/$expand?url=http://x/colours/vs&filter=rot&displayLanguage=en,de"
	plain, _ := call(t, h, http.MethodGet, path, "")
	explained, _ := call(t, h, http.MethodGet, path+"&explainFilter=true", "")
	wantText(t, explained.Body.String(), `{"name":"filter","valueString":"rot"},{"name":"explainFilter","valueBoolean":true}`,
		`"contains":[{"extension":[{"url":"`+filterExplanation+`","extension":[{"url":"tier","valueInteger":4},`+
			`{"url":"rule","valueString":"has all words as whole words"},`+
			`{"url":"designation","extension":[{"url":"value","valueString":"Rot"},{"url":"language","valueCode":"de"}]}]}],"system":"http://x/colours"`)
	var one, other expanded
	if err := json.Unmarshal(plain.Body.Bytes(), &one); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(explained.Body.Bytes(), &other); err != nil {
		t.Fatal(err)
	}
	if one.Expansion.Identifier == other.Expansion.Identifier || plain.Header().Get("Etag") == explained.Header().Get("Etag") {
		t.Error("the identifier or the tag is the same")
	}
	xml, _ := call(t, h, http.MethodGet, path+"&explainFilter=true&_format=xml", "")
	back, err := fhirxml.AppendJSON(nil, xml.Body.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	var again expanded
	if err := json.Unmarshal(back, &again); err != nil || !reflect.DeepEqual(again, other) {
		t.Errorf("in XML: %v, %s", err, xml.Body)
	}
}

// Pages tell the same as the whole list: what put an entry after the last one of the page before, too.
func TestExplainPages(t *testing.T) {
	h := &Handler{Library: coreLibrary(t)}
	params := []string{"url", "http://terminology.hl7.org/ValueSet/v3-ActCode", "filter", "di", "explainFilter", "true"}
	whole := expandWith(t, h, append(params, "count", "60")...).explanations()
	for from := 0; from < 60; from += 7 {
		page := expandWith(t, h, append(params, "offset", strconv.Itoa(from), "count", "7")...).explanations()
		if want := whole[from:min(from+7, 60)]; !reflect.DeepEqual(page[:len(want)], want) {
			t.Errorf("from %d: got %q, want %q", from, page, want)
		}
	}
	for _, pair := range [][2]string{{"0", "0"}, {"5", "0"}, {"5000", "10"}} {
		if got := expandWith(t, h, append(params, "offset", pair[0], "count", pair[1])...); len(got.Expansion.Contains) > 0 || *got.Expansion.Total < 60 {
			t.Errorf("from %s, %s: got %v", pair[0], pair[1], got.codes())
		}
	}
}

// TestExplainFilterLimits has what is refused.
func TestExplainFilterLimits(t *testing.T) {
	var concepts []string
	for i := range 1000 + 1 {
		concepts = append(concepts, fmt.Sprintf(`{"code":"c%d","display":"Concept"}`, i))
	}
	h := &Handler{Library: libraryOf(t, `{"resourceType":"CodeSystem","url":"http://x/many","valueSet":"http://x/many/vs","status":"active","content":"complete","concept":[`+
		strings.Join(concepts, ",")+`]}`)}
	const path = "/ValueSet/$expand?url=http://x/many/vs&filter=concept&explainFilter="
	for _, test := range []struct {
		more   string
		status int
	}{
		{"true&count=1000", 200}, {"true&offset=1&count=1000", 200}, {"true", 422}, {"false", 200}, {"true&_summary=count", 200}, {"perhaps", 400},
		{"true&explainFilter=true", 400},
	} {
		if w, _ := call(t, h, http.MethodGet, path+test.more, ""); w.Code != test.status {
			t.Errorf("%s: got %d %.300s", test.more, w.Code, w.Body)
		}
	}
}

// An expansion fetched whole keeps the extensions of the other server.
func TestExplainWhole(t *testing.T) {
	const page = `{"resourceType":"ValueSet","status":"active","expansion":{"total":2,"contains":[` +
		`{"extension":[{"url":"http://mine","valueString":"x"}],"system":"http://x","code":"a","display":"Alpha","designation":[{"language":"de","value":"Anfang"}]},` +
		`{"system":"http://x","code":"b","display":"Alphabet"}]}}`
	var b expansion.WholeBuilder
	if _, err := b.Add([]byte(page), 9); err != nil {
		t.Fatal(err)
	}
	w, err := b.Whole()
	if err != nil {
		t.Fatal(err)
	}
	wantExplanations(t, fromWhole(t, w, expansion.Page{Filter: "alpha", ExplainFilter: parameters.Yes}), "a 2|b 6")
	wantExplanations(t, fromWhole(t, w, expansion.Page{Filter: "alp", Offset: new(1), ExplainFilter: parameters.Yes}), "b 6 after is later in the value set")
	got := fromWhole(t, w, expansion.Page{Filter: "anf", ExplainFilter: parameters.Yes})
	wantExplanations(t, got, "a 6 Anfang de")
	if c := got.Expansion.Contains[0]; c.Extension[0].URL != "http://mine" || len(c.Designation) != 1 {
		t.Errorf("got %+v", c)
	}
	if parameters := got.parameters(); strings.Join(parameters, " ") != "filter=anf explainFilter=true" {
		t.Errorf("got %q", parameters)
	}
	for _, p := range []expansion.Page{{Filter: "anf"}, {ExplainFilter: parameters.Yes}} {
		if got := fromWhole(t, w, p); got.explanations() != nil {
			t.Errorf("%+v: got %q", p, got.explanations())
		}
	}
}

// The explanations of what another server made are bounded as well.
func TestExplainWholeBomb(t *testing.T) {
	t.Parallel()
	designations := repeat(2000, func(i int) string { return fmt.Sprintf(`{"value":"d%d"}`, i) })
	var b expansion.WholeBuilder
	if _, err := b.Add([]byte(`{"resourceType":"ValueSet","expansion":{"total":1,"contains":[{"system":"http://x","code":"a","display":"`+strings.Repeat("a ", 100_000)+
		`","designation":[`+designations+`]}]}}`), 9); err != nil {
		t.Fatal(err)
	}
	w, err := b.Whole()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Expand(expansion.Page{Filter: "d1999"}, nil, 9); err != nil {
		t.Error(err)
	}
	if _, err := w.Expand(expansion.Page{Filter: "d1999", ExplainFilter: parameters.Yes}, nil, 9); err == nil || !strings.Contains(err.Error(), "explainFilter") {
		t.Errorf("got %v", err)
	}
}

// filterExplanation is the url of the extension for explanations.
const filterExplanation = "https://github.com/caddy-fhir/caddy-fhir/StructureDefinition/filter-explanation"
