package terminology

import (
	"fmt"
	"net/http"
)

// translation are the parameters of $translate, with the names of R4 and of R5.
type translation struct {
	parameters
	maps                   string // url of the concept map
	mapVersion             string
	coding                 coding
	reverse                bool
	source, target         string // canonicals of value sets
	sourceSystem, toSystem string
}

// Translate answers [base]/ConceptMap/$translate and [base]/ConceptMap/{id}/$translate. See [Handler.Expand]
// for what is written and returned.
func (h *Handler) Translate(w http.ResponseWriter, r *http.Request) error {
	return h.serve(w, r, func(base *Library, inputs []input) ([]byte, error) {
		p, err := parseTranslation(inputs)
		if err != nil {
			return nil, err
		}
		p.library = base
		p.of(r)
		l, err := h.library(&p.parameters)
		if err != nil {
			return nil, err
		}
		return l.translate(p)
	})
}

// parseTranslation reads the parameters of $translate.
func parseTranslation(inputs []input) (*translation, error) {
	common, err := parseParameters(inputs)
	if err != nil {
		return nil, err
	}
	t := &translation{parameters: *common, maps: common.url}
	codings := 0
	for i := range inputs {
		isCoding, err := t.take(&inputs[i])
		if err != nil {
			return nil, err
		}
		if isCoding {
			codings++
		}
	}
	if codings != 1 {
		return nil, badRequest("required", "there must be exactly one of the parameters code, coding, sourceCode, sourceCoding, targetCode and targetCoding")
	}
	t.orient()
	return t, nil
}

// take takes over one parameter, and reports whether it is what is to be translated.
func (t *translation) take(in *input) (isCoding bool, err error) {
	switch in.name {
	case "code", "sourceCode", "targetCode":
		t.coding.code, isCoding = in.value, true
		t.reverse = t.reverse || in.name == "targetCode"
	case "coding", "sourceCoding", "targetCoding":
		t.coding, err = parseCoding(in.complex, in.name)
		t.reverse, isCoding = t.reverse || in.name == "targetCoding", true
	case "system", "sourceSystem":
		t.sourceSystem = in.value
	case "targetsystem", "targetSystem":
		t.toSystem = in.value
	case "version":
		t.coding.version = in.value
	case "conceptMapVersion":
		t.mapVersion = in.value
	case "source", "sourceScope":
		t.source = in.value
	case "target", "targetScope":
		t.target = in.value
	case "reverse":
		t.reverse = t.reverse || in.value == "true"
	case "conceptMap":
		if in.resource != nil {
			t.resources = append(t.resources, in.resource)
		}
	}
	return isCoding, err
}

// orient takes the systems for what they are: the coding's own, and the one on the other side.
func (t *translation) orient() {
	own, other := t.sourceSystem, t.toSystem
	if t.reverse && own != "" && other != "" {
		own, other = other, own
	} else if t.reverse && t.coding.system == "" && own == "" {
		own, other = other, ""
	}
	if t.coding.system == "" {
		t.coding.system = own
	}
	t.toSystem = other
}

// translate returns the Parameters that say what a coding is in other code systems.
func (l *Library) translate(t *translation) ([]byte, error) {
	out, found, maps := newParametersWriter(), false, 0
	for at := l; at != nil; at = at.base {
		for _, m := range at.conceptMaps {
			if !t.applies(m) {
				continue
			}
			maps++
			for i := range m.groups {
				found = t.inGroup(out, m, &m.groups[i]) || found
			}
		}
	}
	if maps == 0 && (t.maps != "" || t.id != "") {
		name := canonical(t.maps, t.mapVersion)
		if t.id != "" {
			name = "with the id " + t.id
		}
		e := issue(http.StatusNotFound, "not-found", "not-found", "", fmt.Sprintf("concept map %s is not known", name))
		e.Err = ErrUnknown
		return nil, e
	}
	out.boolean("result", found)
	if !found {
		out.text("message", "valueString", fmt.Sprintf("no translation is known for the code '%s' of system '%s'", t.coding.code, t.coding.system))
	}
	return out.end(), nil
}

// applies reports whether a concept map is to be looked into.
func (t *translation) applies(m *conceptMap) bool {
	if t.maps != "" && !m.definition.isNamed(canonical(t.maps, t.mapVersion)) {
		return false
	}
	if t.id != "" && t.id != m.id {
		return false
	}
	fits := func(wanted, has string) bool { return wanted == "" || has == "" || wanted == has }
	return fits(t.source, m.sourceScope) && fits(t.target, m.targetScope)
}

// inGroup writes the translations that a group of a concept map has.
func (t *translation) inGroup(out *parametersWriter, m *conceptMap, g *mapGroup) (found bool) {
	own, other := g.source, g.target
	if t.reverse {
		own, other = other, own
	}
	if t.coding.system != "" && own != t.coding.system || t.toSystem != "" && other != t.toSystem {
		return false
	}
	for _, e := range g.elements {
		for _, target := range e.targets {
			from, to := e.code, target.code
			if t.reverse {
				from, to = to, from
			}
			if from != t.coding.code || target.code == "" {
				continue
			}
			found = found || !isNoMatch(target.equivalence)
			t.write(out, m, g, &e, &target)
		}
	}
	return found
}

// isNoMatch reports whether a target is one that the source is not.
func isNoMatch(equivalence string) bool {
	return equivalence == "unmatched" || equivalence == "disjoint" || equivalence == "not-related-to"
}

// write writes one match: the concept map's target, and, in reverse, the source that was looked for.
func (t *translation) write(out *parametersWriter, m *conceptMap, g *mapGroup, e *mapElement, target *mapTarget) {
	concept := (&designationUse{system: g.target, code: target.code, display: target.display}).append(nil)
	source := outPart{}
	if t.reverse {
		source = outPart{name: "source", kind: "valueCoding", value: (&designationUse{system: g.source, code: e.code}).append(nil)}
	}
	// R4 calls the map source, which in reverse is the source code to others: R5's name for it leaves no doubt.
	origin := textPart("originMap", "valueCanonical", m.canonical())
	out.parts("match", textPart("equivalence", "valueCode", equivalence(target.equivalence)),
		outPart{name: "concept", kind: "valueCoding", value: concept}, source, origin, textPart("comment", "valueString", target.comment))
}

// equivalence returns R4's word for a relation that may be one of R5.
func equivalence(relation string) string {
	switch relation {
	case "related-to", "":
		return "relatedto"
	case "source-is-narrower-than-target":
		return "wider"
	case "source-is-broader-than-target":
		return "narrower"
	case "not-related-to":
		return "disjoint"
	}
	return relation
}
