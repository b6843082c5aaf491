package terminology

import (
	"cmp"
	"slices"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
)

// candidate is an include that may contain a coding.
type candidate struct {
	versionChoice
	member *found
}

// candidateFinder finds the includes of a value set that may contain a coding.
type candidateFinder struct {
	library    *Set
	valueSet   *valueSet // nil: validation is against the code system alone
	rules      *Rules
	budget     *budget
	versions   versionChooser
	memberOnly bool
	imported   []*valueSet // those searched
}

// candidates returns the includes that may contain a coding, or the code system if there is no value set.
func (v *candidateFinder) candidates(c *Coding) ([]candidate, error) {
	if v.valueSet == nil {
		list := []candidate{{versionChoice: v.versions.choose(c, "", v.rules.Date)}}
		if list[0].index == none {
			return list, nil
		}
		return list, v.library.codeSystems[list[0].index].usable("code system")
	}
	in := &includeSearch{finder: v, coding: c}
	in.membership = membership{
		code: []byte(c.Code), choose: in.choose, places: make(map[*valueSet][]found), seen: make(map[*valueSet]bool),
		composer: composer{library: v.library, rules: v.rules, budget: v.budget, used: &codeList{}},
	}
	if err := in.checkImports(v.valueSet); err != nil {
		return nil, err
	}
	members, err := in.find(v.valueSet)
	if err != nil {
		return nil, err
	}
	v.imported = in.imported
	return in.list, in.place(members)
}

// includeSearch gathers the candidates while membership searches a value set.
type includeSearch struct {
	membership
	finder *candidateFinder
	coding *Coding
	list   []candidate
}

// choose returns the version of the code system that an include means, and whether the coding may be in it.
func (in *includeSearch) choose(set *conceptSet) (uint32, bool) {
	c, within := in.coding, in.path[len(in.path)-1]
	if index := in.library.containedCodeSystem(within, set.system, set.version); index != none {
		cs := in.library.codeSystems[index]
		in.list = append(in.list, candidate{versionChoice: versionChoice{index: index, matches: c.Version == "" || matchesVersion(cs.version, c.Version)}})
		return index, cs.url == c.System
	}
	if set.system != c.System || in.isExcludedSystem(set.system, set.version, none) {
		return in.library.codeSystem(set.system, set.version), set.system == c.System
	}
	choice := in.finder.versions.choose(c, set.version, cmp.Or(within.lockedDate, in.rules.Date))
	if set.enumerated {
		choice.takeListed()
	}
	choice.open = choice.index == none && !set.enumerated && !in.finder.memberOnly
	if !slices.ContainsFunc(in.list, func(o candidate) bool { return o.index == choice.index && len(o.notes) == len(choice.notes) }) {
		in.list = append(in.list, candidate{versionChoice: choice})
	}
	in.chosen = len(in.list)
	return choice.index, true
}

// place assigns the places where the value set contains the coding to their candidates.
func (in *includeSearch) place(members []found) error {
	if err := in.budget.spend(len(members) * len(in.list) / plainBytes); err != nil {
		return err
	}
	for i := range members {
		if at := slices.IndexFunc(in.list, func(o candidate) bool { return o.index == members[i].index && o.member == nil }); at >= 0 {
			in.list[at].member = &members[i]
		}
	}
	return nil
}

// best returns the candidate of the highest rank, or without any the version of the code system that the coding names.
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

// rank is higher the better a candidate fits a coding: by version, membership and display, in this order.
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
	texts := v.library.shownTexts(nil, o.member.locatedEntry, v.valueSet.language, nil)
	if slices.ContainsFunc(texts, func(t codesystem.Text) bool { return equalDisplay(t.Value, c.Display) }) {
		n++
	}
	return n, v.budget.compare(texts)
}
