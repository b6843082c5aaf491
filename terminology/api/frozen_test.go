package api

import (
	"path/filepath"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
)

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
