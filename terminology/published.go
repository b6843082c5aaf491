package terminology

import (
	"net/http"
	"runtime"
	"strconv"

	"github.com/caddy-fhir/caddy-fhir/terminology/fhirjson"
)

// published is a code system or value set of the library, as a resource. It is not the whole of what was
// loaded: narrative, metadata and, of concepts, extensions that no operation needs are not kept.
type published struct {
	kind string
	*definition
	rest     []fhirjson.Member
	concepts *codeSystem // whose concepts are shown, or nil
}

// Read answers [base]/CodeSystem/{id} and [base]/ValueSet/{id} with a definition of the library (R4 RESTful
// API, read). The parameters _summary and _elements are understood. See [Handler.Expand] for what is written
// and returned.
func (h *Handler) Read(w http.ResponseWriter, r *http.Request) error {
	_, part, f, err := searchInputs(r)
	if err != nil {
		return err
	}
	kind, id := typeAndID(r.URL.Path)
	l := h.current()
	defer runtime.KeepAlive(l)
	list := l.published(kind)
	for i := len(list) - 1; i >= 0; i-- {
		if list[i].id == id {
			return f.write(w, r, list[i].append(nil, part))
		}
	}
	e := issue(http.StatusNotFound, "not-found", "not-found", "", "there is no "+kind+" with the id "+id)
	e.Err = ErrUnknown
	return e
}

// published returns the definitions of a type, each version counted, in the order of loading.
func (d *definitions) published(kind string) []published {
	var list []published
	if kind == "ValueSet" {
		for _, vs := range d.valueSets {
			list = append(list, published{kind: kind, definition: &vs.definition, rest: vs.rest})
		}
		return list
	}
	for index, cs := range d.codeSystems {
		if !d.isContained(uint32(index)) {
			list = append(list, published{kind: kind, definition: &cs.definition, rest: cs.rest, concepts: cs})
		}
	}
	return list
}

// append appends the resource, or a part of it, as JSON.
func (p *published) append(dst []byte, part *subset) []byte {
	dst = append(append(append(dst, `{"resourceType":"`...), p.kind...), '"')
	dst = appendSubsetted(dst) // always: something may be missing that was there when it was loaded
	dst = p.definition.append(dst, part)
	for _, m := range p.rest {
		if part.has(m.Name) {
			dst = append(append(fhirjson.AppendString(append(dst, ','), m.Name), ':'), m.Value...)
		}
	}
	if p.concepts != nil && part.has("concept") {
		dst = p.concepts.appendConcepts(dst)
	}
	return append(dst, '}')
}

// append appends what code systems and value sets have alike.
func (d *definition) append(dst []byte, part *subset) []byte {
	for _, m := range []struct{ name, value string }{
		{"id", d.id}, {"language", d.language}, {"url", d.url}, {"version", d.version}, {"name", d.name}, {"title", d.title},
		{"status", d.status}, {"date", d.date}, {"publisher", d.publisher},
	} {
		if part.has(m.name) {
			dst = fhirjson.AppendMember(dst, m.name, m.value)
		}
	}
	if d.experimental != nil && part.has("experimental") {
		dst = strconv.AppendBool(append(dst, `,"experimental":`...), *d.experimental)
	}
	return dst
}

// appendConcepts appends the member concept: the concepts, within each other as they were in the definition.
func (cs *codeSystem) appendConcepts(dst []byte) []byte {
	if cs.len() == 0 {
		return dst
	}
	dst = append(dst, `,"concept":[`...)
	var within []uint32
	for concept := range uint32(cs.len()) {
		parent := none
		if cs.nestedIn != nil {
			parent = cs.nestedIn[concept]
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
		dst = cs.appendConcept(dst, concept)
	}
	for dst = append(dst, '}'); len(within) > 0; within = within[1:] {
		dst = append(dst, `]}`...)
	}
	return append(dst, ']')
}

// appendConcept appends a concept up to the brace that ends it.
func (cs *codeSystem) appendConcept(dst []byte, concept uint32) []byte {
	dst = fhirjson.AppendString(append(dst, `{"code":`...), cs.codeOf(concept))
	dst = fhirjson.AppendMember(dst, "display", cs.displayOf(concept))
	dst = fhirjson.AppendMember(dst, "definition", cs.meaningOf(concept))
	list := fhirjson.Array{Name: "designation"}
	from, to := cs.designations.rows(concept)
	for row := from; row < to; row++ {
		dst = cs.appendDesignation(list.Next(dst), row)
	}
	dst = list.End(dst)
	if cs.values.from == nil {
		return dst
	}
	list = fhirjson.Array{Name: "property"}
	for row := cs.values.from[concept]; row < cs.values.from[concept+1]; row++ {
		dst = cs.appendValue(list.Next(dst), row)
	}
	return list.End(dst)
}

// appendDesignation appends a designation.
func (cs *codeSystem) appendDesignation(dst []byte, row uint32) []byte {
	start := len(dst)
	d := &cs.designations
	if extension := d.extensionOf(row); extension != 0 {
		dst = append(append(dst, `,"extension":`...), cs.texts.at(extension)...)
	}
	dst = fhirjson.AppendMember(dst, "language", cs.languages[d.language[row]])
	if use := &cs.uses[d.use[row]]; *use != (designationUse{}) {
		dst = use.append(append(dst, `,"use":`...))
	}
	dst = fhirjson.AppendString(append(dst, `,"value":`...), cs.texts.at(d.value[row]))
	dst[start] = '{' // in place of the comma
	return append(dst, '}')
}

// appendValue appends a concept's property.
func (cs *codeSystem) appendValue(dst []byte, row uint32) []byte {
	dst = fhirjson.AppendString(append(dst, `{"code":`...), cs.properties[cs.values.property[row]].code)
	kind, value := cs.values.kind[row], cs.texts.at(cs.values.value[row])
	dst = append(append(append(dst, ',', '"'), valueMembers[kind]...), '"', ':')
	switch kind {
	case valueCoding:
		dst = append(dst, cs.texts.at(cs.values.coding[row])...)
	case valueInteger, valueDecimal, valueBoolean:
		dst = append(dst, value...)
	default:
		dst = fhirjson.AppendString(dst, value)
	}
	return append(dst, '}')
}
