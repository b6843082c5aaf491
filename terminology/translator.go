package terminology

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/budget"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/parameters"
)

// translator looks up what a concept is in other code systems.
type translator struct {
	asked    *Translation
	library  *definitions.Set
	budget   *budget.Budget
	told     dependencies
	result   *TranslationResult
	written  parameters.Writer // the last match
	size     int               // of the matches, in bytes of JSON
	handed   int               // how often a concept map referred to another
	messages []string
}

func (x *translator) end() *TranslationResult {
	r := x.result
	if !r.Found && len(x.asked.Codings) > 0 {
		x.messages = append(x.messages, fmt.Sprintf("no translation is known for the code '%s' of system '%s'", x.asked.Codings[0].Code, x.asked.Codings[0].System))
	}
	r.Message = strings.Join(x.messages, "; ")
	switch {
	case r.Found:
		r.Missing = nil
	case r.Missing == nil && len(r.Matches) == 0 && x.asked.ConceptMap == nil && !x.asked.isNamed():
		r.Missing = []outcome.Missing{{Kind: "ConceptMap"}} // any concept map could have it
	}
	return r
}

// inMap adds the translations of the last concept map of a chain, in which each refers to the next.
func (x *translator) inMap(c *parameters.Coding, chain []*definitions.ConceptMap) error {
	m := chain[len(chain)-1]
	if err := x.spend(len(m.Groups)); err != nil {
		return err
	}
	mapped := map[string]bool{} // the target systems that have a translation
	for i := range m.Groups {
		g := &m.Groups[i]
		if !x.asked.isAbout(g, c) {
			continue
		}
		said, err := x.inGroup(c, chain, g)
		if err != nil {
			return err
		}
		mapped[g.Target] = mapped[g.Target] || said
	}
	for i := range m.Groups {
		if g := &m.Groups[i]; !x.asked.Reverse && g.Unmapped.Mode != "" && !mapped[g.Target] && x.asked.isAbout(g, c) {
			if err := x.unmapped(c, chain, g); err != nil {
				return err
			}
		}
	}
	return nil
}

// inGroup adds the translations of a group, and reports whether it has any for the code.
func (x *translator) inGroup(c *parameters.Coding, chain []*definitions.ConceptMap, g *definitions.MapGroup) (said bool, err error) {
	for i := range g.Elements {
		e := &g.Elements[i]
		if err := x.spend(1 + len(e.Targets)); err != nil {
			return said, err
		}
		for k := range e.Targets {
			target := &e.Targets[k]
			code := e.Code
			if x.asked.Reverse {
				code = target.Code
			}
			if code == c.Code && code != "" && (x.asked.Reverse || !x.told.contradict(target)) {
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
	err := x.budget.Spend(n)
	if errors.Is(err, budget.ErrSpent) {
		return outcome.Unprocessable("too-costly", "more than %d targets are looked at; name the concept map, and translate fewer codings at once", x.library.Bounds.Gathered)
	}
	return err
}

// unmapped adds what a group has for codes without an element (R4 ConceptMap.group.unmapped).
func (x *translator) unmapped(c *parameters.Coding, chain []*definitions.ConceptMap, g *definitions.MapGroup) error {
	u := &g.Unmapped
	switch u.Mode {
	case "provided", "use-source-code":
		target := &definitions.MapTarget{Code: c.Code, Equivalence: cmp.Or(u.Equivalence, "equivalent")}
		return x.add(chain, g, &definitions.MapElement{Code: c.Code}, target)
	case "fixed":
		return x.add(chain, g, &definitions.MapElement{Code: c.Code}, &definitions.MapTarget{Code: u.Code, Display: u.Display, Equivalence: u.Equivalence})
	case "other-map":
		return x.otherMap(c, chain, u.OtherMap)
	}
	return nil
}

// otherMap continues in another concept map.
func (x *translator) otherMap(c *parameters.Coding, chain []*definitions.ConceptMap, reference string) error {
	other, ok := x.library.Maps.ConceptMap(reference)
	switch {
	case !ok:
		x.result.Missing = append(x.result.Missing, outcome.Missing{Kind: "ConceptMap", Canonical: reference})
		x.messages = append(x.messages, fmt.Sprintf("the concept map %s, which %s hands on to, is not here", reference, chain[len(chain)-1].Canonical()))
		return nil
	case slices.Contains(chain, other):
		var names []string
		for _, m := range append(chain, other) {
			names = append(names, m.Canonical())
		}
		return outcome.New(http.StatusUnprocessableEntity, "processing", "", "", "concept maps hand on to each other: "+strings.Join(names, " -> "))
	}
	if x.handed++; x.handed > maxHandedOn {
		return outcome.Unprocessable("too-costly", "concept maps hand on to each other more than %d times", maxHandedOn)
	}
	return x.inMap(c, append(chain, other))
}

// maxHandedOn bounds how often concept maps may refer to others in one request.
const maxHandedOn = 1000

// add adds a match, within the limits. One without a target says that there is no translation.
func (x *translator) add(chain []*definitions.ConceptMap, g *definitions.MapGroup, e *definitions.MapElement, target *definitions.MapTarget) error {
	if limit := x.asked.Limits.Most(); len(x.result.Matches) >= limit {
		return outcome.Unprocessable("too-costly", "there are more than %d matches; name the concept map or the target, and translate fewer codings at once", limit)
	}
	m := Match{
		Equivalence: cmp.Or(definitions.Equivalences[target.Equivalence], target.Equivalence),
		Products:    dependenciesOf(target.Products), DependsOn: dependenciesOf(target.DependsOn),
		SourceComment: e.Comment, TargetComment: target.Comment,
	}
	from, to := &parameters.Coding{System: g.Source, Code: e.Code, Display: e.Display}, &parameters.Coding{System: g.Target, Code: target.Code, Display: target.Display}
	switch {
	case target.Code == "":
		m.Equivalence = "unmatched"
	case x.asked.Reverse && !x.asked.InTermsOfR5: // R4's concept is the outcome, and a match says what that is to what was asked about
		m.Equivalence, m.Concept = cmp.Or(turned[m.Equivalence], m.Equivalence), from
	case x.asked.Reverse: // R5's is what was asked about, and the ecosystem has the outcome beside it
		m.Concept, m.Source = to, from
	default:
		m.Concept = to
	}
	for _, by := range chain {
		m.Maps = append(m.Maps, by.Canonical())
	}
	x.result.Matches = append(x.result.Matches, m)
	x.result.Found = x.result.Found || m.Equivalence != "unmatched" && m.Equivalence != "disjoint"
	x.written.Dst = x.written.Dst[:0]
	x.written.Parts("match", m.parts()...)
	if x.size += len(x.written.Dst); x.size > outcome.MaxWritten {
		return outcome.TooLong()
	}
	return nil
}

func dependenciesOf(list []definitions.MapAttribute) (dependencies []Dependency) {
	for _, a := range list {
		dependencies = append(dependencies, Dependency{Element: a.Property, Values: []parameters.Coding{{System: a.System, Code: a.Value, Display: a.Display}}})
	}
	return dependencies
}

// turned are the equivalences that are others in the opposite direction.
var turned = map[string]string{"wider": "narrower", "narrower": "wider", "subsumes": "specializes", "specializes": "subsumes"}

// Translate answers ConceptMap/$translate: what a concept is in other code systems. It fails as [Library.Expand] does;
// a code without a translation is not an error.
func (l *Library) Translate(ctx context.Context, q Translation) (*TranslationResult, error) {
	maps, err := applicable(&l.set.Maps, &q)
	if err != nil {
		return nil, err
	}
	if len(maps) == 0 && q.isNamed() {
		name := outcome.Canonical(q.URL, q.Version)
		if q.ID != "" {
			name = "with the id " + q.ID
		}
		return nil, outcome.Unknown("", "concept map "+name+" is not known")
	}
	x := &translator{asked: &q, library: l.set, budget: budget.Of(ctx, l.set.Bounds.Gathered), told: newDependencies(q.Dependencies), result: new(TranslationResult)}
	x.written = *parameters.NewWriter(nil)
	x.size = len(x.written.Dst)
	for i := range q.Codings {
		for _, m := range maps {
			if err := x.inMap(&q.Codings[i], []*definitions.ConceptMap{m}); err != nil {
				return nil, err
			}
		}
		if l.set.Use(func() { err = x.convert(&q.Codings[i], l.expansions) }); err != nil {
			return nil, err
		}
	}
	return x.end(), nil
}

// applicable returns the concept maps to search: the one with the id, the one in the request, or those of the library.
func applicable(t *definitions.MapTable, q *Translation) (list []*definitions.ConceptMap, err error) {
	if q.ID != "" {
		if m, ok := t.ByID(q.ID); ok && q.applies(m) {
			list = append(list, m)
		}
		return list, nil
	}
	if q.ConceptMap != nil {
		m, err := definitions.InlineConceptMap(q.ConceptMap)
		return []*definitions.ConceptMap{m}, err
	}
	for _, maps := range t.Lists {
		for _, m := range maps {
			if q.applies(m) {
				list = append(list, m)
			}
		}
	}
	return list, nil
}
