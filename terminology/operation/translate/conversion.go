package translate

import (
	"cmp"
	"sort"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/compose"
	"github.com/caddy-fhir/caddy-fhir/terminology/parameters"
)

// conversionFactor is the element of a product that says by what to multiply a value to have it in another unit.
const conversionFactor = "https://github.com/caddy-fhir/caddy-fhir/terminology#conversion-factor"

// conversion is what a code of a code system that can convert is in others of the same.
type conversion struct {
	into     *translator
	expander compose.Expander
	cs       *definitions.CodeSystem
	from     codesystem.Concept
	code     string // of from, as it is asked for
}

// convert adds the codes of the value set that is asked for, or else those in common use, that measure the same as a
// coding. It has none if a concept map is named, or another code system or nothing is asked for.
func (x *translator) convert(c *parameters.Coding, cache *compose.CodeListCache) error {
	q, systems := x.asked, &x.library.Systems
	index := systems.CodeSystem(c.System, c.Version)
	scope := q.TargetScope
	if q.Reverse {
		scope = q.SourceScope
	}
	sameSystem := q.TargetSystem == c.System || q.TargetSystem == "" && scope != ""
	if !sameSystem || index == definitions.None || q.isNamed() || q.ConceptMap != nil {
		return nil
	}
	cs := systems.CodeSystems[index]
	if cs.Concepts.Converter == nil {
		return nil
	}
	vs, ok := x.library.AnyValueSet(cmp.Or(scope, cs.Common), "")
	if !ok {
		return nil
	}
	from, ok := cs.Concepts.Locate([]byte(c.Code))
	if !ok {
		x.messages = append(x.messages, cs.Concepts.Refuser.Refusal([]byte(c.Code)))
		return nil
	}
	expander := compose.Expander{Library: x.library, Cache: cache, Rules: new(compose.Rules), Budget: x.budget}
	return (&conversion{into: x, expander: expander, cs: cs, from: from, code: c.Code}).translate(vs)
}

// conversionSteps is the cost of a conversion for each byte of the two codes.
const conversionSteps = 20

// translate adds the codes of a value set that measure the same, those of the same meaning first.
func (x *conversion) translate(vs *definitions.ValueSet) error {
	list, err := x.expander.Codes(vs)
	if err != nil {
		return err
	}
	var found []definitions.MapTarget
	for _, e := range list.Entries {
		code := x.into.library.Code(e)
		if err := x.into.spend((len(x.code) + len(code)) * conversionSteps); err != nil {
			return err
		}
		if x.into.library.Systems.List[x.into.library.SystemOf(e)].URL != x.cs.URL {
			continue
		}
		to, ok := x.cs.Concepts.Locate(code)
		if !ok {
			continue
		}
		if target, ok := x.target(to); ok {
			found = append(found, target)
		}
	}
	sort.SliceStable(found, func(i, k int) bool {
		return found[i].Equivalence == "equivalent" && found[k].Equivalence != "equivalent"
	})
	group, asked := &definitions.MapGroup{Source: x.cs.URL, Target: x.cs.URL}, definitions.MapElement{Code: x.code}
	for i := range found {
		e, target := asked, found[i]
		if x.into.asked.Reverse { // what was found is on the source's side
			e.Code, e.Display, target.Code, target.Display = target.Code, target.Display, x.code, ""
		}
		if err := x.into.add(nil, group, &e, &target); err != nil {
			return err
		}
	}
	return nil
}

// target returns another code with its relation to the one that is asked for, if they measure the same.
func (x *conversion) target(other codesystem.Concept) (t definitions.MapTarget, ok bool) {
	from, to := x.from, other
	if x.into.asked.Reverse {
		from, to = to, from
	}
	factor, equal, ok := x.cs.Concepts.Converter.Convert(from, to)
	code, display, _ := x.cs.Concepts.Concept(other)
	t = definitions.MapTarget{Code: string(code), Display: string(display), Equivalence: "relatedto"}
	if equal {
		t.Equivalence = "equivalent"
	}
	if factor != "" {
		t.Products = []definitions.MapAttribute{{Property: conversionFactor, Value: factor}}
	}
	return t, ok
}
