package terminology

import (
	"crypto/sha256"
	"slices"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
)

// entry is one code of an expansion. Its concept is none if the code system, or the code in it, is not here. Its listed
// is the row of rowTable in which a value set lists it, else 0.
type entry struct{ codeSystem, concept, listed uint32 }

// codeList is a value set's codes in order, each once. It is cached and shared, and must not be changed.
type codeList struct {
	used
	traits
	entries  []entry
	shape    *tree
	digest   [sha256.Size]byte
	searcher *searcher
}

// used is what the expansion of a value set uses.
type used struct {
	codeSystems []uint32    // in order of first use
	valueSets   []*valueSet // that are imported, directly or not
	supplements []supplement
	wanted      []string // canonicals of the supplements that imported value sets name
	unchecked   []string // canonicals of the code systems that are not here and of which codes are listed
	applied     []applied
}

// traits say how codes are compared and shown.
type traits struct {
	versioned bool // the version of each code is to be told
	merged    bool // names versions of a code system, whose codes are the same nevertheless
	byVersion bool // a code is another one in each version of its code system
	tree      bool // may be shown as a tree
	filtered  bool // an include has a filter
}

// supplement says that a code system supplements another.
type supplement struct{ of, by uint32 }

// applied is a parameter of the request that had an effect.
type applied struct{ name, value string }

// leaveUnchecked notes that codes are listed of a code system that is not here.
func (u *used) leaveUnchecked(canonical string) {
	if !slices.Contains(u.unchecked, canonical) {
		u.unchecked = append(u.unchecked, canonical)
	}
}

// apply notes that a parameter had an effect.
func (u *used) apply(name, value string) {
	if a := (applied{name: name, value: value}); !slices.Contains(u.applied, a) {
		u.applied = append(u.applied, a)
	}
}

// code returns an entry's code.
func (d *definitions) code(e entry) []byte {
	if e.concept != none {
		return d.codeSystems[e.codeSystem].Code(e.concept)
	}
	table, row := d.row(e.listed)
	return table.texts.At(table.code[row])
}

// coded returns an entry's code, display and flags.
func (d *definitions) coded(e entry) (code, display []byte, flags codesystem.Flags) {
	if e.concept == none || e.listed != 0 {
		return d.code(e), d.display(e), d.flags(e)
	}
	return d.codeSystems[e.codeSystem].Concept(e.concept)
}

// display returns an entry's display: the value set's own, else the code system's, else nil.
func (d *definitions) display(e entry) []byte {
	if own := d.ownDisplay(e); len(own) > 0 || e.concept == none {
		return own
	}
	return d.codeSystems[e.codeSystem].Display(e.concept)
}

// ownDisplay returns the display that the value set itself gives for an entry, or nil.
func (d *definitions) ownDisplay(e entry) []byte {
	if e.listed == 0 {
		return nil
	}
	table, row := d.row(e.listed)
	return table.texts.At(table.display[row])
}

// flags returns what is known of an entry's concept.
func (d *definitions) flags(e entry) codesystem.Flags {
	if e.concept == none {
		return 0
	}
	return d.codeSystems[e.codeSystem].Flags(e.concept)
}

// systemOf returns the index in systemTable.systems of an entry's code system.
func (d *definitions) systemOf(e entry) uint32 {
	if e.concept != none {
		return d.codeSystems[e.codeSystem].system
	}
	table, row := d.row(e.listed)
	return table.system[row]
}
