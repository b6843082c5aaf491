package terminology

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/fhirjson"
)

// translator looks for what a concept is in other code systems, and writes what it finds.
type translator struct {
	*translation
	library  *Library
	out      *parametersWriter
	found    bool // something that the concept is
	matches  int  // that were written
	handed   int  // how often a concept map handed on to another
	messages []string
	said     bool      // there is a match, if only one that says that there is none
	missed   []Missing // concept maps that others hand on to and that are not here
}

// missing returns the concept maps that are not here and may have what was not found: those that were handed on to, or
// any, where none was named.
func (x *translator) missing() []Missing {
	switch {
	case x.found:
		return nil
	case x.missed == nil && !x.said && x.inline == nil && !x.isNamed():
		return []Missing{{Kind: "ConceptMap"}}
	}
	return x.missed
}

// inMap writes the translations that the last one of a chain of concept maps has, each of which hands on to the
// next.
func (x *translator) inMap(c *Coding, chain []*conceptMap) error {
	m := chain[len(chain)-1]
	if err := x.spend(len(m.groups)); err != nil {
		return err
	}
	mapped := map[string]bool{} // the systems for which it says something
	for i := range m.groups {
		g := &m.groups[i]
		if !x.isAbout(g, c) {
			continue
		}
		said, err := x.inGroup(c, chain, g)
		if err != nil {
			return err
		}
		mapped[g.target] = mapped[g.target] || said
	}
	for i := range m.groups {
		if g := &m.groups[i]; !x.reverse && g.unmapped.mode != "" && !mapped[g.target] && x.isAbout(g, c) {
			if err := x.unmapped(c, chain, g); err != nil {
				return err
			}
		}
	}
	return nil
}

// inGroup writes the translations that a group has, and reports whether it has something to say of the code.
func (x *translator) inGroup(c *Coding, chain []*conceptMap, g *mapGroup) (said bool, err error) {
	for i := range g.elements {
		e := &g.elements[i]
		if err := x.spend(1 + len(e.targets)); err != nil {
			return said, err
		}
		for k := range e.targets {
			target := &e.targets[k]
			code := e.code
			if x.reverse {
				code = target.code
			}
			if code == c.Code && code != "" && (x.reverse || !x.depends.contradict(target)) {
				said = true
				if err := x.write(chain, g, e, target); err != nil {
					return said, err
				}
			}
		}
	}
	return said, nil
}

// spend pays for elements and targets that are looked at.
func (x *translator) spend(n int) error {
	err := x.budget.spend(n)
	if errors.Is(err, errSpent) {
		return unprocessable("too-costly", "more than %d targets are looked at; name the concept map, and translate fewer codings at once", x.library.maxGathered)
	}
	return err
}

// unmapped writes what a group has for codes that no element is for (R4 ConceptMap.group.unmapped).
func (x *translator) unmapped(c *Coding, chain []*conceptMap, g *mapGroup) error {
	u := &g.unmapped
	switch u.mode {
	case "provided", "use-source-code":
		equivalence := u.equivalence
		if equivalence == "" {
			equivalence = "equivalent"
		}
		return x.write(chain, g, &mapElement{code: c.Code}, &mapTarget{code: c.Code, equivalence: equivalence})
	case "fixed":
		return x.write(chain, g, &mapElement{code: c.Code}, &mapTarget{code: u.code, display: u.display, equivalence: u.equivalence})
	case "other-map":
		return x.otherMap(c, chain, u.otherMap)
	}
	return nil
}

// otherMap goes on to the concept map that one hands on to.
func (x *translator) otherMap(c *Coding, chain []*conceptMap, reference string) error {
	other, ok := x.library.conceptMap(reference)
	switch {
	case !ok:
		x.missed = append(x.missed, Missing{Kind: "ConceptMap", Canonical: reference})
		x.messages = append(x.messages, fmt.Sprintf("the concept map %s, which %s hands on to, is not here", reference, chain[len(chain)-1].canonical()))
		return nil
	case slices.Contains(chain, other):
		var names []string
		for _, m := range append(chain, other) {
			names = append(names, m.canonical())
		}
		return issue(http.StatusUnprocessableEntity, "processing", "", "", "concept maps hand on to each other: "+strings.Join(names, " -> "))
	}
	if x.handed++; x.handed > maxHandedOn {
		return unprocessable("too-costly", "concept maps hand on to each other more than %d times", maxHandedOn)
	}
	return x.inMap(c, append(chain, other))
}

// maxHandedOn bounds how often concept maps may hand on to others, for one request.
const maxHandedOn = 1000

// write writes one match, if there is room for it. What has no target is one as well, which says so.
func (x *translator) write(chain []*conceptMap, g *mapGroup, e *mapElement, target *mapTarget) error {
	if x.matches++; x.matches > x.limit {
		return unprocessable("too-costly", "there are more than %d matches; name the concept map or the target, and translate fewer codings at once", x.limit)
	}
	relation := equivalence(target.equivalence)
	from := (&designationUse{system: g.source, code: e.code, display: e.display}).append(nil)
	to := (&designationUse{system: g.target, code: target.code, display: target.display}).append(nil)
	concept, source := outPart{name: "concept", kind: "valueCoding", value: to}, outPart{}
	switch {
	case target.code == "":
		relation, concept = "unmatched", outPart{}
	case x.reverse && x.has("reverse"): // R4's concept is the outcome, and a match says what that is to what was asked about
		relation, concept.value = turned(relation), from
	case x.reverse: // R5's is what was asked about, and the ecosystem has the outcome beside it
		source = outPart{name: "source", kind: "valueCoding", value: from}
	}
	x.said = true
	x.found = x.found || relation != "unmatched" && relation != "disjoint"
	parts := []outPart{textPart("equivalence", "valueCode", relation), concept, source}
	parts = append(parts, attributeParts("product", target.products)...)
	parts = append(parts, attributeParts("dependsOn", target.dependsOn)...)
	// R4 calls the map source, which in reverse is the source code to others: R5's name for it leaves no doubt.
	parts = append(parts, textPart("originMap", "valueCanonical", chain[0].canonical()))
	for _, m := range chain[1:] {
		parts = append(parts, textPart("used-conceptmap", "valueCanonical", m.canonical()))
	}
	x.out.parts("match", append(parts, textPart("sourceComment", "valueString", e.comment), textPart("targetComment", "valueString", target.comment))...)
	if len(x.out.dst) > maxWritten {
		return tooLong()
	}
	return nil
}

// attributeParts are other elements that a translation depends on, or makes.
func attributeParts(name string, list []mapAttribute) (parts []outPart) {
	for i := range list {
		a := &list[i]
		value := appendPart([]byte{'['}, "element", "valueUri", fhirjson.AppendString(nil, a.property))
		concept := (&designationUse{system: a.system, code: a.value, display: a.display}).append(nil)
		value = append(appendPart(append(value, ','), "concept", "valueCoding", concept), ']')
		parts = append(parts, outPart{name: name, kind: "part", value: value})
	}
	return parts
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

// turned returns what a relation is the other way round.
func turned(equivalence string) string {
	switch equivalence {
	case "wider":
		return "narrower"
	case "narrower":
		return "wider"
	case "subsumes":
		return "specializes"
	case "specializes":
		return "subsumes"
	}
	return equivalence
}
