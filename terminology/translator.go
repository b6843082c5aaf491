package terminology

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// translator looks up what a concept is in other code systems.
type translator struct {
	*Translation
	library  *Set
	budget   *budget
	told     dependencies
	result   *TranslationResult
	written  parametersWriter // the last match
	size     int              // of the matches, in bytes of JSON
	handed   int              // how often a concept map referred to another
	messages []string
}

func (x *translator) end() *TranslationResult {
	r := x.result
	if !r.Found && len(x.Codings) > 0 {
		x.messages = append(x.messages, fmt.Sprintf("no translation is known for the code '%s' of system '%s'", x.Codings[0].Code, x.Codings[0].System))
	}
	r.Message = strings.Join(x.messages, "; ")
	switch {
	case r.Found:
		r.Missing = nil
	case r.Missing == nil && len(r.Matches) == 0 && x.ConceptMap == nil && !x.isNamed():
		r.Missing = []Missing{{Kind: "ConceptMap"}} // any concept map could have it
	}
	return r
}

// inMap adds the translations of the last concept map of a chain, in which each refers to the next.
func (x *translator) inMap(c *Coding, chain []*conceptMap) error {
	m := chain[len(chain)-1]
	if err := x.spend(len(m.groups)); err != nil {
		return err
	}
	mapped := map[string]bool{} // the target systems that have a translation
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
		if g := &m.groups[i]; !x.Reverse && g.unmapped.mode != "" && !mapped[g.target] && x.isAbout(g, c) {
			if err := x.unmapped(c, chain, g); err != nil {
				return err
			}
		}
	}
	return nil
}

// inGroup adds the translations of a group, and reports whether it has any for the code.
func (x *translator) inGroup(c *Coding, chain []*conceptMap, g *mapGroup) (said bool, err error) {
	for i := range g.elements {
		e := &g.elements[i]
		if err := x.spend(1 + len(e.targets)); err != nil {
			return said, err
		}
		for k := range e.targets {
			target := &e.targets[k]
			code := e.code
			if x.Reverse {
				code = target.code
			}
			if code == c.Code && code != "" && (x.Reverse || !x.told.contradict(target)) {
				said = true
				if err := x.add(chain, g, e, target); err != nil {
					return said, err
				}
			}
		}
	}
	return said, nil
}

// spend pays for looking at elements and targets.
func (x *translator) spend(n int) error {
	err := x.budget.spend(n)
	if errors.Is(err, errSpent) {
		return unprocessable("too-costly", "more than %d targets are looked at; name the concept map, and translate fewer codings at once", x.library.bounds.gathered)
	}
	return err
}

// unmapped adds what a group has for codes without an element (R4 ConceptMap.group.unmapped).
func (x *translator) unmapped(c *Coding, chain []*conceptMap, g *mapGroup) error {
	u := &g.unmapped
	switch u.mode {
	case "provided", "use-source-code":
		target := &mapTarget{code: c.Code, equivalence: cmp.Or(u.equivalence, "equivalent")}
		return x.add(chain, g, &mapElement{code: c.Code}, target)
	case "fixed":
		return x.add(chain, g, &mapElement{code: c.Code}, &mapTarget{code: u.code, display: u.display, equivalence: u.equivalence})
	case "other-map":
		return x.otherMap(c, chain, u.otherMap)
	}
	return nil
}

// otherMap continues in another concept map.
func (x *translator) otherMap(c *Coding, chain []*conceptMap, reference string) error {
	other, ok := x.library.conceptMap(reference)
	switch {
	case !ok:
		x.result.Missing = append(x.result.Missing, Missing{Kind: "ConceptMap", Canonical: reference})
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

// maxHandedOn bounds how often concept maps may refer to others in one request.
const maxHandedOn = 1000

// add adds a match, within the limits. One without a target says that there is no translation.
func (x *translator) add(chain []*conceptMap, g *mapGroup, e *mapElement, target *mapTarget) error {
	if limit := x.Limits.entries(); len(x.result.Matches) >= limit {
		return unprocessable("too-costly", "there are more than %d matches; name the concept map or the target, and translate fewer codings at once", limit)
	}
	m := Match{
		Equivalence: cmp.Or(equivalences[target.equivalence], target.equivalence),
		Products:    dependenciesOf(target.products), DependsOn: dependenciesOf(target.dependsOn),
		SourceComment: e.comment, TargetComment: target.comment,
	}
	from, to := &Coding{System: g.source, Code: e.code, Display: e.display}, &Coding{System: g.target, Code: target.code, Display: target.display}
	switch {
	case target.code == "":
		m.Equivalence = "unmatched"
	case x.Reverse && !x.inTermsOfR5: // R4's concept is the outcome, and a match says what that is to what was asked about
		m.Equivalence, m.Concept = cmp.Or(turned[m.Equivalence], m.Equivalence), from
	case x.Reverse: // R5's is what was asked about, and the ecosystem has the outcome beside it
		m.Concept, m.Source = to, from
	default:
		m.Concept = to
	}
	for _, by := range chain {
		m.Maps = append(m.Maps, by.canonical())
	}
	x.result.Matches = append(x.result.Matches, m)
	x.result.Found = x.result.Found || m.Equivalence != "unmatched" && m.Equivalence != "disjoint"
	x.written.dst = x.written.dst[:0]
	x.written.parts("match", m.parts()...)
	if x.size += len(x.written.dst); x.size > maxWritten {
		return tooLong()
	}
	return nil
}

func dependenciesOf(list []mapAttribute) (dependencies []Dependency) {
	for _, a := range list {
		dependencies = append(dependencies, Dependency{Element: a.property, Values: []Coding{{System: a.system, Code: a.value, Display: a.display}}})
	}
	return dependencies
}

// equivalences are R4's codes for relationships of R5, and for none.
var equivalences = map[string]string{
	"": "relatedto", "related-to": "relatedto", "not-related-to": "disjoint",
	"source-is-narrower-than-target": "wider", "source-is-broader-than-target": "narrower",
}

// turned are the equivalences that are others in the opposite direction.
var turned = map[string]string{"wider": "narrower", "narrower": "wider", "subsumes": "specializes", "specializes": "subsumes"}
