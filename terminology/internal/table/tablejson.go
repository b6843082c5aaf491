package table

import (
	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
)

// AppendConcepts appends the member concept, nested as in the definition.
func (t *Table) AppendConcepts(dst []byte) []byte {
	if t.Len() == 0 {
		return dst
	}
	dst = append(dst, `,"concept":[`...)
	var within []uint32
	for concept := range uint32(t.Len()) {
		parent := noParent
		if t.concepts.nestedIn != nil {
			parent = t.concepts.nestedIn[concept]
		}
		switch {
		case concept == 0:
		case parent == concept-1:
			within = append(within, parent)
			dst = append(dst, `,"concept":[`...)
		default:
			for dst = append(dst, '}'); len(within) > 0 && within[len(within)-1] != parent; within = within[:len(within)-1] {
				dst = append(dst, `]}`...)
			}
			dst = append(dst, ',')
		}
		dst = appendConcept(dst, t, concept)
	}
	for dst = append(dst, '}'); len(within) > 0; within = within[1:] {
		dst = append(dst, `]}`...)
	}
	return append(dst, ']')
}

// appendConcept appends a concept without its closing brace.
func appendConcept(dst []byte, t *Table, concept uint32) []byte {
	dst = fhirjson.AppendString(append(dst, `{"code":`...), t.concepts.codeOf(concept))
	dst = fhirjson.AppendMember(dst, "display", t.concepts.displayOf(concept))
	dst = fhirjson.AppendMember(dst, "definition", t.concepts.definitionOf(concept))
	list := fhirjson.Array{Name: "designation"}
	for row, end := t.designations.from.rows(concept); row < end; row++ {
		d := t.designations.text(row, t.concepts.texts)
		dst = d.AppendWhole(list.Next(dst))
	}
	dst = list.End(dst)
	list = fhirjson.Array{Name: "property"}
	for _, v := range t.AppendValues(nil, codesystem.At(concept)) {
		dst = fhirjson.AppendString(append(list.Next(dst), `{"code":`...), v.Property.Code)
		dst = append(append(append(dst, ',', '"'), v.Member...), '"', ':')
		dst = append(v.AppendJSON(dst), '}')
	}
	return list.End(dst)
}
