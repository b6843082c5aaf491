package api

import (
	"encoding/json"
	"strings"
	"testing"
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
