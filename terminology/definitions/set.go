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

// Set is an immutable set of definitions, created by [Load]. It is safe for concurrent use.
type Set struct {
	Systems            SystemTable       // code systems
	ValueSets          valueSetTable     // value sets by URL, version, ID, binding and fragment
	Maps               MapTable          // concept maps
	Base               *Set              // underlying Set; nil unless this Set is an overlay
	Loaded             time.Time         // when the definitions were loaded
	RequestDigest      RequestDigest     // digest of the resources sent with a request; zero if there are none
	Bounds             bounds            // limits on the cost of operations
	Usage              Usage             // usage weights of codes
	MissingPackages    []string          // name#version of packages on which loaded packages depend, but which are not loaded
	rows               listedConcepts    // concepts enumerated by value sets
	implied            []*ReleaseContent // releases, which imply value sets and concept maps
	synonyms           *textindex.Synonyms
	requestDefinitions int // number of definitions sent with a request, including contained ones
}

// bounds contains the limits on the cost of one operation. See [Options].
type bounds struct{ ImportDepth, VisitedCodes, RegexStates int }

// Synonyms returns the synonyms of [Options.Synonyms], or nil.
func (d *Set) Synonyms() *textindex.Synonyms { return d.synonyms }

// Use calls f and keeps the Set reachable during the call. The memory of large code systems is off the heap and is unmapped
// when their Set becomes unreachable, even if slices of it are still in use. Code that reads concepts must run in f and return
// copies.
func (d *Set) Use(f func()) {
	f()
	runtime.KeepAlive(d)
}

// RequestDigest is a digest of a request's resources in order. Overlays of a Set with the same digest have equal tables.
type RequestDigest struct {
	digest [sha256.Size]byte
	bytes  int
}

func (s RequestDigest) extend(resource []byte) RequestDigest {
	digest := sha256.Sum256(resource)
	return RequestDigest{digest: sha256.Sum256(append(s.digest[:], digest[:]...)), bytes: s.bytes + len(resource)}
}

// CacheKey returns a cache key for the resources in s followed by other, or "" if there are no resources.
func (s RequestDigest) CacheKey(other ...jsontext.Value) string {
	for _, resource := range other {
		s = s.extend(resource)
	}
	if s.bytes == 0 {
		return ""
	}
	return string(s.digest[:])
}

// OverlaySize estimates the memory of all request overlays of d in bytes. It returns 0 if there are none.
func OverlaySize(d *Set) (size int) {
	for size = memoryPerByte * d.RequestDigest.bytes; d != nil && d.IsRequestOverlay(); d = d.Base {
		size += int(unsafe.Sizeof(System{}))*len(d.Systems.List) + 8*len(d.Systems.CodeSystems)
	}
	return size
}

// memoryPerByte is the maximum memory in bytes that a definition uses per byte of its JSON.
const memoryPerByte = 4

// Counts contains the numbers of definitions in a Set.
type Counts struct {
	// CodeSystems and ValueSets count definitions, each version separately. CodeSystems includes supplements and code
	// systems without concepts (not-present), but not the built-in sources.
	CodeSystems, ValueSets int

	// Concepts is the number of concepts in all code systems.
	Concepts int

	// Replaced is the number of definitions that were replaced by one loaded later.
	Replaced int
}

// Counts returns the numbers of definitions in the Set.
func (d *Set) Counts() Counts {
	c := Counts{ValueSets: len(d.ValueSets.List), Replaced: d.Systems.replaced + d.ValueSets.replaced}
	for index, cs := range d.Systems.CodeSystems {
		if !d.Systems.IsContained(uint32(index)) && !cs.isBuiltIn {
			c.CodeSystems++
			c.Concepts += cs.Concepts.Len()
		}
	}
	return c
}

// String formats the counts for a log record.
func (c Counts) String() string {
	return fmt.Sprintf("%d code systems, %d concepts, %d value sets", c.CodeSystems, c.Concepts, c.ValueSets)
}

// newSet returns an empty Set with the limits of the options.
func newSet(o Options) *Set {
	l := newEmptySet()
	l.Loaded = o.Now().UTC().Truncate(time.Second)
	l.Bounds = bounds{ImportDepth: o.MaxImportDepth, VisitedCodes: o.MaxVisitedCodes, RegexStates: o.MaxRegexStates}
	return l
}

// newEmptySet returns an empty Set.
func newEmptySet() *Set {
	return &Set{rows: newListedConcepts(0), Maps: MapTable{Layers: make([][]*ConceptMap, 1)}}
}

// Maximum number of definitions in a request (including contained ones and those in Bundles), and maximum number of versions of
// a code system in requests and in files. Adding a version requires comparing it with all others.
const (
	maxRequestDefinitions = 10_000
	maxRequestVersions    = 100
	maxLoadedVersions     = 1000
)

func maxVersions(l *Set) int {
	if l.requestDefinitions > maxRequestVersions {
		return maxRequestVersions
	}
	return maxLoadedVersions
}

// countRequestDefinition returns an error if a request contains too many definitions. It does not count other definitions.
func countRequestDefinition(l *Set) error {
	if !l.IsRequestOverlay() {
		return nil
	}
	if l.requestDefinitions++; l.requestDefinitions > maxRequestDefinitions {
		return fmt.Errorf("the request contains more than %d definitions", maxRequestDefinitions)
	}
	return nil
}

// Overlay returns a Set on top of d to which definitions can be added without changing d. Added definitions take
// precedence regardless of version, because a request that sends definitions refers to them.
func (d *Set) Overlay() *Set { return newOverlay(d, false) }

// newOverlay returns an overlay of d. If competes is false, added definitions take precedence over those of d; otherwise the
// version determines the precedence.
func newOverlay(d *Set, competes bool) *Set {
	return &Set{
		Systems: d.Systems.newOverlay(competes), ValueSets: d.ValueSets.newOverlay(competes), Maps: d.Maps.newOverlay(competes),
		Base: d, Loaded: d.Loaded, Bounds: d.Bounds, Usage: d.Usage, rows: newListedConcepts(d.rows.nextRow()), synonyms: d.synonyms, implied: d.implied,
		requestDefinitions: d.requestDefinitions, RequestDigest: d.RequestDigest,
	}
}

// IsRequestOverlay reports whether the Set is an overlay for a request.
func (d *Set) IsRequestOverlay() bool { return d.Systems.fromRequest != nil }

// WithResources returns an overlay in which resources take precedence over d. It does not change d. Overlays are cheap and
// meant for the few definitions of one request.
func (d *Set) WithResources(resources ...jsontext.Value) (*Set, error) {
	o := d.Overlay()
	loader, short := newResourceLoader(o), fhirjson.NewOverhead(fhirjson.DefaultMaxOverhead)
	for _, resource := range resources {
		o.RequestDigest = o.RequestDigest.extend(resource)
		r := fhirjson.NewValueReader(resource)
		r.WithOverhead(short)
		if err := loader.readResource(r); err != nil {
			return nil, &outcome.Error{
				Status: http.StatusBadRequest, Code: "structure", Err: err,
				Text: fmt.Sprintf("invalid parameter tx-resource: %v", err),
			}
		}
	}
	return o, nil
}

// Combine returns a Set with the given resources as if they had been loaded after d: the latest version wins, regardless of its
// origin. Expansions of the Set are cached, unlike those of a request overlay. Combine does not change d.
func (d *Set) Combine(resources []jsontext.Value) (*Set, error) {
	o := newOverlay(d, true)
	loader := newResourceLoader(o)
	for _, resource := range resources {
		if err := loader.readResource(fhirjson.NewValueReader(resource)); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// AddInline adds a value set of a request and returns it. The value set may lack a URL.
func (d *Set) AddInline(resource jsontext.Value) (*ValueSet, error) {
	d.RequestDigest = d.RequestDigest.extend(resource)
	loader := newResourceLoader(d)
	err := loader.readResource(fhirjson.NewValueReader(resource))
	if err != nil {
		return nil, &outcome.Error{Status: http.StatusBadRequest, Code: "structure", Err: err, Text: fmt.Sprintf("invalid value set: %v", err)}
	}
	if loader.lastValueSet == nil {
		return nil, outcome.BadRequest("invalid", "the parameter valueSet must be a ValueSet")
	}
	if loader.lastValueSet.Key == "" {
		loader.lastValueSet.Key = "|" // cannot collide: no canonical has this form
	}
	return loader.lastValueSet, nil
}

// ParseConceptMap reads the conceptMap parameter. The concept map may lack a URL.
func ParseConceptMap(resource jsontext.Value) (*ConceptMap, error) {
	kind, err := fhirjson.ResourceType(resource)
	if err == nil && kind != "ConceptMap" {
		return nil, outcome.BadRequest("invalid", "the parameter conceptMap must be a ConceptMap, not %s", kind)
	}
	l := newEmptySet()
	if err == nil {
		err = newResourceLoader(l).readResource(fhirjson.NewValueReader(resource))
	}
	if err != nil {
		return nil, &outcome.Error{Status: http.StatusBadRequest, Code: "structure", Err: err, Text: "invalid concept map: " + err.Error()}
	}
	return l.Maps.Layers[0][0], nil
}

// layer maps names to values on top of an immutable base layer. Layers of values from a request, or of fetched values, have the
// loaded values as their base.
type layer[V any] struct {
	values   map[string]V
	base     *layer[V] // base layer; nil if none
	competes bool      // whether added values compete with the values of base instead of hiding them
}

// newOverlay returns an empty layer on top of l.
func (l *layer[V]) newOverlay(competes bool) layer[V] { return layer[V]{base: l, competes: competes} }

func (l *layer[V]) put(name string, value V) {
	if l.values == nil {
		l.values = make(map[string]V)
	}
	l.values[name] = value
}

// get returns the value for a name from the topmost layer that contains the name.
func (l *layer[V]) get(name string) (value V, ok bool) {
	for at := l; at != nil && !ok; at = at.base {
		value, ok = at.values[name]
	}
	return value, ok
}

// competitor returns the existing value that a new value with the same name must be compared with.
func (l *layer[V]) competitor(name string) (value V, ok bool) {
	if l.competes {
		return l.get(name)
	}
	value, ok = l.values[name]
	return value, ok
}

// identifiable is implemented by pointers to definitions.
type identifiable interface {
	comparable
	identity() *Definition
}

func (d *Definition) identity() *Definition { return d }

// idTable indexes definitions of one type by ID, for reads, searches and instance-level operations. Packages reuse IDs for
// different definitions and versions: hl7.terminology shares 208 IDs with R4.
type idTable[D identifiable] struct{ layer[D] }

func (t *idTable[D]) newOverlay(competes bool) idTable[D] {
	return idTable[D]{t.layer.newOverlay(competes)}
}

// register registers a definition by its ID. Among loaded definitions with the same ID, the last one loaded keeps the ID. The
// others get an ID with a hash of their canonical, which is independent of the loading order.
func (t *idTable[D]) register(d D) {
	id := d.identity().ID
	if id == "" {
		return
	}
	if old, taken := t.values[id]; taken && old != d && t.base == nil {
		other := old.identity()
		other.ID = t.unusedID(other)
		t.put(other.ID, old)
	}
	t.put(id, d)
}

// unregister removes a definition that has been replaced.
func (t *idTable[D]) unregister(d D) {
	if id := d.identity().ID; t.values[id] == d {
		delete(t.values, id)
	}
}

// maxID is the maximum length of an ID (R4 datatype id).
const maxID = 64

// unusedID returns an unused ID derived from the definition's ID and canonical.
func (t *idTable[D]) unusedID(d *Definition) (id string) {
	sum := sha256.Sum256([]byte(d.Canonical()))
	hash := hex.EncodeToString(sum[:])
	for digits := 8; digits < maxID; digits *= 2 {
		id = d.ID[:min(len(d.ID), maxID-1-digits)] + "-" + hash[:digits]
		if _, taken := t.values[id]; !taken {
			break
		}
	}
	return id
}
