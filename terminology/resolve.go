package terminology

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// codeSystem chooses the code system version for an include: the forced one, the include's own, the preferred, the
// required or the latest, in this order; the latest is as of the locked date or the request's date. index is none if
// that version is not here; wanted is the version that was looked for.
func (c *composer) codeSystem(url, version string) (index uint32, wanted string, err error) {
	if index := c.library.containedCodeSystem(c.path[len(c.path)-1], url, version); index != none {
		return index, version, nil
	}
	version, rule := c.rules.Versions.apply(url, version)
	if rule.name != "" {
		c.used.apply(rule.name, rule.value)
	}
	index = c.library.codeSystem(url, version)
	if date := cmp.Or(c.path[len(c.path)-1].lockedDate, c.rules.Date); version == "" && date != "" {
		index, err = c.library.codeSystemAt(url, date)
	}
	required, _ := versionFor(c.rules.Versions.Required, url)
	if err == nil && index != none && required != "" && !matchesVersion(c.library.codeSystems[index].version, required) {
		err = wrongVersion(c.library.codeSystems[index], required)
	}
	return index, version, err
}

func wrongVersion(cs *codeSystem, required string) *Error {
	return issue(http.StatusUnprocessableEntity, "exception", "version-error", "VALUESET_VERSION_CHECK",
		fmt.Sprintf("The version '%s' is not allowed for system '%s': required to be '%s' by a version-check parameter", cs.version, cs.url, required))
}

// isExcludedSystem reports whether exclude-system names a code system or its version.
func (c *composer) isExcludedSystem(url, version string, index uint32) bool {
	if index != none {
		version = c.library.codeSystems[index].version
	}
	return slices.ContainsFunc(c.rules.Versions.Excluded, func(reference string) bool {
		system, only := splitCanonical(reference)
		return system == url && (only == "" || matchesVersion(version, only))
	})
}

// missingCodeSystem is the error for a code system that is not here, or not with its content.
func (t *systemTable) missingCodeSystem(url, version string) error {
	if index := t.codeSystem(url, version); index != none {
		cs := t.codeSystems[index]
		e := incomplete("business-rule", "the content of code system %s is not here (it is %q)", cs.canonical(), cs.content)
		e.TxCode, e.Missing = "invalid", missing("CodeSystem", url, version)
		return e
	}
	text, id := fmt.Sprintf("A definition for CodeSystem '%s' could not be found, so the value set cannot be expanded", url), "UNKNOWN_CODESYSTEM_EXP"
	if version != "" {
		id = "UNKNOWN_CODESYSTEM_VERSION_EXP"
		text = fmt.Sprintf("A definition for CodeSystem '%s' version '%s' could not be found, so the value set cannot be expanded. %s",
			url, version, validVersions(t.versionsOf(url)))
	}
	e := issue(http.StatusUnprocessableEntity, "not-found", "not-found", id, text)
	e.Err, e.Missing = ErrIncomplete, missing("CodeSystem", url, version)
	return e
}

// validVersions tells people which versions of a code system are here.
func validVersions(versions []string) string {
	switch n := len(versions); n {
	case 0:
		return "No versions of this code system are known"
	case 1:
		return "Valid versions: " + versions[0]
	default:
		return "Valid versions: " + strings.Join(versions[:n-1], ", ") + " or " + versions[n-1]
	}
}

// codeSystemAt returns the latest version of a code system as of a date. Without one, that is an error, unless nothing here
// refers to the code system at all.
func (t *systemTable) codeSystemAt(url, date string) (uint32, error) {
	id, ok := t.systemID(url)
	if !ok {
		return none, nil
	}
	old := slices.DeleteFunc(slices.Clone(t.systems[id].versions), func(index uint32) bool { return !isBy(t.codeSystems[index].date, date) })
	if len(old) == 0 {
		return none, notAsOf("code system", url, date)
	}
	return t.currentVersion(old), nil
}

// isBy reports whether a definition with one date existed on another. The dates may differ in precision; a definition
// without a date always existed.
func isBy(defined, date string) bool {
	n := min(len(defined), len(date), len("2006-01-02"))
	return defined[:n] <= date[:n]
}

// requiredSupplements returns the supplements to the code systems of an expansion. Each named one must apply, since the
// answer would be wrong without it.
func (t *systemTable) requiredSupplements(codeSystems []uint32, named []string) ([]supplement, error) {
	var list []supplement
	for _, index := range codeSystems {
		for _, s := range t.supplementsTo(t.codeSystems[index], named) {
			list = append(list, supplement{of: index, by: s})
		}
	}
	var missing []string
	for _, reference := range named {
		used := func(s supplement) bool { return t.codeSystems[s.by].isNamed(reference) }
		if !slices.ContainsFunc(list, used) {
			addTo(&missing, reference)
		}
	}
	return list, missingSupplements(missing)
}

// missingSupplements is the error for supplements that are not here, or nil if there are none.
func missingSupplements(list []string) error {
	if len(list) == 0 {
		return nil
	}
	e := issue(http.StatusUnprocessableEntity, "not-found", "not-found", "VALUESET_SUPPLEMENT_MISSING",
		"Required supplement not found: "+strings.Join(list, ", "))
	e.Err = ErrIncomplete
	for _, reference := range list {
		e.Missing = append(e.Missing, missing("CodeSystem", reference, "")...)
	}
	return e
}
