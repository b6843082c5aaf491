package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest/fixture"
)

const typesBundle = `{"entry":[
{"resource":{"resourceType":"StructureDefinition","id":"Coding","derivation":"specialization","snapshot":{"element":[
	{"path":"Coding","max":"*"},{"path":"Coding.id","max":"1","type":[{"code":"http://hl7.org/fhirpath/System.String"}]},
	{"path":"Coding.userSelected","max":"1","type":[{"code":"boolean"}]}]}}},
{"resource":{"resourceType":"StructureDefinition","id":"Coding","derivation":"constraint","snapshot":{"element":[{"path":"Coding","max":"*"}]}}}]}`

const resourcesBundle = `{"entry":[{"resource":{"resourceType":"StructureDefinition","id":"Parameters","snapshot":{"element":[
	{"path":"Parameters","max":"*"},
	{"path":"Parameters.parameter","max":"*","type":[{"code":"BackboneElement"}]},
	{"path":"Parameters.parameter.value[x]","max":"1","type":[{"code":"decimal"},{"code":"Coding"}]},
	{"path":"Parameters.parameter.resource","max":"1","type":[{"code":"Resource"}]},
	{"path":"Parameters.parameter.part","max":"*","contentReference":"#Parameters.parameter"}]}}}]}`

const lines = `Parameters parameter*:Parameters.parameter
Parameters.parameter valueDecimal:number valueCoding:Coding resource:Resource part*:Parameters.parameter
Coding id:string userSelected:boolean
`

func TestGenerate(t *testing.T) {
	defer func(all []string) { resourceTypes = all }(resourceTypes)
	resourceTypes = []string{"Parameters"}
	folder := t.TempDir()
	for i, content := range []string{typesBundle, resourcesBundle} {
		name := filepath.Join(folder, bundleFiles[i])
		fixture.WriteFile(t, name, []byte(content))
	}
	out := filepath.Join(folder, "out.txt")
	if err := generate(folder, out); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(out); err != nil || string(got) != lines {
		t.Errorf("got %s\nwant %s\n%v", got, lines, err)
	}
}

func TestGenerateFails(t *testing.T) {
	if err := generate(t.TempDir(), filepath.Join(t.TempDir(), "out.txt")); err == nil {
		t.Error("no error for a folder without the package")
	}
}
