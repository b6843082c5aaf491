package definitions

import (
	"fmt"
	"runtime"
	"time"

	"github.com/caddy-fhir/caddy-fhir/terminology/textindex"
)

// Set holds definitions, which never change. Make one with [Load]. It is safe for concurrent use.
type Set struct {
	Systems   SystemTable   // code systems
	ValueSets valueSetTable // value sets
	Maps      MapTable      // concept maps
	Base      *Set          // of an overlay: the library below
	Loaded    time.Time     // when
	Bounds    bounds        // on the cost of operations
	Usage     Usage         // how much codes are used
	rows      listed        // the concepts that value sets list
	synonyms  *textindex.Synonyms
	brought   int // definitions sent with a request, contained ones included
}

// bounds limit the cost of one operation. See [Options].
type bounds struct{ ImportDepth, Gathered, RegexStates int }

// Synonyms returns what words of a filter also stand for, as [Options.Synonyms] says; nil if nothing.
func (d *Set) Synonyms() *textindex.Synonyms { return d.synonyms }

// Use calls f and keeps the library reachable meanwhile. Large code systems lie outside the heap and are unmapped when
// their library becomes unreachable, even if slices of them are in use: what reads concepts must be called by use and
// return copies.
func (d *Set) Use(f func()) {
	f()
	runtime.KeepAlive(d)
}

// Counts says how much a library holds.
type Counts struct {
	// CodeSystems and ValueSets are the numbers of definitions, each version counted: of code systems also those without
	// concepts (not-present) and supplements, but not those that the program knows itself.
	CodeSystems, ValueSets int

	// Concepts is the number of concepts in all code systems.
	Concepts int

	// Replaced is the number of definitions that a later source replaced.
	Replaced int
}

// Counts returns how much the library holds.
func (d *Set) Counts() Counts {
	c := Counts{ValueSets: len(d.ValueSets.List), Replaced: d.Systems.replaced + d.ValueSets.replaced}
	for index, cs := range d.Systems.CodeSystems {
		if !d.Systems.IsContained(uint32(index)) && !cs.builtIn {
			c.CodeSystems++
			c.Concepts += cs.Concepts.Len()
		}
	}
	return c
}

// String describes the counts, for a log.
func (c Counts) String() string {
	return fmt.Sprintf("%d code systems, %d concepts, %d value sets", c.CodeSystems, c.Concepts, c.ValueSets)
}

// newLibrary returns an empty library with the bounds of the options.
func newLibrary(o Options) *Set {
	l := emptyLibrary()
	l.Loaded = o.Now().UTC().Truncate(time.Second)
	l.Bounds = bounds{ImportDepth: o.MaxImportDepth, Gathered: o.MaxGathered, RegexStates: o.MaxRegexStates}
	return l
}

// emptyLibrary returns an empty library.
func emptyLibrary() *Set {
	return &Set{rows: newListed(0), Maps: MapTable{Lists: make([][]*ConceptMap, 1)}}
}

// Bounds on the definitions in a request, those in Bundles and contained ones included, and on the versions of one code
// system, with them and in files: each version is compared with the others.
const (
	maxBrought         = 10_000
	maxBroughtVersions = 100
	maxLoadedVersions  = 1000
)

func maxVersions(l *Set) int {
	if l.brought > maxBroughtVersions {
		return maxBroughtVersions
	}
	return maxLoadedVersions
}

// bring counts a definition from a request.
func bring(l *Set) error {
	if !l.OfRequest() {
		return nil
	}
	if l.brought++; l.brought > maxBrought {
		return fmt.Errorf("more than %d definitions", maxBrought)
	}
	return nil
}
