package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest/fixture"
)

const valueSets = `{"resourceType":"Bundle","entry":[
{"resource":{"resourceType":"CodeSystem","text":{"div":"x"},"concept":[{"display":"A & B","concept":[{"code":"b"}],"code":"a",
 "designation":[{"value":"é"}],"property":[{"code":"p","valueDecimal":1.10}],
 "extension":[{"url":"http://hl7.org/fhir/StructureDefinition/codesystem-concept-comments","valueString":"x"}]}],
 "url":"http://x/cs","copyright":"x","content":"complete","meta":{"lastUpdated":"x"},
 "extension":[{"url":"http://hl7.org/fhir/StructureDefinition/structuredefinition-fmm","valueInteger":3},
  {"url":"http://hl7.org/fhir/StructureDefinition/structuredefinition-standards-status","valueCode":"normative"}]}},
{"resource":{"resourceType":"Patient","id":"x"}},
{"resource":{"resourceType":"ConceptMap","experimental":true,"url":"http://x/example"}},
{"resource":{"resourceType":"ConceptMap","text":{},"group":[{"target":"http://x/t","source":"http://x/s","element":[{"code":"a"}]}],"experimental":false,"url":"http://x/map"}},
{"resource":{"resourceType":"StructureDefinition","id":"P","url":"http://x/P","snapshot":{"element":[{"id":"P","path":"P","min":0},
 {"id":"P.a","path":"P.a","short":"x","binding":{"strength":"required","description":"x","valueSet":"http://x/vs|1"}},{"id":"P.b","path":"P.b","binding":{"strength":"example"}}]},
 "differential":{"element":[]}}},
{"resource":{"resourceType":"StructureDefinition","url":"http://x/R","fhirVersion":"4.3.0","snapshot":{"element":[{"path":"R.a","binding":{"valueSet":"http://x/vs"}}]}}},
{"resource":{"resourceType":"StructureDefinition","url":"http://x/Q","snapshot":{"element":[{"path":"Q"}]}}},
{"resource":{"contact":[],"resourceType":"ValueSet","compose":{"inactive":true,"include":[{"system":"http://x/cs","extension":[
  {"url":"http://hl7.org/fhir/StructureDefinition/valueset-expand-group","extension":[{"url":"code","valueCode":"a"}]}]}]},"status":"active","url":"http://x/vs"}}]}`

const lines = `{"resourceType":"CodeSystem","extension":[{"url":"http://hl7.org/fhir/StructureDefinition/structuredefinition-standards-status","valueCode":"normative"}],"url":"http://x/cs","content":"complete","concept":[{"code":"a","concept":[{"code":"b"}],"designation":[{"value":"é"}],"display":"A & B","property":[{"code":"p","valueDecimal":1.10}]}]}
{"resourceType":"ConceptMap","url":"http://x/map","experimental":false,"group":[{"element":[{"code":"a"}],"source":"http://x/s","target":"http://x/t"}]}
{"resourceType":"StructureDefinition","url":"http://x/P","snapshot":{"element":[{"binding":{"valueSet":"http://x/vs|1"},"path":"P.a"}]}}
{"resourceType":"ValueSet","url":"http://x/vs","status":"active","compose":{"inactive":true,"include":[{"extension":[{"extension":[{"url":"code","valueCode":"a"}],"url":"http://hl7.org/fhir/StructureDefinition/valueset-expand-group"}],"system":"http://x/cs"}]}}
`

func TestGenerate(t *testing.T) {
	folder := t.TempDir()
	for i, name := range bundleFiles {
		content := `{"resourceType":"Bundle","entry":[]}`
		if i == 0 {
			content = valueSets
		}
		name = filepath.Join(folder, name)
		fixture.WriteFile(t, name, []byte(content))
	}
	var outputs [2][]byte
	for i := range outputs {
		out := filepath.Join(folder, "out.zst")
		if err := generate(folder, out); err != nil {
			t.Fatal(err)
		}
		outputs[i], _ = os.ReadFile(out)
	}
	if !bytes.Equal(outputs[0], outputs[1]) {
		t.Error("the same input gave different bytes")
	}
	decoder, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer decoder.Close()
	if got, err := decoder.DecodeAll(outputs[0], nil); err != nil || string(got) != lines {
		t.Errorf("got %s\nwant %s\n%v", got, lines, err)
	}
}

func TestGenerateFails(t *testing.T) {
	if err := generate(t.TempDir(), filepath.Join(t.TempDir(), "out.zst")); err == nil {
		t.Error("no error for a folder without the package")
	}
}
