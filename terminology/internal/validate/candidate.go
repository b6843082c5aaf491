package validate

import (
	"cmp"
	"slices"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/budget"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/compose"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/parameters"
)

// candidate is an include that may contain a coding.
type candidate struct {
	versionChoice
	member *found
}

// candidateFinder finds the includes of a value set that may contain a coding.
type candidateFinder struct {
	library    *definitions.Set
	valueSet   *definitions.ValueSet // nil: validation is against the code system alone
	rules      *compose.Rules
	budget     *budget.Budget
	versions   versionChooser
	memberOnly bool
	imported   []*definitions.ValueSet // those searched
	mismatch   []string                // why the last coding does not meet filters
}

// candidates returns the includes that may contain a coding, or the code system if there is no value set.
func (v *candidateFinder) candidates(c *parameters.Coding) ([]candidate, error) {
	if v.valueSet == nil {
		list := []candidate{{versionChoice: v.versions.choose(c, "", v.rules.Date)}}
		if list[0].index == definitions.None {
			return list, nil
		}
		return list, v.library.Systems.CodeSystems[list[0].index].Usable("code system")
	}
	in := &includeSearch{finder: v, coding: c, evaluator: compose.NewEvaluator(v.library, v.rules, v.budget)}
	in.evaluator.Probe = &compose.Probe{Code: []byte(c.Code), Choose: in.choose}
	if err := in.evaluator.CheckImports(v.valueSet, make(map[*definitions.ValueSet]bool)); err != nil {
		return nil, err
	}
	members, err := in.evaluator.ValueSet(v.valueSet)
	if err != nil {
		return nil, err
	}
	v.imported, v.mismatch = in.evaluator.Probe.Imported, in.evaluator.Probe.Mismatch
	return in.list, in.place(members.Entries)
}

// includeSearch gathers the candidates while an evaluator looks for the coding.
type includeSearch struct {
	evaluator *compose.Evaluator
	finder    *candidateFinder
	coding    *parameters.Coding
	list      []candidate
}

// choose returns the version of the code system that an include means, and whether the coding may be in it.
func (in *includeSearch) choose(set *definitions.ConceptSet) (uint32, bool) {
	c, l, path := in.coding, in.finder.library, in.evaluator.Path
	within := path[len(path)-1]
	if index := l.Systems.ContainedCodeSystem(within, set.System, set.Version); index != definitions.None {
		cs := l.Systems.CodeSystems[index]
		in.list = append(in.list, candidate{versionChoice: versionChoice{index: index, matches: c.Version == "" || definitions.MatchesVersion(cs.Version, c.Version)}})
		return index, cs.URL == c.System
	}
	if set.System != c.System || in.finder.rules.Versions.Excludes(set.System, set.Version) {
		return l.Systems.CodeSystem(set.System, set.Version), set.System == c.System
	}
	choice := in.finder.versions.choose(c, set.Version, cmp.Or(within.LockedDate, in.finder.rules.Date))
	if set.Enumerated {
		choice.takeListed()
	}
	choice.open = choice.index == definitions.None && !set.Enumerated && !in.finder.memberOnly
	if !slices.ContainsFunc(in.list, func(o candidate) bool { return o.index == choice.index && len(o.notes) == len(choice.notes) }) {
		in.list = append(in.list, candidate{versionChoice: choice})
	}
	in.evaluator.Probe.Chosen = len(in.list)
	return choice.index, true
}

// place assigns the entries of the coding in the value set to their candidates.
func (in *includeSearch) place(members []definitions.Entry) error {
	if err := in.finder.budget.Spend(len(members) * len(in.list) / budget.PlainBytes); err != nil {
		return err
	}
	for _, e := range members {
		if at := slices.IndexFunc(in.list, func(o candidate) bool { return o.index == e.CodeSystem && o.member == nil }); at >= 0 {
			in.list[at].member = in.found(e)
		}
	}
	return nil
}

// found is where a value set has a coding: the entry that an expansion would have for it.
type found struct {
	definitions.LocatedEntry
	excluded bool // inactive, while inactive codes are left out
}

func (in *includeSearch) found(e definitions.Entry) *found {
	onlyActive := in.finder.valueSet.ActiveOnly || in.finder.rules.ActiveOnly == parameters.Yes
	return &found{LocatedEntry: in.evaluator.Locate(e), excluded: onlyActive && in.evaluator.IsInactive(e)}
}

// best returns the candidate of the highest rank, or without any the version of the code system that the coding names.
func (v *candidateFinder) best(c *parameters.Coding, list []candidate) (versionChoice, *found, error) {
	best, most := -1, -1
	for i := range list {
		n, err := v.rank(c, &list[i])
		if err != nil {
			return versionChoice{}, nil, err
		}
		if n > most {
			best, most = i, n
		}
	}
	if best < 0 {
		choice := versionChoice{index: v.versions.codeSystem(c.System, c.Version), matches: true}
		if versions := v.library.Systems.VersionsOf(c.System); choice.index == definitions.None && c.Version != "" && len(versions) > 0 {
			choice.add(unknownVersion(c, c.Version, versions))
			choice.unknown = outcome.Canonical(c.System, c.Version)
			choice.index = v.versions.codeSystem(c.System, "")
		}
		return choice, nil, nil
	}
	return list[best].versionChoice, list[best].member, nil
}

// rank is higher the better a candidate fits a coding: by version, membership and display, in this order.
func (v *candidateFinder) rank(c *parameters.Coding, o *candidate) (n int, err error) {
	if o.matches && !o.failed() {
		n += 8
	}
	if o.member == nil {
		return n, nil
	}
	if n += 2; !o.member.excluded {
		n += 4
	}
	texts := v.library.ShownTexts(nil, o.member.LocatedEntry, v.valueSet.Language, nil)
	if slices.ContainsFunc(texts, func(t codesystem.Text) bool { return equalDisplay(t.Value, c.Display) }) {
		n++
	}
	return n, v.budget.Compare(texts)
}
