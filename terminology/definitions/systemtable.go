package definitions

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/parameters"
)

// SystemTable indexes code systems by URL and version. The table of an overlay includes the code systems of the base Set.
type SystemTable struct {
	CodeSystems      []*CodeSystem // all versions of all code systems
	List             []System      // code systems grouped by URL
	ids              layer[uint32] // indexes in List by URL
	byID             idTable[*CodeSystem]
	supplements      layer[[]uint32] // indexes of supplements by the URL of the supplemented code system
	byEntireValueSet layer[uint32]   // indexes of code systems by CodeSystem.valueSet
	byValue          []uint32        // indexes in List of sources that define a value set for each value of a property
	replaced         int             // number of code systems replaced by later ones
	fromRequest      map[uint32]bool // indexes of code systems sent with a request; nil if the table isn't part of a request overlay
}

// newOverlay returns an overlay of the table.
func (t *SystemTable) newOverlay(competes bool) SystemTable {
	o := SystemTable{
		CodeSystems: slices.Clone(t.CodeSystems), List: slices.Clone(t.List),
		ids: t.ids.newOverlay(competes), byID: t.byID.newOverlay(competes), supplements: t.supplements.newOverlay(competes), byEntireValueSet: t.byEntireValueSet.newOverlay(competes),
		byValue: slices.Clip(t.byValue),
	}
	if !competes {
		o.fromRequest = make(map[uint32]bool)
		maps.Copy(o.fromRequest, t.fromRequest)
	}
	return o
}

// System contains the versions of a code system.
type System struct {
	URL      string   // URL of the code system
	Versions []uint32 // indexes in SystemTable.CodeSystems, in loading order
	Current  uint32   // index of the version used if a reference has no version, or None
}

// internSystem returns the index of a URL in List. It adds the URL if necessary.
func (t *SystemTable) internSystem(url string) uint32 {
	id, ok := t.SystemID(url)
	if !ok {
		id = uint32(len(t.List))
		t.List = append(t.List, System{URL: url, Current: None})
		t.ids.put(url, id)
	}
	return id
}

// SystemID returns the index of a URL in List, and false if the URL is unknown.
func (t *SystemTable) SystemID(url string) (uint32, bool) { return t.ids.get(url) }

// AddCodeSystem adds a code system. It replaces an existing one with the same URL and version; for a built-in one, only if
// [contentMode.replaces] permits it.
func (t *SystemTable) AddCodeSystem(cs *CodeSystem) {
	if cs.URL == "" {
		return
	}
	cs.systemIndex = t.internSystem(cs.URL)
	s := &t.List[cs.systemIndex]
	index := uint32(len(t.CodeSystems))
	versions := slices.Clone(s.Versions) // an overlay shares the slice with its base
	same := slices.IndexFunc(versions, func(id uint32) bool { return t.CodeSystems[id].Version == cs.Version })
	if same >= 0 && !cs.isBuiltIn && t.CodeSystems[versions[same]].isBuiltIn && !cs.Content.replaces(t.CodeSystems[versions[same]].Content) {
		return
	}
	if same >= 0 {
		index = versions[same]
		t.byID.unregister(t.CodeSystems[index])
		versions = slices.Delete(versions, same, same+1)
		t.CodeSystems[index] = cs
		t.replaced++
	} else {
		t.CodeSystems = append(t.CodeSystems, cs)
	}
	t.byID.register(cs)
	if t.fromRequest != nil {
		t.fromRequest[index] = true
	}
	s.Versions = append(versions, index)
	s.Current = t.currentVersion(s.Versions)
	t.registerLinks(cs, index)
}

// registerLinks registers a supplement and the value sets that a code system implies.
func (t *SystemTable) registerLinks(cs *CodeSystem, index uint32) {
	url, _ := outcome.SplitCanonical(cs.supplements)
	if list, _ := t.supplements.competitor(url); cs.Content == ContentSupplement && url != "" && !slices.Contains(list, index) {
		t.supplements.put(url, append(slices.Clip(list), index))
	}
	if cs.entireValueSet != "" {
		t.byEntireValueSet.put(cs.entireValueSet, index)
	}
	if cs.byValue != "" {
		AppendUnique(&t.byValue, cs.systemIndex)
	}
}

// hasReplacement reports whether any version of a code system replaces a built-in code system with the given content.
func (t *SystemTable) hasReplacement(url string, builtIn contentMode) bool {
	return slices.ContainsFunc(t.Versions(url), func(id uint32) bool { return t.CodeSystems[id].Content.replaces(builtIn) })
}

// withoutReplaced returns either the versions that replace the built-in one, or only the built-in one if there are none.
func (t *SystemTable) withoutReplaced(versions []uint32) []uint32 {
	at := slices.IndexFunc(versions, func(id uint32) bool {
		return t.CodeSystems[id].isBuiltIn && t.CodeSystems[id].Content != ContentLookupOnly
	})
	if at < 0 {
		return versions
	}
	content := t.CodeSystems[versions[at]].Content
	others := slices.DeleteFunc(slices.Clone(versions), func(id uint32) bool {
		return t.CodeSystems[id].isBuiltIn || !t.CodeSystems[id].Content.replaces(content)
	})
	if len(others) == 0 {
		return versions[at : at+1]
	}
	return others
}

// currentVersion returns the version for references without a version: the latest version with concepts, with R4's outdated
// copies ranked last. If two versions are incomparable, the last one loaded wins.
func (t *SystemTable) currentVersion(versions []uint32) uint32 {
	versions = t.withoutReplaced(versions)
	known := slices.ContainsFunc(versions, func(id uint32) bool { return t.CodeSystems[id].isBuiltIn })
	own := slices.DeleteFunc(slices.Clone(versions), func(id uint32) bool {
		return !t.IsFromRequest(id) || known && !t.CodeSystems[id].Content.HasConcepts()
	})
	if len(own) > 0 {
		versions = own
	}
	current := versions[0]
	for _, id := range versions[1:] {
		old, candidate := t.CodeSystems[current], t.CodeSystems[id]
		had, has := old.Content.HasConcepts(), candidate.Content.HasConcepts()
		if has && !had || has == had && candidate.supersedes(old) {
			current = id
		}
	}
	return current
}

// CodeSystem returns the index of a code system by URL and optional version, which may contain wildcards. It returns None if
// there is no such code system.
func (t *SystemTable) CodeSystem(url, version string) uint32 {
	id, ok := t.SystemID(url)
	if !ok {
		return None
	}
	if version == "" {
		return t.List[id].Current
	}
	found := None
	for _, index := range t.List[id].Versions {
		candidate := t.CodeSystems[index]
		if candidate.Version == version {
			return index
		}
		if MatchesVersion(candidate.Version, version) && (found == None || candidate.supersedes(t.CodeSystems[found])) {
			found = index
		}
	}
	return found
}

// Versions returns the indexes of all versions of a code system, in loading order.
func (t *SystemTable) Versions(url string) []uint32 {
	if id, ok := t.SystemID(url); ok {
		return t.List[id].Versions
	}
	return nil
}

// ByID returns the code system with an ID.
func (t *SystemTable) ByID(id string) (*CodeSystem, bool) { return t.byID.get(id) }

// LoadedVersions returns the versions of a code system that are loaded with concepts, in sorted order.
func (t *SystemTable) LoadedVersions(url string) []string {
	var versions []string
	for _, index := range t.Versions(url) {
		if cs := t.CodeSystems[index]; cs.Version != "" && cs.Content.HasConcepts() {
			versions = append(versions, cs.Version)
		}
	}
	slices.SortFunc(versions, CompareVersions)
	return versions
}

// MissingCodeSystemError returns the error for a code system that is not loaded, or has no loaded concepts.
func (t *SystemTable) MissingCodeSystemError(url, version string) error {
	if index := t.CodeSystem(url, version); index != None {
		cs := t.CodeSystems[index]
		e := outcome.NewIncomplete("business-rule", "the content of code system %s is not loaded (content mode %q)", cs.Canonical(), cs.Content)
		if cs.Content == ContentLookupOnly {
			e.Text = fmt.Sprintf("no edition of code system %s is loaded; the built-in %s can look up codes but not list them: load an edition", url, cs.Name)
		}
		e.TxCode, e.Missing = "invalid", outcome.MissingOf("CodeSystem", url, version)
		return e
	}
	text, id := fmt.Sprintf("A definition for CodeSystem '%s' could not be found, so the value set cannot be expanded", url), "UNKNOWN_CODESYSTEM_EXP"
	if version != "" {
		id = "UNKNOWN_CODESYSTEM_VERSION_EXP"
		text = fmt.Sprintf("A definition for CodeSystem '%s' version '%s' could not be found, so the value set cannot be expanded. %s",
			url, version, ValidVersions(t.LoadedVersions(url)))
	}
	e := outcome.New(http.StatusUnprocessableEntity, "not-found", "not-found", id, text)
	e.Err, e.Missing = outcome.ErrIncomplete, outcome.MissingOf("CodeSystem", url, version)
	return e
}

// ValidVersions returns the text of HL7's message that lists the loaded versions of a code system.
func ValidVersions(versions []string) string {
	switch n := len(versions); n {
	case 0:
		return "No versions of this code system are known"
	case 1:
		return "Valid versions: " + versions[0]
	default:
		return "Valid versions: " + strings.Join(versions[:n-1], ", ") + " or " + versions[n-1]
	}
}

// CodeSystemAt returns the index of the latest version of a code system as of a date, or None if the code system is unknown. It
// returns an error if only later versions are loaded.
func (t *SystemTable) CodeSystemAt(url, date string) (uint32, error) {
	id, ok := t.SystemID(url)
	if !ok {
		return None, nil
	}
	old := slices.DeleteFunc(slices.Clone(t.List[id].Versions), func(index uint32) bool { return !ExistedOn(t.CodeSystems[index].Date, date) })
	if len(old) == 0 {
		return None, NewOnlyLaterVersionsError("code system", url, date)
	}
	return t.currentVersion(old), nil
}

// IsFromRequest reports whether a code system was sent with the request.
func (t *SystemTable) IsFromRequest(index uint32) bool { return t.fromRequest[index] }

// hl7TerminologyPrefix is the URL prefix of the code systems that HL7 maintains in the package hl7.terminology. R4 contains
// old copies with R4 or HL7 V2 version numbers, which cannot be compared with those of the package.
const hl7TerminologyPrefix = "http://terminology.hl7.org/"

// markOutdatedCopies marks the loaded code systems with hl7TerminologyPrefix as outdated. Value sets are not marked: many value
// sets of the package refer to a code system version that the package no longer includes.
func (t *SystemTable) markOutdatedCopies() {
	for _, cs := range t.CodeSystems {
		cs.isOutdatedCopy = strings.HasPrefix(cs.URL, hl7TerminologyPrefix)
	}
}

// Concept returns the concept that a coding refers to.
func (t *SystemTable) Concept(c *parameters.Coding) (e LocatedEntry, err error) {
	if c.System == "" || c.Code == "" {
		return e, outcome.BadRequest("required", "the parameters code and system are required, or a coding with both")
	}
	index := t.CodeSystem(c.System, c.Version)
	if index == None || !t.CodeSystems[index].Content.HasConcepts() {
		reason := outcome.New(http.StatusNotFound, "not-found", "not-found", "UNKNOWN_CODESYSTEM",
			fmt.Sprintf("A definition for CodeSystem '%s' could not be found, so the code cannot be looked up", outcome.Canonical(c.System, c.Version)))
		reason.Err, reason.Missing = outcome.ErrUnknown, outcome.MissingOf("CodeSystem", c.System, c.Version)
		return e, reason
	}
	cs := t.CodeSystems[index]
	if err := cs.CheckUsable("code system"); err != nil {
		return e, err
	}
	at, ok := cs.Concepts.Locate([]byte(c.Code))
	if !ok {
		reason := outcome.New(http.StatusNotFound, "not-found", "invalid-code", "", "")
		reason.MessageID, reason.Text = cs.UnknownCode(c.Code)
		if reason.Detail = cs.Concepts.CodeExplainer.InvalidReason([]byte(c.Code)); cs.Content.IsPartial() {
			reason.Missing = outcome.MissingOf("CodeSystem", c.System, c.Version)
		}
		return e, reason
	}
	return LocatedEntry{Entry: Entry{CodeSystem: index, Concept: cs.Number(at)}, LocatedConcept: at}, nil
}

// LookupOnlyConcept returns the concept that a coding refers to in the lookup-only substitute for its code system.
func (t *SystemTable) LookupOnlyConcept(c *parameters.Coding) (e LocatedEntry, ok bool) {
	for _, index := range t.Versions(c.System) {
		cs := t.CodeSystems[index]
		if !cs.IsLookupOnlyFor(c.Version) {
			continue
		}
		if at, ok := cs.Concepts.Locate([]byte(c.Code)); ok {
			return LocatedEntry{Entry: Entry{CodeSystem: index, Concept: cs.Number(at)}, LocatedConcept: at}, true
		}
	}
	return e, false
}

// SetVersionAsOf sets a coding's version to the latest one as of date, unless it has a version or date is empty.
func (t *SystemTable) SetVersionAsOf(c *parameters.Coding, date string) error {
	if err := CheckDate(date); err != nil || date == "" || c.Version != "" {
		return err
	}
	index, err := t.CodeSystemAt(c.System, date)
	if err == nil && index != None {
		c.Version = t.CodeSystems[index].Version
	}
	return err
}

// CompleteCodings adds missing systems and versions to the codings of an instance-level operation. It returns an error if a
// coding refers to another code system or version.
func (t *SystemTable) CompleteCodings(id string, codings ...*parameters.Coding) error {
	cs, ok := t.ByID(id)
	if !ok {
		e := outcome.New(http.StatusNotFound, "not-found", "not-found", "", "no code system has the id "+id)
		e.Err = outcome.ErrUnknown
		return e
	}
	for _, c := range codings {
		if c.System == "" {
			c.System = cs.URL
		}
		if c.Version == "" {
			c.Version = cs.Version
		}
		if c.System != cs.URL || !MatchesVersion(cs.Version, c.Version) {
			return outcome.BadRequest("invalid", "this code system is %s, not %s", cs.Canonical(), outcome.Canonical(c.System, c.Version))
		}
	}
	return nil
}

// RequiredSupplements returns the supplements that apply to the code systems of an expansion. It returns an error if a
// supplement in named does not apply, because the result would be wrong without it.
func (t *SystemTable) RequiredSupplements(codeSystems []uint32, named []string) ([]Supplement, error) {
	var list []Supplement
	for _, index := range codeSystems {
		for _, s := range t.SupplementsTo(t.CodeSystems[index], named) {
			list = append(list, Supplement{CodeSystem: index, Supplement: s})
		}
	}
	var missing []string
	for _, reference := range named {
		used := func(s Supplement) bool { return t.CodeSystems[s.Supplement].MatchesCanonical(reference) }
		if !slices.ContainsFunc(list, used) {
			AppendUnique(&missing, reference)
		}
	}
	return list, newSupplementsError(missing)
}

// newSupplementsError returns the error for supplements that are not loaded, or nil if list is empty.
func newSupplementsError(list []string) error {
	if len(list) == 0 {
		return nil
	}
	e := outcome.New(http.StatusUnprocessableEntity, "not-found", "not-found", "VALUESET_SUPPLEMENT_MISSING",
		"Required supplement not found: "+strings.Join(list, ", "))
	e.Err = outcome.ErrIncomplete
	for _, reference := range list {
		e.Missing = append(e.Missing, outcome.MissingOf("CodeSystem", reference, "")...)
	}
	return e
}

// CountSupplements returns the number of supplements that [SystemTable.SupplementsTo] examines.
func (t *SystemTable) CountSupplements(url string) (n int) {
	for at := &t.supplements; at != nil; at = at.base {
		n += len(at.values[url])
	}
	return n
}

// SupplementsTo returns the supplements that apply to a code system: language packs, and those with a canonical in named.
func (t *SystemTable) SupplementsTo(cs *CodeSystem, named []string) []uint32 {
	var list []uint32
	for at := &t.supplements; at != nil; at = at.base {
		for _, index := range at.values[cs.URL] {
			s := t.CodeSystems[index]
			_, version := outcome.SplitCanonical(s.supplements)
			applies := version == "" || MatchesVersion(cs.Version, version)
			if applies && (s.isLanguagePack || slices.ContainsFunc(named, s.Definition.MatchesCanonical)) {
				AppendUnique(&list, index)
			}
		}
	}
	return list
}

// CheckSupplements returns an error if any supplement in named is not loaded.
func (t *SystemTable) CheckSupplements(named []string) error {
	var missing []string
	for _, reference := range named {
		url, version := outcome.SplitCanonical(reference)
		if index := t.CodeSystem(url, version); index == None || t.CodeSystems[index].Content != ContentSupplement {
			missing = append(missing, reference)
		}
	}
	return newSupplementsError(missing)
}

// ContainedValueSet returns a value set contained in vs or in its containers, by #id or canonical.
func (vs *ValueSet) ContainedValueSet(reference string) (*ValueSet, bool) {
	for ; vs != nil; vs = vs.Container {
		for _, inner := range vs.Contained {
			if reference == "#"+inner.ID || inner.MatchesCanonical(reference) {
				return inner, true
			}
		}
	}
	return nil, false
}

// SumOfContainers returns the sum of number(v) for the value set and all its containers.
func (vs *ValueSet) SumOfContainers(number func(*ValueSet) int) (sum int) {
	for ; vs != nil; vs = vs.Container {
		sum += number(vs)
	}
	return sum
}

// ContainedCodeSystem returns the index of a code system contained in vs or its containers, by #id or URL, or None.
func (t *SystemTable) ContainedCodeSystem(vs *ValueSet, url, version string) uint32 {
	for ; vs != nil; vs = vs.Container {
		for _, index := range vs.CodeSystems {
			if cs := t.CodeSystems[index]; url == "#"+cs.ID || cs.MatchesCanonical(outcome.Canonical(url, version)) {
				return index
			}
		}
	}
	return None
}

// byFragment returns a contained value set by the canonical of its container followed by #id.
func (t *valueSetTable) byFragment(reference string) (*ValueSet, bool) {
	outer, id, ok := strings.Cut(reference, "#")
	if !ok {
		return nil, false
	}
	if vs, ok := t.fragments.get(reference); ok {
		return vs, true
	}
	vs, _ := t.Find(outer)
	return vs.ContainedValueSet("#" + id)
}

// addContained adds a code system that can be referenced only from its containing value set and returns its index.
func (t *SystemTable) addContained(cs *CodeSystem) uint32 {
	cs.systemIndex = t.internSystem(cs.URL)
	index := uint32(len(t.CodeSystems))
	t.CodeSystems = append(t.CodeSystems, cs)
	if t.fromRequest != nil {
		t.fromRequest[index] = true
	}
	return index
}

// IsContained reports whether a code system is contained in a value set.
func (t *SystemTable) IsContained(index uint32) bool {
	return !slices.Contains(t.List[t.CodeSystems[index].systemIndex].Versions, index)
}
