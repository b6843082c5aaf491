package definitions

import (
	"fmt"
	"net/http"

	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/parameters"
)

// Concept finds the concept of a coding.
func (t *SystemTable) Concept(c *parameters.Coding) (e LocatedEntry, err error) {
	if c.System == "" || c.Code == "" {
		return e, outcome.BadRequest("required", "there must be the parameters code and system, or a coding with both")
	}
	index := t.CodeSystem(c.System, c.Version)
	if index == None || !t.CodeSystems[index].Content.HasConcepts() {
		missed := outcome.New(http.StatusNotFound, "not-found", "not-found", "UNKNOWN_CODESYSTEM",
			fmt.Sprintf("A definition for CodeSystem '%s' could not be found, so the code cannot be looked up", outcome.Canonical(c.System, c.Version)))
		missed.Err, missed.Missing = outcome.ErrUnknown, outcome.MissingOf("CodeSystem", c.System, c.Version)
		return e, missed
	}
	cs := t.CodeSystems[index]
	if err := cs.Usable("code system"); err != nil {
		return e, err
	}
	at, ok := cs.Concepts.Locate([]byte(c.Code))
	if !ok {
		missed := outcome.New(http.StatusNotFound, "not-found", "invalid-code", "", "")
		missed.MessageID, missed.Text = cs.UnknownCode(c.Code)
		if missed.Detail = cs.Concepts.Refuser.Refusal([]byte(c.Code)); cs.Content.IsPart() {
			missed.Missing = outcome.MissingOf("CodeSystem", c.System, c.Version)
		}
		return e, missed
	}
	return LocatedEntry{Entry: Entry{CodeSystem: index, Concept: cs.Number(at)}, At: at}, nil
}

// StandIn finds the concept of a coding in what stands in for its code system, if no more of that is here.
func (t *SystemTable) StandIn(c *parameters.Coding) (e LocatedEntry, ok bool) {
	for _, index := range t.Versions(c.System) {
		cs := t.CodeSystems[index]
		if !cs.StandsInFor(c.Version) {
			continue
		}
		if at, ok := cs.Concepts.Locate([]byte(c.Code)); ok {
			return LocatedEntry{Entry: Entry{CodeSystem: index, Concept: cs.Number(at)}, At: at}, true
		}
	}
	return e, false
}

// AsOf gives a coding without a version the version that was the latest on a date, if there is a date.
func (t *SystemTable) AsOf(c *parameters.Coding, date string) error {
	if err := CheckDate(date); err != nil || date == "" || c.Version != "" {
		return err
	}
	index, err := t.CodeSystemAt(c.System, date)
	if err == nil && index != None {
		c.Version = t.CodeSystems[index].Version
	}
	return err
}

// Instance completes the codings of an operation on an instance by the system and version of the code system.
func (t *SystemTable) Instance(id string, codings ...*parameters.Coding) error {
	cs, ok := t.ByID(id)
	if !ok {
		e := outcome.New(http.StatusNotFound, "not-found", "not-found", "", "there is no code system with the id "+id)
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
			return outcome.BadRequest("invalid", "the code system is %s, not %s", cs.Canonical(), outcome.Canonical(c.System, c.Version))
		}
	}
	return nil
}
