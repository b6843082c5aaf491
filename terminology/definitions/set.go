package definitions

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"runtime"
	"time"
	"unsafe"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
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

// Overlay returns a library with everything in l, to which definitions can be added without changing l. They take
// precedence over those of l whatever their versions, since a request that brings definitions means these.
func (d *Set) Overlay() *Set { return over(d, false) }

// over returns a library over another. What is added to it goes before what the other has, or beside it.
func over(d *Set, beside bool) *Set {
	return &Set{
		Systems: d.Systems.over(beside), ValueSets: d.ValueSets.over(beside), Maps: d.Maps.over(beside),
		Base: d, Loaded: d.Loaded, Bounds: d.Bounds, Usage: d.Usage, rows: newListed(d.rows.end()), synonyms: d.synonyms,
		brought: d.brought, Sent: d.Sent,
	}
}

// OfRequest reports whether the library has definitions of a request.
func (d *Set) OfRequest() bool { return d.Systems.brought != nil }

// With returns a library in which resources are added to those of l and take precedence. It does not change l. It is
// cheap, and meant for the few definitions of one request.
func (d *Set) With(resources ...jsontext.Value) (*Set, error) {
	o := d.Overlay()
	loader, short := newResourceLoader(o), fhirjson.NewShortage(fhirjson.MaxShort)
	for _, resource := range resources {
		o.Sent = o.Sent.with(resource)
		r := fhirjson.ReaderOf(resource)
		r.Counting(short)
		if err := loader.resource(r); err != nil {
			return nil, &outcome.Error{
				Status: http.StatusBadRequest, Code: "structure", Err: err,
				Text: fmt.Sprintf("a tx-resource cannot be read: %v", err),
			}
		}
	}
	return o, nil
}

// Combine returns a library with the given resources as if they had been loaded after those of l: of several versions the
// latest counts, wherever it is from. Unlike the overlay of a request it caches expansions. l does not change.
func (d *Set) Combine(resources []jsontext.Value) (*Set, error) {
	o := over(d, true)
	loader := newResourceLoader(o)
	for _, resource := range resources {
		if err := loader.resource(fhirjson.ReaderOf(resource)); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// Inline adds a value set from a request and returns it. It needs no url.
func (d *Set) Inline(resource jsontext.Value) (*ValueSet, error) {
	d.Sent = d.Sent.with(resource)
	loader := newResourceLoader(d)
	err := loader.resource(fhirjson.ReaderOf(resource))
	if err != nil {
		return nil, &outcome.Error{Status: http.StatusBadRequest, Code: "structure", Err: err, Text: fmt.Sprintf("the value set cannot be read: %v", err)}
	}
	if loader.last == nil {
		return nil, outcome.BadRequest("invalid", "the parameter valueSet must be a ValueSet")
	}
	if loader.last.Key == "" {
		loader.last.Key = "|" // no canonical looks like this
	}
	return loader.last, nil
}

// InlineConceptMap reads the parameter conceptMap, which needs no url.
func InlineConceptMap(resource jsontext.Value) (*ConceptMap, error) {
	kind, err := fhirjson.ResourceType(resource)
	if err == nil && kind != "ConceptMap" {
		return nil, outcome.BadRequest("invalid", "the parameter conceptMap must be a ConceptMap, not %s", kind)
	}
	l := emptyLibrary()
	if err == nil {
		err = newResourceLoader(l).resource(fhirjson.ReaderOf(resource))
	}
	if err != nil {
		return nil, &outcome.Error{Status: http.StatusBadRequest, Code: "structure", Err: err, Text: "the concept map cannot be read: " + err.Error()}
	}
	return l.Maps.Lists[0][0], nil
}

// layer holds values by name over those of another layer, which it hides and never changes: what came with a request, or was
// fetched, over what is loaded.
type layer[V any] struct {
	own    map[string]V
	base   *layer[V] // nil: there is none
	beside bool      // what is added is compared with what base has, and does not simply go before it
}

// over returns an empty layer over this one.
func (l *layer[V]) over(beside bool) layer[V] { return layer[V]{base: l, beside: beside} }

func (l *layer[V]) put(name string, value V) {
	if l.own == nil {
		l.own = make(map[string]V)
	}
	l.own[name] = value
}

// get returns the uppermost value of a name.
func (l *layer[V]) get(name string) (value V, ok bool) {
	for at := l; at != nil && !ok; at = at.base {
		value, ok = at.own[name]
	}
	return value, ok
}

// rival returns what a new value of a name is compared with.
func (l *layer[V]) rival(name string) (value V, ok bool) {
	if l.beside {
		return l.get(name)
	}
	value, ok = l.own[name]
	return value, ok
}

// identified is a pointer to a definition.
type identified interface {
	comparable
	identity() *Definition
}

func (d *Definition) identity() *Definition { return d }

// idTable finds the definitions of one type by their ids, for reads, searches and operations on an instance. Packages use
// the same id for different definitions, and for versions of one: hl7.terminology has 208 ids of R4.
type idTable[D identified] struct{ layer[D] }

func (t *idTable[D]) over(beside bool) idTable[D] { return idTable[D]{t.layer.over(beside)} }

// claim adds a definition by its id. Of loaded definitions with the same id, the one loaded last keeps it. The others get an
// id with a hash of their canonicals, which does not depend on the order.
func (t *idTable[D]) claim(d D) {
	id := d.identity().ID
	if id == "" {
		return
	}
	if old, taken := t.own[id]; taken && old != d && t.base == nil {
		other := old.identity()
		other.ID = t.unused(other)
		t.put(other.ID, old)
	}
	t.put(id, d)
}

// release removes a definition that is replaced.
func (t *idTable[D]) release(d D) {
	if id := d.identity().ID; t.own[id] == d {
		delete(t.own, id)
	}
}

// maxID is the length of the longest id (R4 datatype id).
const maxID = 64

// unused returns another id for a definition.
func (t *idTable[D]) unused(d *Definition) (id string) {
	sum := sha256.Sum256([]byte(d.Canonical()))
	hash := hex.EncodeToString(sum[:])
	for digits := 8; digits < maxID; digits *= 2 {
		id = d.ID[:min(len(d.ID), maxID-1-digits)] + "-" + hash[:digits]
		if _, taken := t.own[id]; !taken {
			break
		}
	}
	return id
}
