package terminology

import (
	"fmt"
	"net/http"
)

// concept finds the concept of a coding.
func (t *systemTable) concept(c *Coding) (e locatedEntry, err error) {
	if c.System == "" || c.Code == "" {
		return e, badRequest("required", "there must be the parameters code and system, or a coding with both")
	}
	index := t.codeSystem(c.System, c.Version)
	if index == none || !t.codeSystems[index].content.hasConcepts() {
		missed := issue(http.StatusNotFound, "not-found", "not-found", "UNKNOWN_CODESYSTEM",
			fmt.Sprintf("A definition for CodeSystem '%s' could not be found, so the code cannot be looked up", canonical(c.System, c.Version)))
		missed.Err, missed.Missing = ErrUnknown, missing("CodeSystem", c.System, c.Version)
		return e, missed
	}
	cs := t.codeSystems[index]
	if err := cs.usable("code system"); err != nil {
		return e, err
	}
	at, ok := cs.concepts.Locate([]byte(c.Code))
	if !ok {
		return e, issue(http.StatusNotFound, "not-found", "invalid-code", "Unknown_Code_in_Version",
			fmt.Sprintf("Unknown code '%s' in the CodeSystem '%s' version '%s'", c.Code, cs.url, cs.version))
	}
	return locatedEntry{entry: entry{codeSystem: index, concept: cs.number(at)}, at: at}, nil
}

// asOf gives a coding without a version the version that was the latest on a date, if there is a date.
func (t *systemTable) asOf(c *Coding, date string) error {
	if err := checkDate(date); err != nil || date == "" || c.Version != "" {
		return err
	}
	index, err := t.codeSystemAt(c.System, date)
	if err == nil && index != none {
		c.Version = t.codeSystems[index].version
	}
	return err
}

// instance completes the codings of an operation on an instance by the system and version of the code system.
func (t *systemTable) instance(id string, codings ...*Coding) error {
	cs, ok := t.codeSystemByID(id)
	if !ok {
		e := issue(http.StatusNotFound, "not-found", "not-found", "", "there is no code system with the id "+id)
		e.Err = ErrUnknown
		return e
	}
	for _, c := range codings {
		if c.System == "" {
			c.System = cs.url
		}
		if c.Version == "" {
			c.Version = cs.version
		}
		if c.System != cs.url || !matchesVersion(cs.version, c.Version) {
			return badRequest("invalid", "the code system is %s, not %s", cs.canonical(), canonical(c.System, c.Version))
		}
	}
	return nil
}
