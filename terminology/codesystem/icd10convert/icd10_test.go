package icd10convert

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest/fixture"
)

// order returns lines in the format of an order file.
func order(lines ...[4]string) string {
	var b strings.Builder
	for i, l := range lines {
		fmt.Fprintf(&b, "%05d %-7s %s %-60s %s\r\n", i+1, l[0], l[1], l[2], l[3])
	}
	return b.String()
}

// formatOf returns the registered format with the given name.
func formatOf(t *testing.T, name string) codesystem.FileFormat {
	t.Helper()
	for _, f := range codesystem.FileFormats() {
		if f.Name == name {
			return f
		}
	}
	t.Fatalf("no format %s", name)
	return codesystem.FileFormat{}
}

func TestConvert(t *testing.T) {
	for name, tt := range map[string]struct {
		file, system, code, display, parent string
	}{
		"icd10cm": {
			order([4]string{"S72", "0", "Made-up fracture", "Made-up fracture"}, [4]string{"S720", "0", "Made-up fracture, neck", "Made-up fracture of neck \"x\""},
				[4]string{"S72001A", "1", "Made-up fx, init", "Made-up fracture, initial encounter"}, [4]string{"T36", "1", "Made-up", "Made-up"}),
			"http://hl7.org/fhir/sid/icd-10-cm", "S72.001A", "Made-up fracture, initial encounter", "S72.0",
		},
		"icd10pcs": {
			order([4]string{"001", "0", "Made-up, bypass", "Made-up, Bypass"}, [4]string{"0016070", "1", "Made-up bypass", "Bypass Made-up Approach"}),
			"http://www.cms.gov/Medicare/Coding/ICD10", "0016070", "Bypass Made-up Approach", "001",
		},
	} {
		var out bytes.Buffer
		if err := formatOf(t, name).Convert(&out, strings.NewReader(tt.file), "2026"); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "icd10.json")
		fixture.WriteFile(t, file, out.Bytes())
		l, err := terminology.Load(t.Context(), definitions.Options{Definitions: []string{file}})
		if err != nil {
			t.Fatalf("%v in %s", err, &out)
		}
		systems := &l.Definitions().Systems
		cs := systems.CodeSystems[systems.CodeSystem(tt.system, "2026")]
		c, ok := cs.Concepts.Locate([]byte(tt.code))
		if !ok {
			t.Fatalf("no %s in %s", tt.code, &out)
		}
		if _, display, _ := cs.Concepts.Concept(c); string(display) != tt.display || len(cs.Concepts.AppendTexts(nil, c)) != 2 {
			t.Errorf("got %s, %v", display, cs.Concepts.AppendTexts(nil, c))
		}
		billable := ""
		for _, v := range cs.Concepts.AppendValues(nil, c) {
			if v.Property.Code == "billable" {
				billable = string(v.Text)
			}
		}
		parents := cs.Concepts.Hierarchy.Parents(c.Number)
		if len(parents) != 1 || string(cs.Concepts.Code(codesystem.ConceptAt(parents[0]))) != tt.parent || billable != "true" {
			t.Errorf("%s is below %v, billable %q", tt.code, parents, billable)
		}
	}
}

func TestConvertRefuses(t *testing.T) {
	good := order([4]string{"A00", "0", "Made-up", "Made-up"})
	for name, file := range map[string]string{"empty": "", "an addendum": "Add:        " + good, "a tab": strings.ReplaceAll(good, " 0 ", "\t0\t"), "no name": good[:20]} {
		if err := formatOf(t, "icd10cm").Convert(new(bytes.Buffer), strings.NewReader(file), "2026"); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
