package table

import (
	"iter"
	"strconv"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
)

// Weigh says how much concepts are used, by their codes. It must be called before the table is searched.
func (t *Table) Weigh(weights iter.Seq2[string, float64]) {
	t.weights = make([]float64, t.Len())
	for code, weight := range weights {
		if concept, ok := t.concepts.locate([]byte(code)); ok {
			t.weights[concept] += weight
		}
	}
}

// WeighItems is [Table.Weigh] by the extension itemWeight of the concepts.
func (t *Table) WeighItems() {
	for row, kind := range t.extensions.kind {
		if kind != codesystem.ExtensionWeight {
			continue
		}
		if t.weights == nil {
			t.weights = make([]float64, t.Len())
		}
		t.weights[t.extensions.owner[row]] = ItemWeight(t.concepts.texts.At(t.extensions.value[row]))
	}
}

// ItemWeight reads the value of the extension itemWeight, a JSON member; 0 if it is not a positive number.
func ItemWeight(member []byte) float64 {
	weight, err := strconv.ParseFloat(fhirjson.ValueText(member), 64)
	if err != nil || weight < 0 {
		return 0
	}
	return weight
}

// SearchWeight returns how much a concept is used; 0 if that is unknown.
func (t *Table) SearchWeight(concept uint32) float64 {
	if t.weights == nil {
		return 0
	}
	return t.weights[concept]
}
