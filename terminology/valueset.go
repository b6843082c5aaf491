package terminology

import (
	"cmp"
	"slices"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/fhirjson"
)

// valueSet is a ValueSet, with its compose in the form that expansion needs.
type valueSet struct {
	definition
	compose
	key         string    // url|version, for the cache
	transient   bool      // made for one request
	container   *valueSet // the value set that contains this one, or nil
	supplements []string  // canonicals of code systems, by the extension valueset-supplement
	defaults    []input   // parameters of $expand, by the extension valueset-expansion-parameter
	contained   []*valueSet
	codeSystems []uint32          // contained, as indexes in systemTable.codeSystems
	rest        []fhirjson.Member // compose and all other members, as they are
}

// compose is ValueSet.compose.
type compose struct {
	composed         bool   // whether there is one
	activeOnly       bool   // inactive is false: inactive codes are left out
	lockedDate       string // use the code systems as of this date
	include, exclude []conceptSet
}

// displayName is the canonical for messages, or, in the words of other servers, that there is none: a value set in a
// request may lack one.
func (vs *valueSet) displayName() string {
	return cmp.Or(vs.canonical(), "(unidentified)")
}

// conceptSet is one of ValueSet.compose.include or exclude.
type conceptSet struct {
	system, version string
	enumerated      bool // has concept: the rows of rowTable.listed from first up to last
	first, last     uint32
	filters         []filter
	valueSets       []string // canonicals
}

// filter is one of ValueSet.compose.include.filter.
type filter struct{ property, op, value string }

// standard returns the value that the value set itself sets for a parameter of its expansion, or "".
func (vs *valueSet) standard(name string) string {
	if in := find(vs.defaults, name); in != nil {
		return in.value
	}
	return ""
}

// listed holds the concepts that value sets enumerate, of all value sets together; row 0 is unused. Codes are text,
// since their code system need not be here.
type listed struct {
	first   uint32 // of an overlay: the number of its first row
	texts   codesystem.Texts
	code    []codesystem.TextRef
	display []codesystem.TextRef // 0 if the value set gives none
	system  []uint32             // index in systemTable.systems
	codesystem.ConceptReader
}

// end returns the number of the next row.
func (t *listed) end() uint32 { return t.first + uint32(len(t.code)) }

type rowTable struct {
	base   *rowTable // of an overlay: the table below
	listed listed
}

// row returns the table that holds a row, this or a base's, and the row's position there.
func (t *rowTable) row(row uint32) (*listed, uint32) {
	for t.base != nil && row < t.listed.first {
		t = t.base
	}
	return &t.listed, row - t.listed.first
}

func (t *listed) designationsOf(row uint32) []codesystem.DesignationRow {
	return ownedBy(t.ConceptReader.Designations, row, func(d codesystem.DesignationRow) uint32 { return d.Owner })
}

func (t *listed) extensionsOf(row uint32) []codesystem.ExtensionRow {
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
