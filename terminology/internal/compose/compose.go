package compose

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/bitset"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/budget"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/parameters"
)

// Evaluator evaluates ValueSet.compose (R4 §4.9.5). It lists the codes of a value set or, if there is a probe, finds the
// includes that contain one code.
type Evaluator struct {
	definitions *definitions.Set
	rules       *Rules
	budget      *budget.Budget
	Probe       *Probe                  // code to search for; nil: list all codes
	Path        []*definitions.ValueSet // value sets being evaluated; each imports the next one
	evaluated   map[*definitions.ValueSet]*CodeList
	current     *CodeList            // definitions used by the last value set in Path
	excludeFrom *[]definitions.Entry // while evaluating excludes: entries from which codes are excluded
	filters     filters
}

// NewEvaluator returns an evaluator for the definitions in l.
func NewEvaluator(l *definitions.Set, r *Rules, b *budget.Budget) *Evaluator {
	c := &Evaluator{definitions: l, rules: r, budget: b, evaluated: make(map[*definitions.ValueSet]*CodeList)}
	c.filters = filters{spend: c.spend, regexStates: l.Bounds.RegexStates}
	return c
}

// Probe is a code to search for. Each include then yields at most one entry, and value sets are not expanded.
type Probe struct {
	Code              []byte                                                     // code to search for
	ChooseVersion     func(set *definitions.ConceptSet) (index uint32, use bool) // selects the code system version of an include
	VersionCount      int                                                        // number of versions returned by ChooseVersion
	SearchedValueSets []*definitions.ValueSet                                    // value sets searched so far
	MismatchReasons   []string                                                   // why filters did not match, if the code system provides reasons
}

// Evaluate returns the codes of a value set: the union of its includes minus its excludes. A value set that is imported
// repeatedly is evaluated only once.
func (c *Evaluator) Evaluate(vs *definitions.ValueSet) (*CodeList, error) {
	if x, ok := c.evaluated[vs]; ok && (c.excludeFrom == nil || len(x.GrammarBases) == 0 && len(x.UserAssignedOmitted) == 0) {
		return x, nil
	}
	if err := c.pushPath(vs); err != nil {
		return nil, err
	}
	x, outer := &CodeList{}, c.current
	c.current = x
	entries, err := c.evaluateCompose(vs)
	c.current, c.Path = outer, c.Path[:len(c.Path)-1]
	if err != nil {
		return nil, err
	}
	if x.Entries = entries; !x.dependsOnExcludes {
		c.evaluated[vs] = x
	}
	return x, nil
}

func (c *Evaluator) evaluateCompose(vs *definitions.ValueSet) ([]definitions.Entry, error) {
	include, exclude, err := c.sortedSets(vs)
	if err != nil {
		return nil, err
	}
	c.current.MayBeTree = canBeTree(vs)
	c.current.HasFilter = slices.ContainsFunc(include, func(set definitions.ConceptSet) bool { return len(set.Filters) > 0 })
	entries, err := c.union(include, "include")
	if err != nil || c.isDecided(entries) {
		return nil, err
	}
	if len(exclude) > 0 {
		excluded, err := c.evaluateExcludes(exclude, entries)
		if err != nil {
			return nil, err
		}
		if entries, err = c.subtract(entries, excluded); err != nil {
			return nil, err
		}
	}
	outermostTest := c.Probe != nil && len(c.Path) == 1 // inactive codes are included because the response reports their status
	if vs.ActiveOnly && !outermostTest {
		entries = slices.DeleteFunc(entries, c.IsInactive)
	}
	return entries, nil
}

// IsInactive reports whether an entry is inactive.
func (c *Evaluator) IsInactive(e definitions.Entry) bool {
	return c.definitions.FlagsOf(c.Locate(e))&codesystem.FlagInactive != 0
}

// subtract returns the entries without the excluded ones.
func (c *Evaluator) subtract(entries, excluded []definitions.Entry) ([]definitions.Entry, error) {
	if c.Probe != nil {
		entries = subtractProbed(entries, excluded, c.current.distinguishesVersions)
		return entries, c.spend(len(entries) * len(excluded) / budget.PlainBytesPerStep)
	}
	without := newCodeSet(c.definitions, c.current.distinguishesVersions)
	without.addAll(excluded)
	if err := c.spend(len(entries)); err != nil {
		return nil, err
	}
	entries = slices.DeleteFunc(entries, without.has)
	return entries, c.spend(without.otherVersions)
}

// sortedSets returns the includes and excludes of a value set. Of several code system versions, newer ones come first.
func (c *Evaluator) sortedSets(vs *definitions.ValueSet) (include, exclude []definitions.ConceptSet, err error) {
	if include, err = c.expandVersionWildcard(vs.Include); err != nil {
		return nil, nil, err
	}
	if exclude, err = c.expandVersionWildcard(vs.Exclude); err != nil {
		return nil, nil, err
	}
	c.current.chooseIdentity(include, exclude, c.rules.Versions.Match)
	if c.current.HasVersions {
		include = sortNewestFirst(include)
	}
	return include, exclude, nil
}

// chooseIdentity determines whether a code in two versions of a code system is treated as two codes. This is the case if the
// value set refers to several versions, unless versionsMatch is true or the value set is the difference of two versions.
func (t *traits) chooseIdentity(include, exclude []definitions.ConceptSet, match parameters.Choice) {
	versions := make(map[string]string)
	for _, set := range slices.Concat(include, exclude) {
		if version, ok := versions[set.System]; ok && version != set.Version && set.System != "" {
			t.HasVersions = true
		}
		versions[set.System] = set.Version
	}
	t.MergesVersions = t.HasVersions && (match == parameters.Yes || match == parameters.Unset && isVersionDifference(include, exclude))
	t.distinguishesVersions = t.HasVersions && !t.MergesVersions
}

// isVersionDifference reports whether a value set includes some versions of a single code system and excludes others.
func isVersionDifference(include, exclude []definitions.ConceptSet) bool {
	if len(include) == 0 || len(exclude) == 0 {
		return false
	}
	system := include[0].System
	other := func(set definitions.ConceptSet) bool { return set.System != system || set.Version == "" }
	return !slices.ContainsFunc(include, other) && !slices.ContainsFunc(exclude, other) &&
		!slices.ContainsFunc(include, func(in definitions.ConceptSet) bool {
			return slices.ContainsFunc(exclude, func(out definitions.ConceptSet) bool { return in.Version == out.Version })
		})
}

// sortNewestFirst sorts the includes of a code system by version, so that the newest version of a code wins.
func sortNewestFirst(sets []definitions.ConceptSet) []definitions.ConceptSet {
	return slices.SortedStableFunc(slices.Values(sets), func(a, b definitions.ConceptSet) int {
		if a.System != b.System || a.Version == "" || b.Version == "" {
			return 0
		}
		return cmp.Compare(0, definitions.CompareVersions(a.Version, b.Version))
	})
}

// canBeTree reports whether an expansion may be a tree. Its codes must come from the hierarchies of code systems, not from
// lists, imported value sets or combined filters.
func canBeTree(vs *definitions.ValueSet) bool {
	flat := func(set definitions.ConceptSet) bool {
		return set.IsEnumerated || len(set.ValueSets) > 0 || len(set.Filters) > 1
	}
	return !slices.ContainsFunc(vs.Include, flat) && !slices.ContainsFunc(vs.Exclude, flat)
}

// union evaluates includes or excludes in order and removes duplicates. name is "include" or "exclude".
func (c *Evaluator) union(sets []definitions.ConceptSet, name string) ([]definitions.Entry, error) {
	var entries []definitions.Entry
	seen := newCodeSet(c.definitions, c.current.distinguishesVersions)
	for i := range sets {
		part, err := c.evaluateConceptSet(&sets[i])
		if err != nil {
			return nil, prependExpression(err, "ValueSet.compose."+name, i)
		}
		if err := c.spend(len(part)); err != nil {
			return nil, err
		}
		if len(sets) == 1 && !sets[i].IsEnumerated {
			return part, nil // part contains no duplicates
		}
		if c.Probe != nil {
			entries = append(entries, part...) // occurrences in all versions are needed
			continue
		}
		for _, e := range part {
			if seen.has(e) {
				c.current.MayBeTree = false
				continue
			}
			seen.add(e)
			entries = append(entries, e)
		}
		if err := c.spend(seen.otherVersions); err != nil {
			return nil, err
		}
		seen.otherVersions = 0
	}
	return entries, nil
}

// evaluateConceptSet evaluates an include or exclude. It contains the codes of its system, restricted by concept or filter,
// that are in all of its value sets.
func (c *Evaluator) evaluateConceptSet(set *definitions.ConceptSet) ([]definitions.Entry, error) {
	if err := c.validate(set); err != nil {
		return nil, err
	}
	var entries []definitions.Entry
	var err error
	if set.System != "" {
		if entries, err = c.evaluateSystem(set); err != nil || c.isDecided(entries) {
			return nil, err
		}
	}
	for i, reference := range set.ValueSets {
		imported, err := c.expandImport(reference)
		if err != nil {
			return nil, err
		}
		if err := c.spend(len(imported.Entries) + len(entries)); err != nil {
			return nil, err
		}
		if i == 0 && set.System == "" {
			entries = slices.Clone(imported.Entries)
			if c.Probe != nil {
				entries = entries[:min(1, len(entries))]
			}
			c.current.HasVersions = c.current.HasVersions || imported.HasVersions
		} else {
			entries = c.intersect(entries, imported.Entries)
		}
		if c.isDecided(entries) {
			return nil, nil
		}
	}
	return entries, nil
}

// intersect returns the entries that are also in others.
func (c *Evaluator) intersect(entries, others []definitions.Entry) []definitions.Entry {
	if c.Probe != nil && len(others) > 0 { // all entries have the probe's code
		return entries
	}
	set := newCodeSet(c.definitions, false)
	set.addAll(others)
	return slices.DeleteFunc(entries, func(e definitions.Entry) bool { return !set.has(e) })
}

// expandImport evaluates an imported value set.
func (c *Evaluator) expandImport(reference string) (*CodeList, error) {
	vs, err := c.importedValueSet(reference)
	if err != nil {
		return nil, err
	}
	if c.Probe != nil {
		definitions.AppendUnique(&c.Probe.SearchedValueSets, vs)
		if err := c.spend(len(c.Probe.SearchedValueSets) / budget.PlainBytesPerStep); err != nil {
			return nil, err
		}
	}
	x, err := c.Evaluate(vs)
	if err != nil || c.Probe != nil { // dependencies are not recorded for a probe
		return x, err
	}
	c.current.add(x, vs)
	return x, c.spend((1 + len(x.ValueSets)) * len(c.current.ValueSets) / budget.PlainBytesPerStep)
}

// add adds an imported value set and its dependencies.
func (u *dependencies) add(x *CodeList, vs *definitions.ValueSet) {
	if vs.Container == nil {
		definitions.AppendUnique(&u.ValueSets, vs)
	}
	definitions.AppendUnique(&u.ValueSets, x.ValueSets...)
	definitions.AppendUnique(&u.CodeSystems, x.CodeSystems...)
	definitions.AppendUnique(&u.UncheckedSystems, x.UncheckedSystems...)
	definitions.AppendUnique(&u.AppliedParameters, x.AppliedParameters...)
	definitions.AppendUnique(&u.requiredSupplements, vs.Supplements...)
	definitions.AppendUnique(&u.GrammarBases, x.GrammarBases...)
	definitions.AppendUnique(&u.OpenGrammars, x.OpenGrammars...)
	definitions.AppendUnique(&u.UserAssignedOmitted, x.UserAssignedOmitted...)
	u.dependsOnExcludes = u.dependsOnExcludes || x.dependsOnExcludes
}

// spend charges for n examined codes. A value set in a request may repeat a costly include a hundred thousand times.
func (c *Evaluator) spend(n int) error {
	err := c.budget.Charge(n)
	if err == nil || !errors.Is(err, budget.ErrExceeded) {
		return err
	}
	return &outcome.Error{
		Status: http.StatusUnprocessableEntity, Code: "too-costly", MessageID: "VALUESET_TOO_COSTLY", Err: budget.ErrExceeded,
		Text: fmt.Sprintf("evaluating value set %s would examine more than %d codes", c.Path[0].Canonical(), c.definitions.Bounds.VisitedCodes),
	}
}

// isDecided reports whether a probe can stop: entries lacks the code, and it cannot be added anymore. Stopping early also means
// that errors such as a missing value set matter only if they can affect the result.
func (c *Evaluator) isDecided(entries []definitions.Entry) bool {
	return c.Probe != nil && len(entries) == 0
}

// Locate resolves the concept of an entry. If the concept has no number, it parses the probe's code.
func (c *Evaluator) Locate(e definitions.Entry) definitions.LocatedEntry {
	at := definitions.LocatedEntry{Entry: e}
	if e.Concept == definitions.ParsedConcept && c.Probe != nil {
		at.LocatedConcept, _ = c.definitions.Systems.CodeSystems[e.CodeSystem].Concepts.Locate(c.Probe.Code)
		return at
	}
	return c.definitions.Locate(e)
}

// pushPath appends a value set to c.Path. It returns an error if the path has a cycle or is too long.
func (c *Evaluator) pushPath(vs *definitions.ValueSet) error {
	if i := slices.Index(c.Path, vs); i >= 0 {
		return newCycleError(slices.Concat(c.Path[i:], []*definitions.ValueSet{vs}))
	}
	if len(c.Path) > c.definitions.Bounds.ImportDepth {
		return outcome.Unprocessable("too-costly", "value set %s imports value sets more than %d deep", c.Path[0].Canonical(), c.definitions.Bounds.ImportDepth)
	}
	if !vs.HasCompose {
		e := outcome.NewIncomplete("not-found", "value set %s has no compose, so its content is unknown", vs.DisplayName())
		if vs.PartialReason != "" {
			e.Text = fmt.Sprintf("value set %s has no compose, and its stored expansion is incomplete: %s", vs.DisplayName(), vs.PartialReason)
		}
		e.Missing = outcome.MissingOf("ValueSet", vs.URL, vs.Version)
		return e
	}
	if err := vs.CheckUsable("value set"); err != nil {
		return err
	}
	c.Path = append(c.Path, vs)
	return c.spend(len(vs.Include) + len(vs.Exclude))
}

func newCycleError(path []*definitions.ValueSet) error {
	names := make([]string, len(path))
	for i, vs := range path {
		names[i] = vs.Canonical()
	}
	return outcome.New(http.StatusUnprocessableEntity, "processing", "vs-invalid", "VALUESET_CIRCULAR_REFERENCE",
		"value sets import each other: "+strings.Join(names, " -> "))
}

// validate returns an error if an include violates R4's invariants vsd-1 to vsd-3.
func (c *Evaluator) validate(set *definitions.ConceptSet) error {
	vs := c.Path[len(c.Path)-1]
	among := c.rules.Versions.Cost() + len(c.definitions.Systems.Versions(set.System)) + vs.SumOfContainers(func(vs *definitions.ValueSet) int { return len(vs.CodeSystems) })
	if err := c.spend(1 + among); err != nil {
		return err
	}
	name := vs.Canonical()
	switch {
	case set.System == "" && len(set.ValueSets) == 0:
		return outcome.Unprocessable("invalid", "value set %s has an include with neither system nor valueSet", name)
	case set.System == "" && (set.IsEnumerated || len(set.Filters) > 0):
		return outcome.Unprocessable("invalid", "value set %s has an include with concept or filter but no system", name)
	case set.IsEnumerated && len(set.Filters) > 0:
		return outcome.Unprocessable("invalid", "value set %s has an include with both concept and filter", name)
	case strings.HasPrefix(set.System, "#") && c.definitions.Systems.ContainedCodeSystem(vs, set.System, "") == definitions.None:
		return outcome.NewIncomplete("not-found", "value set %s includes the code system %s, which it does not contain", name, set.System)
	}
	return nil
}

// evaluateSystem evaluates an include, except for its imported value sets.
func (c *Evaluator) evaluateSystem(set *definitions.ConceptSet) ([]definitions.Entry, error) {
	index, version, use, err := c.selectCodeSystem(set)
	if err != nil || !use {
		return nil, err
	}
	var cs *definitions.CodeSystem // nil if the concepts are not loaded
	if index != definitions.None && c.definitions.Systems.CodeSystems[index].Content.HasConcepts() {
		cs = c.definitions.Systems.CodeSystems[index]
		if err := cs.CheckUsable("code system"); err != nil {
			return nil, err
		}
		definitions.AppendUnique(&c.current.CodeSystems, index)
	}
	if err := c.spend(len(c.current.CodeSystems) / budget.PlainBytesPerStep); err != nil {
		return nil, err
	}
	switch {
	case c.Probe != nil:
		return c.probeSystem(set, cs, index)
	case set.IsEnumerated:
		if cs == nil {
			definitions.AppendUnique(&c.current.UncheckedSystems, outcome.Canonical(set.System, version))
		}
		return c.enumeratedEntries(set, cs, index)
	case cs == nil:
		return nil, c.definitions.Systems.MissingCodeSystemError(set.System, version)
	case cs.Concepts.List == nil, cs.CommonCodes != "" && (c.excludeFrom != nil || len(set.ValueSets) > 0):
		g := grammarInclude{evaluator: c, set: set, index: index, cs: cs}
		return g.entries()
	}
	return c.evaluateList(set, index)
}

// evaluateList returns the concepts of an include if the code system enumerates its concepts.
func (c *Evaluator) evaluateList(set *definitions.ConceptSet, index uint32) ([]definitions.Entry, error) {
	cs := c.definitions.Systems.CodeSystems[index]
	if cs.CommonCodes != "" {
		definitions.AppendUnique(&c.current.GrammarBases, GrammarBasis{CodeSystem: index})
	}
	if cs.Compositional && c.excludeFrom == nil && !slices.Contains(set.Filters, withoutExpressions) {
		definitions.AppendUnique(&c.current.OpenGrammars, OpenGrammar{CodeSystem: index, HasFilter: len(set.Filters) > 0})
	}
	entries, err := c.selectConcepts(set, index)
	if err != nil || !c.hidesUserAssigned(set, cs) {
		return entries, err
	}
	definitions.AppendUnique(&c.current.UserAssignedOmitted, index)
	return slices.DeleteFunc(entries, func(e definitions.Entry) bool {
		_, _, flags := cs.Concepts.Concept(codesystem.ConceptAt(e.Concept))
		return flags&codesystem.FlagUserAssigned != 0
	}), c.spend(len(entries))
}

// withoutExpressions is the filter that excludes the expressions of a compositional code system (Using SNOMED CT with HL7
// Standards, R4 §4.2.3).
var withoutExpressions = definitions.Filter{Property: "expressions", Op: "=", Value: "false"}

// hidesUserAssigned reports whether an include omits user-assigned codes, which are meaningless until a user defines them.
// Excludes, includes that import value sets, and filters on the property user-assigned do not omit them.
func (c *Evaluator) hidesUserAssigned(set *definitions.ConceptSet, cs *definitions.CodeSystem) bool {
	if !slices.ContainsFunc(cs.Concepts.Filterable.Properties(), func(p codesystem.Property) bool { return p.IsStandard("user-assigned") }) {
		return false
	}
	if c.excludeFrom != nil {
		c.current.dependsOnExcludes = true
		return false
	}
	return len(set.ValueSets) == 0 && !slices.ContainsFunc(set.Filters, func(f definitions.Filter) bool { return f.Property == "user-assigned" })
}

// selectConcepts returns all concepts of a code system, or those that match the filters of an include.
func (c *Evaluator) selectConcepts(set *definitions.ConceptSet, index uint32) ([]definitions.Entry, error) {
	cs := c.definitions.Systems.CodeSystems[index]
	if len(set.Filters) > 0 {
		return c.filters.entries(cs, index, set.Filters)
	}
	entries := make([]definitions.Entry, cs.Concepts.Len())
	for concept := range entries {
		entries[concept] = definitions.Entry{CodeSystem: index, Concept: uint32(concept)}
	}
	return entries, nil
}

// entries returns the concepts that match the filters of an include, in the order of the code system.
func (fs *filters) entries(cs *definitions.CodeSystem, index uint32, list []definitions.Filter) ([]definitions.Entry, error) {
	selected, err := fs.matchAll(cs, list)
	if err != nil {
		return nil, err
	}
	entries := make([]definitions.Entry, 0, selected.Count())
	selected.Each(func(concept uint32) {
		entries = append(entries, definitions.Entry{CodeSystem: index, Concept: concept})
	})
	return entries, nil
}

// enumeratedEntries returns the concepts that an include enumerates, except codes that a complete code system lacks.
func (c *Evaluator) enumeratedEntries(set *definitions.ConceptSet, cs *definitions.CodeSystem, index uint32) ([]definitions.Entry, error) {
	if cs != nil && cs.Concepts.List == nil {
		if err := c.spend(int(set.EndRow-set.FirstRow) * parseSteps); err != nil {
			return nil, err
		}
	}
	entries := make([]definitions.Entry, 0, set.EndRow-set.FirstRow)
	for row := set.FirstRow; row < set.EndRow; row++ {
		e := definitions.Entry{CodeSystem: index, Concept: definitions.None, Row: row}
		if cs != nil {
			table, at := c.definitions.TableOfRow(row)
			if c, ok := cs.Concepts.Locate(table.Texts.At(table.Code[at])); ok {
				e.Concept = cs.Number(c)
			} else if cs.IsComplete() && !set.FromStoredExpansion {
				continue
			}
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// parseSteps is the total cost in steps of processing a code of a grammar. The code is parsed several times.
const parseSteps = 100

// allVersions is the version that stands for all versions of a code system (R4 ValueSet.compose.include.version).
const allVersions = "*"

// expandVersionWildcard replaces each include or exclude with version * by one for each loaded version.
func (c *Evaluator) expandVersionWildcard(sets []definitions.ConceptSet) ([]definitions.ConceptSet, error) {
	if !slices.ContainsFunc(sets, func(set definitions.ConceptSet) bool { return set.Version == allVersions }) {
		return sets, nil
	}
	var list []definitions.ConceptSet
	for _, set := range sets {
		if set.Version != allVersions || c.definitions.Systems.ContainedCodeSystem(c.Path[len(c.Path)-1], set.System, set.Version) != definitions.None {
			list = append(list, set)
			continue
		}
		versions := loadedVersions(c.definitions, set.System, cmp.Or(c.Path[len(c.Path)-1].LockedDate, c.rules.Date))
		if err := c.spend(8 * len(versions)); err != nil {
			return nil, err
		}
		for _, version := range versions {
			set.Version = version
			list = append(list, set)
		}
	}
	return list, nil
}

// loadedVersions returns the loaded versions of a code system that have concepts. If date is set, it returns only versions that
// existed on that date. If there are none, it returns the empty version.
func loadedVersions(l *definitions.Set, url, date string) []string {
	var versions []string
	if id, ok := l.Systems.SystemID(url); ok {
		for _, index := range l.Systems.List[id].Versions {
			if cs := l.Systems.CodeSystems[index]; cs.Content.HasConcepts() && (date == "" || definitions.ExistedOn(cs.Date, date)) {
				versions = append(versions, cs.Version)
			}
		}
	}
	if len(versions) == 0 {
		return []string{""}
	}
	return versions
}

// codeSet is a set of codes. It distinguishes versions of code systems only if byVersion is set. Numbered concepts are stored
// as bits, other codes as text.
type codeSet struct {
	library       *definitions.Set
	byVersion     bool
	concepts      map[uint32]bitset.Set // bits of concepts by code system
	unnumbered    map[unnumberedCode]struct{}
	otherVersions int // number of additional code system versions searched
}

// unnumberedCode is a code without a concept number.
type unnumberedCode struct {
	system uint32
	code   string
}

// newCodeSet must be small enough to be inlined, which keeps the set on the stack.
func newCodeSet(d *definitions.Set, byVersion bool) *codeSet {
	return &codeSet{library: d, byVersion: byVersion, concepts: make(map[uint32]bitset.Set)}
}

func (s *codeSet) addAll(entries []definitions.Entry) {
	for _, e := range entries {
		s.add(e)
	}
}

func (s *codeSet) add(e definitions.Entry) {
	if !e.HasConceptNumber() {
		s.addText(e)
		return
	}
	concepts, ok := s.concepts[e.CodeSystem]
	if !ok {
		concepts = bitset.New(s.library.Systems.CodeSystems[e.CodeSystem].Concepts.Len())
		s.concepts[e.CodeSystem] = concepts
	}
	concepts.Add(e.Concept)
}

// addText adds the code of an entry as text, which equals the same code in any other code system with the same URL.
func (s *codeSet) addText(e definitions.Entry) {
	if s.unnumbered == nil {
		s.unnumbered = make(map[unnumberedCode]struct{})
	}
	s.unnumbered[s.unnumberedCode(e)] = struct{}{}
}

func (s *codeSet) has(e definitions.Entry) bool {
	if e.HasConceptNumber() {
		if concepts, ok := s.concepts[e.CodeSystem]; ok && concepts.Has(e.Concept) {
			return true
		}
	}
	if len(s.unnumbered) > 0 {
		if _, ok := s.unnumbered[s.unnumberedCode(e)]; ok {
			return true
		}
	}
	return !s.byVersion && s.hasInOtherVersion(e)
}

// hasInOtherVersion reports whether the set contains an entry's code in another version of the code system.
func (s *codeSet) hasInOtherVersion(e definitions.Entry) bool {
	versions := s.library.Systems.List[s.library.SystemOf(e)].Versions
	s.otherVersions += len(versions) - 1
	for _, version := range versions {
		concepts, ok := s.concepts[version]
		if !ok || e.HasConceptNumber() && version == e.CodeSystem {
			continue
		}
		if c, ok := s.library.Systems.CodeSystems[version].Concepts.Locate(s.library.Code(e)); ok && c.Code == nil && concepts.Has(c.Number) {
			return true
		}
	}
	return false
}

func (s *codeSet) unnumberedCode(e definitions.Entry) unnumberedCode {
	return unnumberedCode{system: s.library.SystemOf(e), code: string(s.library.Code(e))}
}

// Compare returns the codes in both lists, in the order of the first one, and those in only one of them. A code is the same in
// all versions of its code system unless isVersioned reports that versions of the code system matter.
func Compare(d *definitions.Set, lists [2][]definitions.Entry, isVersioned func(*definitions.CodeSystem) bool, b *budget.Budget) (common []definitions.Entry, only [2][]definitions.Entry, err error) {
	if err := b.Charge(2 * (len(lists[0]) + len(lists[1]))); err != nil {
		return nil, only, err
	}
	sets := [2]*codeSet{newCodeSet(d, false), newCodeSet(d, false)}
	has := func(i int, e definitions.Entry) bool {
		sets[i].byVersion = e.CodeSystem != definitions.None && isVersioned(d.Systems.CodeSystems[e.CodeSystem])
		return sets[i].has(e)
	}
	for i, list := range lists {
		for _, e := range list {
			if has(i, e) {
				continue
			}
			only[i] = append(only[i], e)
			if e.HasConcept() && d.Systems.IsContained(e.CodeSystem) { // each value set contains its own copy
				sets[i].addText(e)
			} else {
				sets[i].add(e)
			}
		}
	}
	common = slices.DeleteFunc(slices.Clone(only[0]), func(e definitions.Entry) bool { return !has(1, e) })
	for i := range only {
		only[i] = slices.DeleteFunc(only[i], func(e definitions.Entry) bool { return has(1-i, e) })
	}
	return common, only, b.Charge(sets[0].otherVersions + sets[1].otherVersions)
}
