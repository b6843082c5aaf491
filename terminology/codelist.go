package terminology

import (
	"crypto/sha256"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/weights"
)

// entry is one code of an expansion. codeSystem is none if the code system does not have the code or is not loaded, and
// concept if it does not number its concepts; listed is the row of rowTable in which a value set lists it, or 0.
type entry struct{ codeSystem, concept, listed uint32 }

// unknownEntry is no entry.
var unknownEntry = entry{codeSystem: none, concept: none}

// isKnown reports whether the code system is here and has the code.
func (e entry) isKnown() bool { return e.codeSystem != none }

// locatedEntry is an entry with its concept, if its code system has it.
type locatedEntry struct {
	entry
	at codesystem.Concept
}

func (d *Set) locate(e entry) locatedEntry { return locatedEntry{entry: e, at: d.conceptOf(e)} }

// conceptOf returns the concept of an entry whose code system has it.
func (d *Set) conceptOf(e entry) codesystem.Concept {
	if e.concept == none {
		return d.written(e)
	}
	return codesystem.At(e.concept)
}

// written returns the concept of an entry by the code that the value set lists.
func (d *Set) written(e entry) (c codesystem.Concept) {
	if e.isKnown() && e.listed != 0 {
		c, _ = d.codeSystems[e.codeSystem].concepts.Locate(d.code(e))
	}
	return c
}

// codeList holds the codes of a value set in order, each once. It is cached and shared, and must not change.
type codeList struct {
	used
	traits
	entries  []entry
	shape    *tree
	digest   [sha256.Size]byte
	searcher *searcher
	weights  *weights.Table // of the value set; nil if the code systems' count
}

// used is what the expansion of a value set uses.
type used struct {
	codeSystems []uint32    // in order of first use
	valueSets   []*valueSet // imported, directly or not
	supplements []supplement
	wanted      []string // canonicals of the supplements that imported value sets name
	unchecked   []string // canonicals of missing code systems whose codes are listed
	applied     []applied
}

// traits say how codes are compared and shown.
type traits struct {
	versioned bool // each code is shown with its version
	merged    bool // several versions are named, but a code is the same in all
	byVersion bool // the same code in two versions is two codes
	tree      bool // may be shown as a tree
	filtered  bool // an include has a filter
}

// supplement says that a code system supplements another.
type supplement struct{ of, by uint32 }

// applied is a parameter of the request that had an effect.
type applied struct{ name, value string }

func (u *used) apply(name, value string) { addTo(&u.applied, applied{name: name, value: value}) }

func (d *Set) code(e entry) []byte {
	if e.concept != none {
		return d.codeSystems[e.codeSystem].concepts.Code(codesystem.At(e.concept))
	}
	table, row := d.row(e.listed)
	return table.texts.At(table.code[row])
}

// coded returns code, display and flags.
func (d *Set) coded(e entry) (code, display []byte, flags codesystem.Flags) {
	if e.concept == none || e.listed != 0 {
		return d.code(e), d.display(e), d.flags(e)
	}
	return d.codeSystems[e.codeSystem].concepts.Concept(codesystem.At(e.concept))
}

// display returns the value set's own display, else the code system's, else nil.
func (d *Set) display(e entry) []byte {
	if own := d.ownDisplay(e); len(own) > 0 || !e.isKnown() {
		return own
	}
	_, display, _ := d.codeSystems[e.codeSystem].concepts.Concept(d.conceptOf(e))
	return display
}

// ownDisplay returns the display that the value set itself has for an entry, or nil.
func (d *Set) ownDisplay(e entry) []byte {
	if e.listed == 0 {
		return nil
	}
	table, row := d.row(e.listed)
	return table.texts.At(table.display[row])
}

func (d *Set) flags(e entry) codesystem.Flags { return d.flagsOf(d.locate(e)) }

func (d *Set) flagsOf(e locatedEntry) codesystem.Flags {
	if !e.isKnown() {
		return 0
	}
	_, _, flags := d.codeSystems[e.codeSystem].concepts.Concept(e.at)
	return flags
}

// systemOf returns the index of an entry's code system in systemTable.systems.
func (d *Set) systemOf(e entry) uint32 {
	if e.concept != none {
		return d.codeSystems[e.codeSystem].system
	}
	table, row := d.row(e.listed)
	return table.system[row]
}
