package terminology

import (
	"fmt"
	"slices"
)

// versionChoice is the code system version that an include means for a coding, and what to note about it.
type versionChoice struct {
	index   uint32 // none if not here
	matches bool   // the coding has no version, or one that the include allows
	notes   []note
	unknown string // canonical of the version that is not here
	open    bool   // the code system is not here at all, and the include does not list codes
	unsure  bool   // the version that the include means is not here; index is another one

	unchecked string // the version that is not here, of a code that the include lists
}

// takeListed adapts a choice to an include that lists its codes. It needs no code system: if the version is not here,
// that is no error, and no other version is used instead.
func (c *versionChoice) takeListed() {
	if !c.unsure {
		return
	}
	_, c.unchecked = splitCanonical(c.unknown)
	c.notes = slices.DeleteFunc(c.notes, func(n note) bool { return n.MessageID == unknownVersionID || n.MessageID == unknownVersionNoneID })
	c.index, c.unknown, c.matches, c.unsure = none, "", !c.failed(), false
}

// Message ids of unknownVersion.
const (
	unknownVersionID     = "UNKNOWN_CODESYSTEM_VERSION"
	unknownVersionNoneID = "UNKNOWN_CODESYSTEM_VERSION_NONE"
)

// versionChooser chooses the version of a code system in which to look for a coding.
type versionChooser struct {
	systems    *systemTable
	rules      *Rules
	inValueSet bool // rather than in the code system alone
}

// choose returns the version of a code system in which to look for a coding: that of the include and the parameters, or
// the coding's own if these allow it. If none names a version, it is the latest, as of a date if given.
func (v *versionChooser) choose(c *Coding, declared, date string) versionChoice {
	wanted, rule := v.rules.Versions.apply(c.System, declared)
	choice := versionChoice{index: v.codeSystem(c.System, wanted), matches: true}
	if wanted == "" && date != "" {
		index, _ := v.systems.codeSystemAt(c.System, date) // none on error
		choice.index = v.ifPresent(index)
	}
	own := none
	if c.Version != "" {
		own = v.codeSystem(c.System, c.Version)
		v.compare(c, &choice, own, declared, wanted, rule.name != "")
	}
	if choice.index == none && wanted != "" {
		choice.add(unknownVersion(c, wanted, v.systems.versionsOf(c.System)))
		choice.unknown = canonical(c.System, wanted)
		choice.index = own
		if own == none {
			usual, _ := v.rules.Versions.usual(c.System)
			choice.index = v.codeSystem(c.System, usual)
		}
		choice.matches, choice.unsure = false, true
	}
	required, _ := versionFor(v.rules.Versions.Required, c.System)
	if choice.index != none && required != "" && !matchesVersion(v.systems.codeSystems[choice.index].version, required) {
		e := wrongVersion(v.systems.codeSystems[choice.index], required)
		choice.add(note{Issue: e.Issues()[0], part: "version", told: true})
	}
	return choice
}

// codeSystem finds a code system to look for codes in.
func (v *versionChooser) codeSystem(url, version string) uint32 {
	return v.ifPresent(v.systems.codeSystem(url, version))
}

// ifPresent turns the index of a code system without content (R4 CodeSystem.content not-present) into none, as it would
// have no code at all.
func (v *versionChooser) ifPresent(index uint32) uint32 {
	if index == none {
		return none
	}
	if content := v.systems.codeSystems[index].content; !content.hasConcepts() && content != contentSupplement {
		return none
	}
	return index
}

// compare compares the version of a coding with the one that an include means.
func (v *versionChooser) compare(c *Coding, choice *versionChoice, own uint32, declared, wanted string, changed bool) {
	switch {
	case own != none && (wanted == "" || matchesVersion(v.systems.codeSystems[own].version, wanted)):
		choice.index = own
		return
	case wanted == "" && choice.index != none && v.inValueSet:
		choice.mismatch("warning", "VALUESET_VALUE_MISMATCH_DEFAULT",
			"The code system '%s' version '%s' for the versionless include in the ValueSet include is different to the one in the value ('%s')",
			c.System, v.systems.codeSystems[choice.index].version, c.Version)
	case wanted != "" && changed:
		choice.mismatch("error", "VALUESET_VALUE_MISMATCH_CHANGED",
			"The code system '%s' version '%s' resulting from the version '%s' in the ValueSet include is different to the one in the value ('%s')",
			c.System, wanted, declared, c.Version)
	case wanted != "":
		choice.mismatch("error", "VALUESET_VALUE_MISMATCH",
			"The code system '%s' version '%s' in the ValueSet include is different to the one in the value ('%s')", c.System, wanted, c.Version)
	}
	choice.matches = false
	if own == none && len(v.systems.versionsOf(c.System)) > 0 {
		choice.add(unknownVersion(c, c.Version, v.systems.versionsOf(c.System)))
		choice.unknown = canonical(c.System, c.Version)
	}
}

func (c *versionChoice) add(n note) { c.notes = append(c.notes, n) }

func (c *versionChoice) failed() bool { return slices.ContainsFunc(c.notes, note.isError) }

// mismatch adds a note about a version other than the value set's.
func (c *versionChoice) mismatch(severity, id, format string, args ...any) {
	c.add(note{part: "version", told: severity == "error", Issue: Issue{
		Severity: severity, Code: "invalid", TxCode: "vs-invalid", MessageID: id, Text: fmt.Sprintf(format, args...),
	}})
}

// unknownVersion is the note for a code system version that is not here.
func unknownVersion(c *Coding, version string, versions []string) note {
	id := unknownVersionID
	if len(versions) == 0 {
		id = unknownVersionNoneID
	}
	return note{part: "system", told: true, Issue: Issue{
		Severity: "error", Code: "not-found", TxCode: "not-found", MessageID: id,
		Text: fmt.Sprintf("A definition for CodeSystem '%s' version '%s' could not be found, so the code cannot be validated. %s",
			c.System, version, validVersions(versions)),
	}}
}
