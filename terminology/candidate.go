package terminology

import (
	"cmp"
	"slices"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
)

// candidate is an include that may have a coding.
type candidate struct {
	versionChoice
	member *found
}

// candidateFinder looks for the includes of a value set that may have a coding.
type candidateFinder struct {
	library    *Library
	valueSet   *valueSet // nil: the code system is the one place
	rules      *Rules
	budget     *budget
	versions   versionChooser
	memberOnly bool
	imported   []*valueSet // that were looked into
}

// find looks for a coding in the value set. Without a value set, the code system is the one place.
func (v *candidateFinder) find(c *Coding) ([]candidate, error) {
	if v.valueSet == nil {
		choice := v.versions.choose(c, "", v.rules.Date)
		if choice.index == none {
			return []candidate{{versionChoice: choice}}, nil
		}
		return []candidate{{versionChoice: choice}}, v.library.codeSystems[choice.index].usable("code system")
	}
	var list []candidate
	m := &membership{code: []byte(c.Code), places: make(map[*valueSet][]found), composer: composer{library: v.library, rules: v.rules, budget: v.budget}}
	m.choose = func(set *conceptSet) (uint32, bool) {
		if index := m.library.containedCodeSystem(m.path[len(m.path)-1], set.system, set.version); index != none {
			cs := m.library.codeSystems[index]
			list = append(list, candidate{versionChoice: versionChoice{index: index, matches: c.Version == "" || matchesVersion(cs.version, c.Version)}})
			return index, cs.url == c.System
		}
		if set.system != c.System || m.isExcludedSystem(set.system, set.version, none) {
			return m.library.codeSystem(set.system, set.version), set.system == c.System
		}
		choice := v.versions.choose(c, set.version, cmp.Or(m.path[len(m.path)-1].lockedDate, v.rules.Date))
		if set.enumerated {
			choice.takeListed()
		}
		choice.open = choice.index == none && !set.enumerated && !v.memberOnly
		if !slices.ContainsFunc(list, func(o candidate) bool { return o.index == choice.index && len(o.notes) == len(choice.notes) }) {
			list = append(list, candidate{versionChoice: choice})
		}
		m.chosen = len(list)
		return choice.index, true
	}
	m.used, m.seen = &codeList{}, make(map[*valueSet]bool)
	if err := m.checkImports(v.valueSet); err != nil {
		return nil, err
	}
	members, err := m.find(v.valueSet)
	if err != nil {
		return nil, err
	}
	v.imported = m.imported
	if err := m.budget.spend(len(members) * len(list) / plainBytes); err != nil {
		return nil, err
	}
	for i := range members {
		at := slices.IndexFunc(list, func(o candidate) bool { return o.index == members[i].index && o.member == nil })
		if at >= 0 {
			list[at].member = &members[i]
		}
	}
	return list, nil
}

// best chooses among the includes that may have a coding: one that has it in a version that fits, active where
// only active ones are left in, with the display that is given, if there is one; else one of a version that fits,
// else the first.
func (v *candidateFinder) best(c *Coding, list []candidate) (versionChoice, *found, error) {
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
		if versions := v.library.versionsOf(c.System); choice.index == none && c.Version != "" && len(versions) > 0 {
			choice.add(unknownVersion(c, c.Version, versions))
			choice.unknown = canonical(c.System, c.Version)
			choice.index = v.versions.codeSystem(c.System, "")
		}
		return choice, nil, nil
	}
	return list[best].versionChoice, list[best].member, nil
}

// rank says how good a candidate is.
func (v *candidateFinder) rank(c *Coding, o *candidate) (n int, err error) {
	if o.matches && !o.failed() {
		n += 8
	}
	if o.member == nil {
		return n, nil
	}
	if n += 2; !o.member.excluded {
		n += 4
	}
	texts := v.library.shownTexts(nil, o.member.entry, v.valueSet.language, nil)
	if slices.ContainsFunc(texts, func(t codesystem.Text) bool { return equalDisplay(t.Value, c.Display) }) {
		n++
	}
	return n, v.budget.compare(texts)
}
