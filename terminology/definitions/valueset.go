package definitions

import (
	"cmp"
	"slices"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
	"github.com/caddy-fhir/caddy-fhir/terminology/parameters"
)

// ValueSet is a ValueSet, with its compose in the form that expansion needs.
type ValueSet struct {
	Definition
	compose
	Key         string             // for the cache of expansions: url|version, or the reference of an implicit value set
	Container   *ValueSet          // the value set that contains this one, or nil
	Supplements []string           // canonicals of code systems, by the extension valueset-supplement
	Defaults    []parameters.Input // parameters of $expand, by the extension valueset-expansion-parameter
	Contained   []*ValueSet        // value sets
	CodeSystems []uint32           // contained, as indexes in systemTable.codeSystems
	Rest        []fhirjson.Member  // compose and all other members, as they are
	Stored      *StoredExpansion   // where Include is from; nil: from compose
	Partial     string             // why a stored expansion may lack codes, if there is one and no compose
}

// compose is ValueSet.compose.
type compose struct {
	Composed         bool   // whether there is one
	ActiveOnly       bool   // inactive is false: inactive codes are left out
	LockedDate       string // use the code systems as of this date
	Include, Exclude []ConceptSet
}

// DisplayName is the canonical for messages, or, in the words of other servers, that there is none: a value set in a
// request may lack one.
func (vs *ValueSet) DisplayName() string {
	return cmp.Or(vs.Canonical(), "(unidentified)")
}

// ConceptSet is one of ValueSet.compose.include or exclude.
type ConceptSet struct {
	System, Version string   // of the codes
	Enumerated      bool     // has concept: the rows of rowTable.listed from first up to last
	Expanded        bool     // is of a stored expansion: its codes count whatever is loaded of their code system
	First, Last     uint32   // rows
	Filters         []Filter // that all hold
	ValueSets       []string // canonicals
}

// Filter is one of ValueSet.compose.include.filter.
type Filter struct {
	Property, Op, Value string // members of these names
}

// standard returns the value that the value set itself sets for a parameter of its expansion, or "".
func (vs *ValueSet) standard(name string) string {
	if in := parameters.Find(vs.Defaults, name); in != nil {
		return in.Value
	}
	return ""
}

// listed holds the concepts that value sets enumerate, of all value sets together; row 0 is unused. Codes are text,
// since their code system need not be here.
type listed struct {
	first   uint32 // of an overlay: the number of its first row
	Texts   codesystem.Texts
	Code    []codesystem.TextRef
	display []codesystem.TextRef        // 0 if the value set gives none
	system  []uint32                    // index in systemTable.systems
	flags   map[uint32]codesystem.Flags // of entries of stored expansions, by row
	codesystem.ConceptReader
}

// end returns the number of the next row.
func (t *listed) end() uint32 { return t.first + uint32(len(t.Code)) }

// newListed returns an empty table whose first row has a number.
func newListed(first uint32) listed {
	t := listed{first: first, Code: make([]codesystem.TextRef, 1), display: make([]codesystem.TextRef, 1), system: make([]uint32, 1)}
	t.Reset()
	return t
}

// Row returns the table that holds a row, of this library or one below, and the row's position there.
func (d *Set) Row(row uint32) (*listed, uint32) {
	for d.Base != nil && row < d.rows.first {
		d = d.Base
	}
	return &d.rows, row - d.rows.first
}

func (t *listed) designationsOf(row uint32) []codesystem.DesignationRow {
	return ownedBy(t.ConceptReader.Designations, row, func(d codesystem.DesignationRow) uint32 { return d.Owner })
}

func (t *listed) ExtensionsOf(row uint32) []codesystem.ExtensionRow {
	return ownedBy(t.ConceptReader.Extensions, row, func(x codesystem.ExtensionRow) uint32 { return x.Owner })
}

// ownedBy returns an owner's part of a list sorted by owner.
func ownedBy[row any](list []row, owner uint32, of func(row) uint32) []row {
	compare := func(r row, owner uint32) int { return int(of(r)) - int(owner) }
	from, found := slices.BinarySearchFunc(list, owner, compare)
	if !found {
		return nil
	}
	to := from
	for to < len(list) && of(list[to]) == owner {
		to++
	}
	return list[from:to]
}
