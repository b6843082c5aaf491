package definitions

import (
	"crypto/sha256"
	"fmt"
	"runtime"
	"time"
	"unsafe"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/terminology/textindex"
)

// Set holds definitions, which never change. Make one with [Load]. It is safe for concurrent use.
type Set struct {
	Systems   SystemTable   // code systems
	ValueSets valueSetTable // value sets
	Maps      MapTable      // concept maps
	Base      *Set          // of an overlay: the library below
	Loaded    time.Time     // when
	Sent      Sent          // of an overlay for a request: its resources
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

// Sent identifies the resources that came with a request, in order. Overlays over the same library with the same
// resources have the same tables.
type Sent struct {
	digest [sha256.Size]byte
	bytes  int
}

func (s Sent) with(resource []byte) Sent {
	digest := sha256.Sum256(resource)
	return Sent{digest: sha256.Sum256(append(s.digest[:], digest[:]...)), bytes: s.bytes + len(resource)}
}

// Key returns a cache key for the resources and others after them; "" if there are none.
func (s Sent) Key(others ...jsontext.Value) string {
	for _, resource := range others {
		s = s.with(resource)
	}
	if s.bytes == 0 {
		return ""
	}
	return string(s.digest[:])
}

// OverlaySize estimates the memory of the overlays for a request in bytes; 0 if the library has none.
func OverlaySize(d *Set) (size int) {
	for size = memoryPerByte * d.Sent.bytes; d != nil && d.OfRequest(); d = d.Base {
		size += int(unsafe.Sizeof(System{}))*len(d.Systems.List) + 8*len(d.Systems.CodeSystems)
	}
	return size
}

// memoryPerByte is how many bytes a definition takes at most for each byte of its JSON.
const memoryPerByte = 4

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
