package terminology

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/caddy-fhir/caddy-fhir/terminology/fhirjson"
)

// concepts are the parameters of $lookup and $subsumes.
type concepts struct {
	parameters
	a, b Coding // of $lookup only a
}

// parseConcepts reads the parameters of $lookup and $subsumes. Each concept is given by code, with system and
// version beside it, or by a Coding.
func parseConcepts(inputs []input) (*concepts, error) {
	c := new(concepts)
	if err := c.read(inputs); err != nil {
		return nil, err
	}
	var system Coding // system and version, for the codes
	for i := range inputs {
		switch in := &inputs[i]; in.name {
		case "system":
			system.System = in.value
		case "version":
			system.Version = in.value
		case "code", "codeA":
			c.a.Code = in.value
		case "codeB":
			c.b.Code = in.value
		}
	}
	if err := c.complete(&c.a, &system, "code", "coding"); err != nil {
		return nil, err
	}
	if err := c.complete(&c.a, &system, "codeA", "codingA"); err != nil {
		return nil, err
	}
	return c, c.complete(&c.b, &system, "codeB", "codingB")
}

// complete takes a concept from the parameter that is a Coding, or else gives its code the system.
func (c *concepts) complete(of, system *Coding, code, whole string) error {
	in, ok := find(c.given, whole)
	if !ok {
		of.System, of.Version = cmp.Or(of.System, system.System), cmp.Or(of.Version, system.Version)
		return nil
	}
	if c.has(code) {
		return badRequest("invalid", "of the parameters %s and %s only one may be given", code, whole)
	}
	var err error
	*of, err = parseCoding(in.complex, whole)
	return err
}

// concept finds the concept that a coding means.
func (l *Library) concept(c *Coding) (*codeSystem, uint32, error) {
	if c.System == "" || c.Code == "" {
		return nil, none, badRequest("required", "there must be the parameters code and system, or a coding with both")
	}
	index := l.codeSystem(c.System, c.Version)
	if index == none || !l.codeSystems[index].content.hasConcepts() {
		e := issue(http.StatusNotFound, "not-found", "not-found", "UNKNOWN_CODESYSTEM",
			fmt.Sprintf("A definition for CodeSystem '%s' could not be found, so the code cannot be looked up", canonical(c.System, c.Version)))
		e.Err, e.Missing = ErrUnknown, missing("CodeSystem", c.System, c.Version)
		return nil, none, e
	}
	cs := l.codeSystems[index]
	if err := cs.usable("code system"); err != nil {
		return nil, none, err
	}
	concept, ok := cs.concept([]byte(c.Code))
	if !ok {
		return nil, none, issue(http.StatusNotFound, "not-found", "invalid-code", "Unknown_Code_in_Version",
			fmt.Sprintf("Unknown code '%s' in the CodeSystem '%s' version '%s'", c.Code, cs.url, cs.version))
	}
	return cs, concept, nil
}

// asOf gives a coding without a version the one that was the latest on a date, if there is a date.
func (l *Library) asOf(c *Coding, date string) error {
	if err := checkDate(date); err != nil || date == "" || c.Version != "" {
		return err
	}
	index, err := l.codeSystemAt(c.System, date)
	if err == nil && index != none {
		c.Version = l.codeSystems[index].version
	}
	return err
}

// instance finds the code system of an operation on an instance, and takes the codings for codes of it.
func (l *Library) instance(id string, codings ...*Coding) error {
	cs, ok := l.codeSystemByID(id)
	if !ok {
		e := issue(http.StatusNotFound, "not-found", "not-found", "", "there is no code system with the id "+id)
		e.Err = ErrUnknown
		return e
	}
	for _, c := range codings {
		if c.System == "" {
			c.System = cs.url
		}
		if c.Version == "" {
			c.Version = cs.version
		}
		if c.System != cs.url || !matchesVersion(cs.version, c.Version) {
			return badRequest("invalid", "the code system is %s, not %s", cs.canonical(), canonical(c.System, c.Version))
		}
	}
	return nil
}

// Lookup answers [base]/CodeSystem/$lookup, and the same of [base]/CodeSystem/{id}. See [Handler.Expand] for
// what is written and returned.
func (h *Handler) Lookup(w http.ResponseWriter, r *http.Request) error {
	return h.serve(w, r, func(q *asking, l *Library, inputs []input) ([]byte, error) { return h.lookup(l, q, inputs) })
}

func (h *Handler) lookup(base *Library, q *asking, inputs []input) ([]byte, error) {
	p, l, err := h.concepts(base, q, inputs)
	if err != nil {
		return nil, err
	}
	if err := l.asOf(&p.a, p.Date); err != nil {
		return nil, err
	}
	cs, concept, err := l.concept(&p.a)
	if err != nil {
		return nil, err
	}
	x := &expansion{codeSystems: []uint32{l.indexOf(cs)}}
	if x.supplements, err = l.requiredSupplements(x, p.Supplements); err != nil {
		return nil, err
	}
	return l.lookup(p, cs, concept, x), nil
}

// concepts reads the parameters of $lookup and $subsumes, and what they bring along.
func (h *Handler) concepts(base *Library, q *asking, inputs []input) (*concepts, *Library, error) {
	p, err := parseConcepts(inputs)
	if err != nil {
		return nil, nil, err
	}
	h.complete(&p.parameters, q)
	l, err := h.with(base, &p.parameters, &q.budget)
	if err == nil && p.ID != "" {
		err = l.instance(p.ID, &p.a, &p.b)
	}
	return p, l, err
}

// lookup returns the Parameters that describe a concept.
func (l *Library) lookup(p *concepts, cs *codeSystem, concept uint32, x *expansion) []byte {
	out := newParametersWriter(nil)
	name := cs.name
	if name == "" {
		name = cs.url
	}
	out.text("name", "valueString", name)
	out.optional("version", "valueString", cs.version)
	out.text("system", "valueUri", cs.url)
	out.text("code", "valueCode", string(cs.codeOf(concept)))
	e := entry{codeSystem: x.codeSystems[0], concept: concept}
	texts := l.shownTexts(nil, e, "", x.supplements)
	languages := parseLanguages(p.Language.of(&valueSet{}))
	if i := languages.preferredOrFirst(texts); i >= 0 {
		out.text("display", "valueString", string(texts[i].value))
	} else {
		out.text("display", "valueString", string(cs.codeOf(concept)))
	}
	out.optional("definition", "valueString", string(cs.meaningOf(concept)))
	out.boolean("abstract", cs.flags[concept]&flagAbstract != 0)
	for _, t := range texts {
		out.designation(&t)
	}
	l.lookupProperties(out, p.Properties, cs, concept)
	for _, s := range x.supplements {
		by := l.codeSystems[s.by]
		if c, ok := by.concept(cs.codeOf(concept)); ok {
			out.properties(p.Properties, by, c)
		}
		out.text("used-supplement", "valueCanonical", by.canonical())
	}
	return out.end()
}

// designation writes a designation, with the supplement that it is from.
func (w *parametersWriter) designation(t *shownText) {
	use := outPart{}
	if t.use.code != "" {
		use = outPart{name: "use", kind: "valueCoding", value: t.use.append(nil)}
	}
	w.parts("designation", textPart("language", "valueCode", t.language), use,
		textPart("value", "valueString", string(t.value)), textPart("source", "valueCanonical", t.source))
}

// lookupProperties writes the properties of a concept: whether it is inactive, and those that were asked for.
func (l *Library) lookupProperties(out *parametersWriter, wanted []string, cs *codeSystem, concept uint32) {
	inactive := strconv.AppendBool(nil, cs.flags[concept]&flagInactive != 0)
	out.parts("property", textPart("code", "valueCode", "inactive"), outPart{name: "value", kind: "valueBoolean", value: inactive})
	for _, relation := range []struct {
		name string
		to   []uint32
	}{{"parent", cs.parents.of(concept)}, {"child", cs.children.of(concept)}} {
		if !wants(wanted, relation.name) {
			continue
		}
		for _, other := range relation.to {
			out.parts("property", textPart("code", "valueCode", relation.name),
				textPart("value", "valueCode", string(cs.codeOf(other))), textPart("description", "valueString", string(cs.displayOf(other))))
		}
	}
	out.properties(wanted, cs, concept)
}

// properties writes the properties that a code system gives a concept, save those that are known otherwise.
func (w *parametersWriter) properties(wanted []string, cs *codeSystem, concept uint32) {
	if cs.values.from == nil {
		return
	}
	for row := cs.values.from[concept]; row < cs.values.from[concept+1]; row++ {
		p := cs.properties[cs.values.property[row]]
		if !wants(wanted, p.code) || p.is("inactive") || p.is("parent") || p.is("child") {
			continue
		}
		kind := cs.values.kind[row]
		value := cs.texts.at(cs.values.value[row])
		switch kind {
		case valueCoding:
			value = cs.texts.at(cs.values.coding[row])
		case valueInteger, valueDecimal, valueBoolean:
		default:
			value = fhirjson.AppendString(nil, value)
		}
		w.parts("property", textPart("code", "valueCode", p.code), outPart{name: "value", kind: valueMembers[kind], value: value})
	}
}

// wants reports whether a property is among those that were asked for.
func wants(wanted []string, code string) bool {
	return slices.Contains(wanted, "*") || slices.Contains(wanted, code)
}

// Subsumes answers [base]/CodeSystem/$subsumes and [base]/CodeSystem/{id}/$subsumes. See [Handler.Expand] for
// what is written and returned.
func (h *Handler) Subsumes(w http.ResponseWriter, r *http.Request) error {
	return h.serve(w, r, func(q *asking, l *Library, inputs []input) ([]byte, error) { return h.subsumes(l, q, inputs) })
}

func (h *Handler) subsumes(base *Library, q *asking, inputs []input) ([]byte, error) {
	p, l, err := h.concepts(base, q, inputs)
	if err != nil {
		return nil, err
	}
	if p.b.System == "" {
		p.b.System, p.b.Version = p.a.System, p.a.Version
	}
	cs, a, err := l.concept(&p.a)
	if err != nil {
		return nil, err
	}
	other, b, err := l.concept(&p.b)
	if err != nil {
		return nil, err
	}
	if cs != other {
		return nil, badRequest("invalid", "the two codes must be of the same version of one code system")
	}
	outcome, err := cs.subsumption(a, b, p.budget.spend)
	if err != nil {
		return nil, err
	}
	out := newParametersWriter(nil)
	out.text("outcome", "valueCode", outcome)
	return out.end(), nil
}

// subsumption returns how two concepts are related (http://hl7.org/fhir/concept-subsumption-outcome), given what
// the code system says that its hierarchy means.
func (cs *codeSystem) subsumption(a, b uint32, spend func(n int) error) (string, error) {
	switch {
	case a == b:
		return "equivalent", nil
	case cs.notSubsuming:
		return "not-subsumed", nil
	}
	above, err := cs.parents.closure(cs.len(), b, spend)
	if err == nil && above.Has(a) {
		return "subsumes", nil
	}
	if err == nil {
		above, err = cs.parents.closure(cs.len(), a, spend)
	}
	if err == nil && above.Has(b) {
		return "subsumed-by", nil
	}
	return "not-subsumed", err
}
