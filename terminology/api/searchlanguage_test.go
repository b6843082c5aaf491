package api

import (
	"fmt"
	"strings"
	"testing"
)

// limbs is a code system in two languages, with one designation that says no language.
func limbs(concepts int) string {
	var b strings.Builder
	b.WriteString(`{"resourceType":"CodeSystem","url":"http://x/limbs","language":"en","content":"complete","concept":[
		{"code":"1","display":"Arm","designation":[{"language":"de","value":"Oberarm"},{"language":"fr","value":"Bras"}]},
		{"code":"2","display":"Leg","designation":[{"language":"de-CH","value":"Bein"},{"value":"limb"}]},
		{"code":"3","display":"Bone"}`)
	for i := 4; i <= concepts; i++ {
		fmt.Fprintf(&b, `,{"code":"%d","display":"Filler"}`, i)
	}
	b.WriteString(`]}`)
	return b.String()
}

// TestSearchSupplement has the texts of supplements, and where they count: found as any text is, and in its tier.
func TestSearchSupplement(t *testing.T) {
	more := `{"resourceType":"CodeSystem","url":"http://x/more","content":"supplement","supplements":"http://x/limbs","concept":[
		{"code":"1","designation":[{"language":"de","value":"Arm, aus Knochen"}]},
		{"code":"3","designation":[{"language":"de","value":"Knochen, hart"},{"value":"os"}]}]}`
	spanish := `{"resourceType":"CodeSystem","url":"http://x/es","language":"es","content":"supplement","supplements":"http://x/limbs",
		"concept":[{"code":"3","display":"Hueso"}]}`
	pack := `{"resourceType":"CodeSystem","url":"http://x/nl","language":"nl","content":"supplement","supplements":"http://x/limbs",
		"extension":[{"url":"http://hl7.org/fhir/StructureDefinition/codesystem-supplement-type","valueCode":"lang-pack"}],
		"concept":[{"code":"3","designation":[{"language":"nl","value":"Bot"}]}]}`
	named := func(url, compose string) string {
		return `{"resourceType":"ValueSet","url":"` + url + `","status":"active","extension":[
			{"url":"http://hl7.org/fhir/StructureDefinition/valueset-supplement","valueCanonical":"http://x/more"}],"compose":` + compose + `}`
	}
	const all, of, importing = "http://x/limbs-all", "http://x/vs", "http://x/importing"
	for _, test := range []struct{ name, url, filter, supplement, language, want string }{
		{"not used", all, "knoch", "", "", ""},
		{"used by the request", all, "knoch", "http://x/more", "", "3 1"},
		{"used by the value set", of, "knoch", "", "", "3 1"},
		{"used by a value set that is imported", importing, "knoch", "", "", "3 1"},
		{"in the language asked for", all, "knoch", "http://x/more", "de", "3 1"},
		{"not in another", all, "knoch", "http://x/more", "fr", ""},
		{"in no language", all, "os", "http://x/more", "fr", "3"},
		{"the head of a text", all, "hart knochen", "http://x/more", "de", "3"},
		{"what is shown, one letter", all, "k", "http://x/more", "de", "3"},
		{"with a word of the code system", all, "bone knoch", "http://x/more", "", "3"},
		{"a display", all, "hueso", "http://x/es", "", "3"},
		{"a display in its language", all, "hueso", "http://x/es", "es", "3"},
		{"a display in another, as that of the code system", all, "hueso", "http://x/es", "fr", "3"},
		{"a language pack, which needs no name", all, "bot", "", "nl", "3"},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, concepts := range []int{3, 600} {
				l := libraryOf(t, limbs(concepts), allOf("http://x/limbs"), more, spanish, pack, named(of, `{"include":[{"system":"http://x/limbs"}]}`),
					valueSetOf(importing, `{"include":[{"valueSet":["http://x/vs"]}]}`))
				pairs := []string{"url", test.url, "filter", test.filter}
				if test.supplement != "" {
					pairs = append(pairs, "useSupplement", test.supplement)
				}
				if test.language != "" {
					pairs = append(pairs, "displayLanguage", test.language)
				}
				wantCodes(t, expand(t, l, pairs...), test.want)
			}
		})
	}
}

// TestSearchBackwards has a long list in another order than that of the code system: equals keep it.
func TestSearchBackwards(t *testing.T) {
	var list, want []string
	for i := 600; i > 3; i-- {
		list = append(list, fmt.Sprintf(`{"code":"%d"}`, i))
		want = append(want, fmt.Sprint(i))
	}
	l := libraryOf(t, limbs(600), valueSetOf("http://x/vs", `{"include":[{"system":"http://x/limbs","concept":[`+strings.Join(list, ",")+`]}]}`))
	wantCodes(t, expand(t, l, "url", "http://x/vs", "filter", "fill"), strings.Join(want, " "))
}

// TestSearchTwoRuns has the later concepts of a code system first, and then the others.
func TestSearchTwoRuns(t *testing.T) {
	var want []string
	for i := 300; i < 600; i++ {
		want = append(want, fmt.Sprint(i))
	}
	for i := 4; i < 300; i++ {
		want = append(want, fmt.Sprint(i))
	}
	l := libraryOf(t, limbs(600), valueSetOf("http://x/vs", `{"include":[
		{"system":"http://x/limbs","filter":[{"property":"code","op":"regex","value":"[345].."}]},{"system":"http://x/limbs"}]}`))
	wantCodes(t, expand(t, l, "url", "http://x/vs", "filter", "fill"), strings.Join(append(want, "600"), " "))
}
