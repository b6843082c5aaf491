package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

const (
	// shapes contains a code system with a url and one without, a value set that uses these, and one that uses that.
	shapes = `{"resourceType":"ValueSet","id":"shapes","contained":[
		{"resourceType":"CodeSystem","id":"cs","url":"http://x/shapes","version":"1","status":"active","content":"complete",
			"concept":[{"code":"round","display":"Round","concept":[{"code":"oval","display":"Oval"}]},{"code":"square","display":"Square"}]},
		{"resourceType":"CodeSystem","id":"nameless","status":"active","content":"complete","concept":[{"code":"flat","display":"Flat"}]},
		{"resourceType":"ValueSet","id":"round","url":"http://x/round","compose":{"include":[{"system":"#cs","filter":[{"property":"concept","op":"is-a","value":"round"}]}]}},
		{"resourceType":"ValueSet","id":"both","compose":{"include":[{"valueSet":["#round"]},{"system":"#nameless"}]}}],
		"url":"http://x/v","version":"2","status":"active","compose":{"include":[{"valueSet":["#both"]},{"system":"http://x/shapes","concept":[{"code":"square"}]}]}}`

	// boundShape contains the value set that its element is bound to.
	boundShape = `{"resourceType":"StructureDefinition","contained":[{"resourceType":"ValueSet","id":"in","compose":{"include":[
		{"system":"http://x/colours","concept":[{"code":"blue"}]}]}}],"url":"http://x/Shape","differential":{"element":[
		{"id":"Shape.colour","path":"Shape.colour","binding":{"strength":"required","valueSet":"#in"}}]}}`
)

func TestContained(t *testing.T) {
	l := libraryOf(t, colours, shapes, boundShape,
		valueSetOf("http://x/by-url", `{"include":[{"valueSet":["http://x/v"]}]}`),
		valueSetOf("http://x/by-fragment", `{"include":[{"valueSet":["http://x/v|2#round"]}],"exclude":[{"valueSet":["http://x/v#nothing","http://x/v"]}]}`),
		valueSetOf("http://x/part", `{"include":[{"valueSet":["http://x/v#round"]}]}`),
		strings.Replace(strings.Replace(shapes, `"url":"http://x/v"`, `"url":"http://x/without"`, 1), `{"code":"square"}]}]`, `{"code":"square"}]}],"exclude":[{"valueSet":["#round"]}]`, 1),
		valueSetOf("http://x/outside", `{"include":[{"system":"http://x/shapes"}]}`),
		valueSetOf("http://x/outside-set", `{"include":[{"valueSet":["http://x/round"]}]}`))
	for _, test := range []struct {
		name  string
		pairs []string
		want  string
	}{
		{"code systems and value sets", []string{"url", "http://x/v"}, "round[Round] oval[Oval] flat[Flat] square[Square]"},
		{"of an imported value set", []string{"url", "http://x/by-url"}, "round[Round] oval[Oval] flat[Flat] square[Square]"},
		{"by fragment", []string{"url", "http://x/v#both"}, "round[Round] oval[Oval] flat[Flat]"},
		{"by version and fragment", []string{"url", "http://x/v|2#round"}, "round[Round] oval[Oval]"},
		{"imported by fragment", []string{"url", "http://x/part"}, "round[Round] oval[Oval]"},
		{"excluded", []string{"url", "http://x/without"}, "flat[Flat] square[Square]"},
		{"of a profile", []string{"context", "http://x/Shape#Shape.colour"}, "blue[Blue]"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := expand(t, l, append(test.pairs, "excludeNested", "true")...)
			if o := outline(got.Expansion.Contains); o != test.want {
				t.Errorf("got %s\nwant %s", o, test.want)
			}
		})
	}
	for _, url := range []string{"http://x/outside", "http://x/outside-set", "http://x/by-fragment", "http://x/v#cs"} {
		if e := refused(t, l, "url", url); e.Code != "not-found" {
			t.Errorf("%s: got %d %s %s", url, e.Status, e.Code, e.Text)
		}
	}
	systems := make(map[string]string)
	for _, c := range expand(t, l, "url", "http://x/v").Expansion.Contains {
		systems[c.Code] = c.System
	}
	if systems["round"] != "http://x/shapes" || systems["flat"] != "http://x/v#nameless" {
		t.Errorf("got systems %v", systems)
	}
}

// What a request's own value set contains is of use as well, and to its answer alone.
func TestContainedInRequest(t *testing.T) {
	h := &Handler{Library: libraryOf(t, colours)}
	for range 2 {
		w, _ := call(t, h, "POST", "/ValueSet/$expand?excludeNested=true", shapes)
		var got expanded
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != 200 {
			t.Fatalf("got %d %s", w.Code, w.Body)
		}
		if o := outline(got.Expansion.Contains); o != "round[Round] oval[Oval] flat[Flat] square[Square]" {
			t.Errorf("got %s", o)
		}
	}
	if w, _ := call(t, h, "GET", "/CodeSystem/$lookup?system=http://x/shapes&code=round", ""); w.Code != 404 {
		t.Errorf("lookup: got %d %s", w.Code, w.Body)
	}
}

func TestContainedValidation(t *testing.T) {
	h := &Handler{Library: libraryOf(t, shapes)}
	for _, test := range []struct{ query, want string }{
		{"url=http://x/v&system=http://x/shapes&code=oval&display=Oval", `"name":"result","valueBoolean":true`},
		{"url=http://x/v&system=http://x/shapes&code=square&systemVersion=1", `"name":"result","valueBoolean":true`},
		{"url=http://x/v%23round&system=http://x/shapes&code=oval", `"name":"result","valueBoolean":true`},
		{"url=http://x/v%23round&system=http://x/shapes&code=square", `"name":"result","valueBoolean":false`},
		{"url=http://x/v&system=http://x/shapes&code=flat", `"name":"result","valueBoolean":false`},
		{"url=http://x/v&system=http://x/v%23nameless&code=flat", `"name":"result","valueBoolean":true`},
	} {
		w, _ := call(t, h, "GET", "/ValueSet/$validate-code?"+test.query, "")
		wantText(t, w.Body.String(), test.want)
	}
}

// R4 ValueSet.compose.include.version: "The version of the code system that the codes are selected from, or the special
// version '*' for all versions."
func TestAllVersions(t *testing.T) {
	dated := strings.Replace(versionedSystem("http://x/cs", "3", "complete", "d"), `"status"`, `"date":"2026","status"`, 1)
	of := func(version, more string) string {
		return fmt.Sprintf(`{"system":"http://x/cs","version":%q%s}`, version, more)
	}
	compose := map[string]string{
		"all": `{"include":[` + of("*", "") + `]}`, "listed": `{"include":[` + of("*", `,"concept":[{"code":"a"},{"code":"d"}]`) + `]}`,
		"filtered":   `{"include":[` + of("*", `,"filter":[{"property":"code","op":"regex","value":"[ab]"}]`) + `]}`,
		"but":        `{"include":[` + of("*", "") + `],"exclude":[` + of("2", "") + `]}`,
		"none":       `{"include":[` + of("1", "") + `],"exclude":[` + of("*", "") + `]}`,
		"locked":     `{"lockedDate":"2025-01-01","include":[` + of("*", "") + `]}`,
		"empty":      `{"include":[{"system":"http://x/gone","version":"*"}]}`,
		"gone":       `{"include":[{"system":"http://x/gone","version":"*","concept":[{"code":"a"}]}]}`,
		"imports":    `{"include":[{"valueSet":["http://x/all"]}]}`,
		"everything": `{"include":[` + of("*", "") + `,{"system":"http://x/other"}]}`,
	}
	definitions := []string{versionedSystem("http://x/cs", "1", "complete", "a b"), versionedSystem("http://x/cs", "2", "complete", "b c"), dated,
		versionedSystem("http://x/cs", "9", "not-present", ""), versionedSystem("http://x/other", "1", "complete", "z")}
	for name, c := range compose {
		definitions = append(definitions, valueSetOf("http://x/"+name, c))
	}
	h := &Handler{Library: libraryOf(t, definitions...)}
	tests := []struct {
		name  string
		pairs []string
		want  string // code|version
	}{
		{"all", nil, "d|3 b|2 c|2 a|1 b|1"},
		{"all", []string{"versionsMatch", "true"}, "d|3 b|2 c|2 a|1"},
		{"all", []string{"date", "2020"}, "b|2 c|2 a|1 b|1"},
		{"all", []string{"force-system-version", "http://x/cs|2"}, "b|2 c|2"},
		{"all", []string{"exclude-system", "http://x/cs|2"}, "d|3 a|1 b|1"},
		{"listed", nil, "d|3 a|1"},
		{"filtered", nil, "b|2 a|1 b|1"},
		{"but", nil, "d|3 a|1 b|1"},
		{"none", nil, ""},
		{"locked", nil, "b|2 c|2 a|1 b|1"},
		{"gone", nil, "a"},
		{"imports", nil, "d|3 b|2 c|2 a|1 b|1"},
		{"everything", nil, "d|3 b|2 c|2 a|1 b|1 z|1"},
	}
	for _, test := range tests {
		got := expandWith(t, h, append([]string{"url", "http://x/" + test.name}, test.pairs...)...)
		var codes []string
		for _, c := range got.Expansion.Contains {
			codes = append(codes, outcome.Canonical(c.Code, c.Version))
		}
		if want := strings.Fields(test.want); !slices.Equal(codes, want) {
			t.Errorf("%s %q: got %q, want %q", test.name, test.pairs, codes, want)
		}
	}
	if e := refused(t, h.Library, "url", "http://x/empty"); e.Missing[0].Canonical != "http://x/gone" {
		t.Errorf("not here in any version: got %v", e)
	}
	for query, want := range map[string]bool{"code=a": true, "code=c": true, "code=d": true, "code=e": false, "code=a&systemVersion=1": true, "code=a&systemVersion=2": false} {
		w, _ := call(t, h, "GET", "/ValueSet/$validate-code?url=http://x/all&system=http://x/cs&"+query, "")
		if got := readValidated(t, w.Body.Bytes()); got.result != want {
			t.Errorf("%s: got %s", query, w.Body)
		}
	}
}

// HL7's package of terminology goes before the copies of it that R4 has, though their versions, of R4 or of HL7 V2, are
// higher. R4's own definitions have no newer ones elsewhere, and a stub is no definition.
func TestPackageBeforeFrozenCopies(t *testing.T) {
	system := func(url, version, content, code string) string {
		concept := `,"concept":[{"code":"` + code + `"}]`
		if code == "" {
			concept = ""
		}
		return `{"resourceType":"CodeSystem","url":"` + url + `","version":"` + version + `","status":"active","content":"` + content + `"` + concept + `}`
	}
	const tho, r4 = "http://terminology.hl7.org/", "http://hl7.org/fhir/"
	folder := t.TempDir()
	for name, definition := range map[string]string{
		"v2":       system(tho+"CodeSystem/v2-0001", "2.0.0", "complete", "new"),
		"v3":       system(tho+"CodeSystem/v3-ActMood", "3.0.0", "complete", "new"),
		"category": system(tho+"CodeSystem/observation-category", "1.0.1", "complete", "new"),
		"stub":     system(tho+"CodeSystem/v2-0002", "3.0.0", "not-present", ""),
		"r4":       system(r4+"administrative-gender", "1.0.0", "complete", "new"),
	} {
		writeFile(t, filepath.Join(folder, name+".json"), []byte(definition))
	}
	l, err := terminology.Load(t.Context(), definitions.Options{Core: true, Definitions: []string{folder}})
	if err != nil {
		t.Fatal(err)
	}
	for url, want := range map[string]bool{
		tho + "ValueSet/v2-0001":              true,
		tho + "CodeSystem/v3-ActMood?fhir_vs": true,
		r4 + "ValueSet/observation-category":  true,
		tho + "ValueSet/v2-0002":              false,
		r4 + "ValueSet/administrative-gender": false,
	} {
		got := expand(t, l, "url", url).codes()
		if isNew := len(got) == 1 && got[0] == "new"; isNew != want || len(got) == 0 {
			t.Errorf("%s: got %q, the package's is %t", url, got, want)
		}
	}
	if cs := l.Definitions().Systems.CodeSystems[l.Definitions().Systems.CodeSystem(tho+"CodeSystem/v2-0001", "2.x")]; cs.Version != "2.0.0" {
		t.Errorf("2.x is %s", cs.Version)
	}
	if l.Definitions().Systems.CodeSystem(tho+"CodeSystem/v2-0001", "2.9") == definitions.None {
		t.Error("R4's version is gone")
	}
}

// What a modifier extension changes is not known, so that a definition with one is not made use of.
func TestModifierExtensions(t *testing.T) {
	const modifier = `"modifierExtension":[{"url":"http://x/not","valueBoolean":true}]`
	system := func(member, inConcept string) string {
		return `{"resourceType":"CodeSystem","url":"http://x/s","version":"1","status":"active","content":"complete"` + member +
			`,"concept":[{"code":"a"` + inConcept + `}]}`
	}
	valueSet := func(member, compose, include string) string {
		return `{"resourceType":"ValueSet","url":"http://x/v","status":"active"` + member + `,"compose":{"include":[{"system":"http://x/s"` + include + `}]` + compose + `}}`
	}
	for _, test := range []struct{ name, system, valueSet string }{
		{"of the value set", system("", ""), valueSet(","+modifier, "", "")},
		{"implicit rules", system("", ""), valueSet(`,"implicitRules":"http://x/not"`, "", "")},
		{"of the code system, implicit rules", system(`,"implicitRules":"http://x/not"`, ""), valueSet("", "", "")},
		{"of compose", system("", ""), valueSet("", ","+modifier, "")},
		{"of an include", system("", ""), valueSet("", "", ","+modifier)},
		{"of an exclude", system("", ""), valueSet("", `,"exclude":[{"system":"http://x/s",`+modifier+`}]`, "")},
		{"of a listed concept", system("", ""), valueSet("", "", `,"concept":[{"code":"a",`+modifier+`}]`)},
		{"of a filter", system("", ""), valueSet("", "", `,"filter":[{"property":"code","op":"=","value":"a",`+modifier+`}]`)},
		{"of the code system", system(","+modifier, ""), valueSet("", "", "")},
		{"of a concept", system("", ","+modifier), valueSet("", "", "")},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := libraryOf(t, test.system, test.valueSet)
			if e := refused(t, l, "url", "http://x/v"); e.Status != http.StatusUnprocessableEntity || !errors.Is(e, outcome.ErrIncomplete) || !strings.Contains(e.Text, "http://x/not") {
				t.Errorf("expand: got %d %s", e.Status, e.Text)
			}
			if w, _ := call(t, &Handler{Library: l}, "GET", "/ValueSet/$validate-code?url=http://x/v&system=http://x/s&code=a", ""); w.Code != http.StatusUnprocessableEntity {
				t.Errorf("validate: got %d %s", w.Code, w.Body)
			}
			if !strings.HasPrefix(test.name, "of the code system") {
				return
			}
			for _, path := range []string{"$lookup?system=http://x/s&code=a", "$validate-code?url=http://x/s&code=a"} {
				if w, _ := call(t, &Handler{Library: l}, "GET", "/CodeSystem/"+path, ""); w.Code != http.StatusUnprocessableEntity {
					t.Errorf("%s: got %d %s", path, w.Code, w.Body)
				}
			}
		})
	}
	if got := expand(t, libraryOf(t, system("", ""), valueSet("", "", "")), "url", "http://x/v"); len(got.codes()) != 1 {
		t.Errorf("without: got %q", got.codes())
	}
}
