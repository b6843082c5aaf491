package definitions

import (
	"fmt"
	"runtime"
	"time"

	"github.com/caddy-fhir/caddy-fhir/terminology/textindex"
)

// None is the index of no code system or concept.
const None = ^uint32(0)

// Set holds definitions, which never change. Make one with [Load]. It is safe for concurrent use.
type Set struct {
	Systems   SystemTable   // code systems
	ValueSets valueSetTable // value sets
	Maps      MapTable      // concept maps
	Rows      rowTable      // the concepts that value sets list
	Base      *Set          // of an overlay: the library below
	Combined  bool          // of an overlay: its definitions do not go before those of base
	Loaded    time.Time     // when
	Bounds    bounds        // on the cost of operations
	synonyms  *textindex.Synonyms
	Usage     Usage // how much codes are used

	brought int // definitions sent with a request, contained ones included
}

// bounds limit the cost of one operation. See [Options].
type bounds struct{ ImportDepth, Gathered, RegexStates int }

// Synonyms returns what words of a filter also stand for, as [Options.Synonyms] says; nil if nothing.
func (l *Set) Synonyms() *textindex.Synonyms { return l.synonyms }

// Use calls f and keeps the library reachable meanwhile. Large code systems lie outside the heap and are unmapped when
// their library becomes unreachable, even if slices of them are in use: what reads concepts must be called by use and
// return copies.
func (l *Set) Use(f func()) {
	f()
	runtime.KeepAlive(l)
}

// Counts says how much a library holds.
type Counts struct {
	// CodeSystems and ValueSets are the numbers of definitions, each version counted: of code systems also those without
	// concepts (not-present) and supplements.
	CodeSystems, ValueSets int

	// Concepts is the number of concepts in all code systems.
	Concepts int

	// Replaced is the number of definitions that a later source replaced.
	Replaced int
}

// Counts returns how much the library holds.
func (l *Set) Counts() Counts {
	c := Counts{ValueSets: len(l.ValueSets.List), Replaced: l.Systems.replaced + l.ValueSets.replaced}
	for index, cs := range l.Systems.CodeSystems {
		if !l.Systems.IsContained(uint32(index)) && cs.Concepts.List != nil {
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
