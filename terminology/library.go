package terminology

import (
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sync/singleflight"
)

// none stands for "no code system" or "no concept" where an index is expected.
const none = ^uint32(0)

// Library holds code systems and value sets, and expands them. Make one with [Load]. Its content never
// changes, and it may be used by any number of goroutines.
type Library struct {
	definitions
	base     *Library // of an overlay: what it lies over
	combined bool     // of an overlay: what it adds is no better than what it lies over
	loaded   time.Time
	bounds   bounds

	expansions *codeListCache
	inProgress singleflight.Group
	brought    int // definitions that a request has brought along, contained ones among them
}

// bounds limit what one operation may make of the definitions. See [Options].
type bounds struct{ importDepth, gathered, regexStates int }

// definitions are what a library is made of.
type definitions struct {
	systemTable
	valueSetTable
	mapTable
	rowTable
}

// use calls f and keeps the library reachable until f returns. Large code systems lie outside of the heap and are
// unmapped when the collector finds their library unreachable, even if a slice of them is still used. So whatever reads
// concepts must be called by use and return copies.
func (l *Library) use(f func()) {
	f()
	runtime.KeepAlive(l)
}

// Counts says how much a library holds.
type Counts struct {
	// CodeSystems is the number of code systems, each version counted, those without concepts
	// (not-present) and supplements included.
	CodeSystems int

	// ValueSets is the number of value sets, each version counted.
	ValueSets int

	// Concepts is the number of concepts in all code systems.
	Concepts int

	// Replaced is the number of definitions that a later source replaced.
	Replaced int
}

// Counts returns how much the library holds, for a line in the log.
func (l *Library) Counts() Counts {
	c := Counts{ValueSets: len(l.valueSets), Replaced: l.systemTable.replaced + l.valueSetTable.replaced}
	for index, cs := range l.codeSystems {
		if !l.isContained(uint32(index)) {
			c.CodeSystems++
			c.Concepts += cs.Len()
		}
	}
	return c
}

// String says what the library holds.
func (c Counts) String() string {
	return fmt.Sprintf("%d code systems, %d concepts, %d value sets", c.CodeSystems, c.Concepts, c.ValueSets)
}
