package terminology

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// translation are the parameters of $translate, with the names of R4 and of R5.
type translation struct {
	parameters
	maps                   string         // url of the concept map
	inline                 jsontext.Value // the concept map, if the request holds it
	depends                dependencies
	mapVersion             string
	codings                []Coding // one, or those of a CodeableConcept
	version                string   // of a code
	reverse                bool
	source, target         string // canonicals of value sets
	sourceSystem, toSystem string
	limit                  int  // of matches
	eitherWay              bool // which of the two systems is the code's is not plain
}

// Translate answers [base]/ConceptMap/$translate and [base]/ConceptMap/{id}/$translate. See [Handler.Expand]
// for what is written and returned.
func (h *Handler) Translate(w http.ResponseWriter, r *http.Request) error {
	return h.serve(w, r, func(q *asking, base *Library, inputs []input) ([]byte, error) {
		p, err := parseTranslation(inputs)
		if err != nil {
			return nil, err
		}
		h.complete(&p.parameters, q)
		p.limit = p.Limits.entries()
		l, err := h.with(base, &p.parameters, &q.budget)
		if err != nil {
			return nil, err
		}
		answer, missed, err := l.translate(p)
		if err != nil {
			return nil, err
		}
		return h.unlessOthers(answer, missed)
	})
}

// parseTranslation reads the parameters of $translate.
func parseTranslation(inputs []input) (*translation, error) {
	t := new(translation)
	if err := t.read(inputs); err != nil {
		return nil, err
	}
	t.maps = t.URL
	given := 0
	for i := range inputs {
		isConcept, err := t.take(&inputs[i])
		if err != nil {
			return nil, err
		}
		if isConcept {
			given++
		}
	}
	if given != 1 {
		return nil, badRequest("required", "there must be exactly one of the parameters code, coding and codeableConcept, or of those of R5: "+
			"sourceCode, sourceCoding, sourceCodeableConcept, targetCode, targetCoding and targetCodeableConcept")
	}
	t.orient()
	return t, nil
}

// take takes over one parameter, and reports whether it is what is to be translated.
func (t *translation) take(in *input) (isConcept bool, err error) {
	switch in.name {
	case "code", "sourceCode", "targetCode":
		t.codings = []Coding{{Code: in.value}}
	case "coding", "sourceCoding", "targetCoding":
		var c Coding
		c, err = parseCoding(in.complex, in.name)
		t.codings = []Coding{c}
	case "codeableConcept", "sourceCodeableConcept", "targetCodeableConcept":
		t.codings, err = parseConcept(in.complex)
	case "conceptMap":
		return false, t.takeMap(in)
	case "dependency":
		return false, t.depends.take(in)
	default:
		t.takeOther(in)
		return false, nil
	}
	t.reverse = t.reverse || strings.HasPrefix(in.name, "target")
	return true, err
}

// takeOther takes over one parameter that says where a translation is looked for.
func (t *translation) takeOther(in *input) {
	switch in.name {
	case "system", "sourceSystem":
		t.sourceSystem = in.value
	case "targetsystem", "targetSystem":
		t.toSystem = in.value
	case "version":
		t.version = in.value
	case "conceptMapVersion":
		t.mapVersion = in.value
	case "source", "sourceScope":
		t.source = in.value
	case "target", "targetScope":
		t.target = in.value
	case "reverse":
		t.reverse = t.reverse || in.value == "true"
	}
}

// takeMap takes over a concept map that the request holds.
func (t *translation) takeMap(in *input) error {
	switch {
	case in.resource == nil:
		return badRequest("invalid", "the parameter conceptMap must be a resource, which only a POST can give")
	case t.inline != nil:
		return badRequest("invalid", "the parameter conceptMap may be given only once")
	}
	t.inline = in.resource
	return nil
}

// orient takes the systems for what they are: the code's own, and the one on the other side. With R5's names it is
// the target's that a reverse translation starts from. R4's parameter reverse leaves open whether system stays that
// of the code or turns round with the others: then both are tried.
func (t *translation) orient() {
	own, other := t.sourceSystem, t.toSystem
	switch {
	case !t.reverse:
	case t.has("reverse"):
		t.eitherWay = own != "" && other != ""
		if t.source != "" || t.target != "" {
			t.source, t.target = t.target, t.source
		}
	case own != "" && other != "":
		own, other = other, own
	case own == "":
		own, other = other, ""
	}
	for i := range t.codings {
		if c := &t.codings[i]; c.System == "" {
			c.System, c.Version = own, cmp.Or(c.Version, t.version)
		}
	}
	t.toSystem = other
}

// translate returns the Parameters that say what a concept is in other code systems. Where they say nothing of it, it
// returns too which concept maps may.
func (l *Library) translate(t *translation) ([]byte, []Missing, error) {
	maps, err := t.applicable(l)
	if err != nil {
		return nil, nil, err
	}
	if len(maps) == 0 && t.isNamed() {
		name := canonical(t.maps, t.mapVersion)
		if t.ID != "" {
			name = "with the id " + t.ID
		}
		e := issue(http.StatusNotFound, "not-found", "not-found", "", fmt.Sprintf("concept map %s is not known", name))
		e.Err = ErrUnknown
		return nil, nil, e
	}
	x := &translator{library: l, translation: t, out: newParametersWriter(nil)}
	for i := range t.codings {
		for _, m := range maps {
			if err := x.inMap(&t.codings[i], []*conceptMap{m}); err != nil {
				return nil, nil, err
			}
		}
	}
	x.out.boolean("result", x.found)
	if !x.found && len(t.codings) > 0 {
		x.messages = append(x.messages, fmt.Sprintf("no translation is known for the code '%s' of system '%s'", t.codings[0].Code, t.codings[0].System))
	}
	x.out.optional("message", "valueString", strings.Join(x.messages, "; "))
	return x.out.end(), x.missing(), nil
}

// isNamed reports whether the request names a concept map that is to be here.
func (t *translation) isNamed() bool { return t.ID != "" || t.inline == nil && t.maps != "" }

// applicable returns the concept maps that are to be looked into: the one that the request holds, and no other, or
// those of the library. With an id, it is that one.
func (t *translation) applicable(l *Library) (list []*conceptMap, err error) {
	if t.inline != nil && t.ID == "" {
		m, err := inlineConceptMap(t.inline)
		return []*conceptMap{m}, err
	}
	for at := l; at != nil; at = at.base {
		for _, m := range at.conceptMaps {
			if t.applies(m) {
				list = append(list, m)
			}
		}
	}
	return list, nil
}

// applies reports whether a concept map is to be looked into.
func (t *translation) applies(m *conceptMap) bool {
	if t.maps != "" && !m.definition.isNamed(canonical(t.maps, t.mapVersion)) {
		return false
	}
	if t.ID != "" && t.ID != m.id {
		return false
	}
	return isScope(m.sourceScope, t.source) && isScope(m.targetScope, t.target)
}

// isScope reports whether a value set of a concept map can be the one that is asked for.
func isScope(has, wanted string) bool {
	url, version := splitCanonical(has)
	wantedURL, wantedVersion := splitCanonical(wanted)
	return has == "" || wanted == "" || url == wantedURL && (version == "" || wantedVersion == "" || matchesVersion(version, wantedVersion))
}

// isAbout reports whether a group is one between the systems that are asked for.
func (t *translation) isAbout(g *mapGroup, c *Coding) bool {
	own, version, other := g.source, g.sourceVersion, g.target
	if t.reverse {
		own, version, other = g.target, g.targetVersion, g.source
	}
	if version != "" && c.Version != "" && !matchesVersion(c.Version, version) {
		return false
	}
	fits := func(own, other string) bool {
		return (c.System == "" || own == c.System) && (t.toSystem == "" || other == t.toSystem)
	}
	return fits(own, other) || t.eitherWay && fits(other, own)
}
