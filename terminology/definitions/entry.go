package definitions

import (
	"bytes"
	"slices"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
)

// Entry is one code of an expansion. CodeSystem is None if it is not loaded; Concept is None if the code system does not
// have the code, and Parsed or Unlisted if it has, but no number for it; Listed is the row of rowTable in which a value set lists it,
// or 0.
type Entry struct {
	CodeSystem, Concept, Listed uint32 // see above
}

// IsKnown reports whether the code system is here and has the code.
func (e Entry) IsKnown() bool { return e.Concept != None }

// IsNumbered reports whether the concept is a number.
func (e Entry) IsNumbered() bool { return e.Concept < Unlisted }

// Own returns the row in which the value set itself lists an entry, or 0.
func (e Entry) Own() uint32 {
	if e.Concept == Unlisted {
		return 0
	}
	return e.Listed
}

// LocatedEntry is an entry with its concept, if its code system has it.
type LocatedEntry struct {
	Entry
	At codesystem.Concept // the concept; of no use if IsKnown is false
}

// Locate returns an entry with its concept.
func (d *Set) Locate(e Entry) LocatedEntry {
	at := codesystem.At(e.Concept)
	switch e.Concept {
	case Parsed, Unlisted: // by the code that the value set lists
		at, _ = d.Systems.CodeSystems[e.CodeSystem].Concepts.Locate(d.Code(e))
	case None:
		at = codesystem.Concept{}
	}
	return LocatedEntry{Entry: e, At: at}
}

// Supplement says that a code system supplements another.
type Supplement struct {
	Of, By uint32 // indexes in SystemTable.CodeSystems
}

// Code returns an entry's code.
func (d *Set) Code(e Entry) []byte {
	if e.IsNumbered() {
		return d.Systems.CodeSystems[e.CodeSystem].Concepts.Code(codesystem.At(e.Concept))
	}
	table, row := d.Row(e.Listed)
	return table.Texts.At(table.Code[row])
}

// Coded returns code, display and flags.
func (d *Set) Coded(e Entry) (code, display []byte, flags codesystem.Flags) {
	if !e.IsNumbered() || e.Listed != 0 {
		return d.Code(e), d.Display(e), d.Flags(e)
	}
	return d.Systems.CodeSystems[e.CodeSystem].Concepts.Concept(codesystem.At(e.Concept))
}

// Display returns the value set's own display, else the code system's, else nil.
func (d *Set) Display(e Entry) []byte {
	if own := d.ownDisplay(e); len(own) > 0 || !e.IsKnown() {
		return own
	}
	_, display, _ := d.Systems.CodeSystems[e.CodeSystem].Concepts.Concept(d.Locate(e).At)
	return display
}

// ownDisplay returns the display that the value set itself has for an entry, or nil.
func (d *Set) ownDisplay(e Entry) []byte {
	if e.Own() == 0 {
		return nil
	}
	table, row := d.Row(e.Listed)
	return table.Texts.At(table.display[row])
}

// Flags returns what the code system says of an entry's concept.
func (d *Set) Flags(e Entry) codesystem.Flags { return d.FlagsOf(d.Locate(e)) }

// FlagsOf is Flags for an entry that has been located.
func (d *Set) FlagsOf(e LocatedEntry) codesystem.Flags {
	flags := d.storedFlags(e.Entry)
	if !e.IsKnown() {
		return flags
	}
	_, _, known := d.Systems.CodeSystems[e.CodeSystem].Concepts.Concept(e.At)
	return known | flags
}

// storedFlags returns what a stored expansion says of an entry.
func (d *Set) storedFlags(e Entry) codesystem.Flags {
	if e.Own() == 0 {
		return 0
	}
	table, _ := d.Row(e.Listed)
	return table.flags[e.Listed]
}

// SystemOf returns the index of an entry's code system in systemTable.systems.
func (d *Set) SystemOf(e Entry) uint32 {
	if e.IsKnown() {
		return d.Systems.CodeSystems[e.CodeSystem].system
	}
	table, row := d.Row(e.Listed)
	return table.system[row]
}

// DeprecatedIn reports whether the value set that lists a concept marks it as deprecated.
func (d *Set) DeprecatedIn(e Entry) bool {
	if e.Own() == 0 {
		return false
	}
	table, _ := d.Row(e.Listed)
	return slices.ContainsFunc(table.ExtensionsOf(e.Listed), func(x codesystem.ExtensionRow) bool {
		value := table.Texts.At(x.Value)
		return x.Kind == codesystem.ExtensionDeprecated && !bytes.HasSuffix(value, []byte(":false")) ||
			x.Kind == codesystem.ExtensionStandardsStatus && bytes.Contains(value, []byte(`"deprecated"`))
	})
}
