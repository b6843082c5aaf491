package table

import (
	"slices"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
)

// storedCodeSystem contains all supported members of concepts in an unusual order.
const storedCodeSystem = `{"resourceType":"CodeSystem","url":"http://x/stored","content":"complete","language":"en",
"concept":[
 {"concept":[{"code":"b","designation":[{"value":"zwei","language":"de"}],"definition":"the second"}],
  "designation":[{"language":"de","value":"eins"},{"language":"nl","use":{"system":"http://x/use","code":"u","display":"U"},"value":"een",
   "extension":[{"url":"http://x/unknown","valueString":"x"},{"url":"http://hl7.org/fhir/StructureDefinition/coding-sctdescid", "valueId":"1"}]},{"language":"fr"}],
  "extension":[{"url":"http://hl7.org/fhir/StructureDefinition/itemWeight","valueDecimal":1.20}],
  "property":[{"code":"p","valueCoding":{"system":"http://x/s", "code":"c"}},{"code":"n","valueInteger":3}],
  "code":"a","definition":"the first"},
 {"code":"c"}]}`

func TestConceptRows(t *testing.T) {
	cs := tableOf(t, storedCodeSystem)
	if got := string(cs.concepts.definitionOf(0)) + "," + string(cs.concepts.definitionOf(1)) + "," + string(cs.concepts.definitionOf(2)); got != "the first,the second," {
		t.Errorf("definitions: got %q", got)
	}
	var got string
	for concept := range uint32(3) {
		from, to := cs.designations.from.rows(concept)
		for row := from; row < to; row++ {
			d := cs.designations.text(row, cs.concepts.texts)
			got += string(cs.concepts.codeOf(concept)) + ":" + d.Language + ":" + d.Use.Code + ":" + string(d.Value) + string(d.Extension) + " "
		}
	}
	want := `a:de::eins a:nl:u:een[{"url":"http://hl7.org/fhir/StructureDefinition/coding-sctdescid","valueId":"1"}] b:de::zwei `
	if got != want {
		t.Errorf("designations: got %q, want %q", got, want)
	}
	var weights [3]string
	for concept := range uint32(3) {
		for _, x := range cs.AppendExtensions(nil, codesystem.ConceptAt(concept)) {
			if x.Kind == codesystem.ExtensionWeight {
				weights[concept] += string(x.Value)
			}
		}
	}
	if weights != [3]string{`"valueDecimal":1.20`} {
		t.Errorf("weights: got %q", weights)
	}
	if got := string(cs.concepts.texts.At(cs.values.coding[0])); got != `{"system":"http://x/s","code":"c"}` || cs.values.kind[1] != valueInteger {
		t.Errorf("properties: got %s, kinds %v", got, cs.values.kind)
	}
	if cs.concepts.parent[1] != 0 || cs.concepts.parent[0] != noParent {
		t.Errorf("nesting: got %v", cs.concepts.parent)
	}
}

// tableOf returns the table of a CodeSystem resource.
func tableOf(t *testing.T, resource string) *Table {
	t.Helper()
	var b Builder
	b.Reset()
	r := fhirjson.NewValueReader(jsontext.Value(resource))
	err := r.Object(func(name []byte) error {
		if string(name) == "concept" {
			return r.Array(func() error { return b.ReadConcept(r) })
		}
		return r.Skip()
	})
	if err != nil {
		t.Fatal(err)
	}
	table, err := b.Build("en", true)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func TestRelation(t *testing.T) {
	r := newRelation(4, []pair{{2, 1}, {0, 3}, {2, 0}, {2, 1}, {0, 3}, {2, 3}})
	for concept, want := range [][]uint32{{3}, {}, {1, 0, 3}, {}} {
		if got := r.related(uint32(concept)); !slices.Equal(got, want) {
			t.Errorf("of(%d) = %v, want %v", concept, got, want)
		}
	}
	if empty := newRelation(4, nil); len(empty.related(3)) != 0 || empty.from != nil {
		t.Error("an empty relation holds something")
	}
}
