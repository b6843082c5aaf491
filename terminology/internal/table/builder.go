package table

import (
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"slices"

	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/offheap"
)

// Builder reads the concepts of a code system from JSON. It is reused for the next one, so that its arrays grow once;
// Build copies what it has read into arrays of the exact size.
type Builder struct {
	read   source
	nested uint32 // the concept that the next one is nested in

	// Size is the size of the source in bytes; 0 if the concepts will soon be gone again.
	Size int64

	// Memory holds the texts, if they are large, until Build takes them.
	Memory offheap.Memory

	// Modifiers reads the modifier extensions of a concept.
	Modifiers func(r *fhirjson.Reader) error
}

// largeText is from how many bytes of text on a code system is kept off the heap. Room for all of it is reserved at
// once, by estimate.
const largeText = 4 << 20

// reserve makes room for the rest of a large code system, estimated from how much of the source has been read. Unused
// room is never touched, and so never resident.
func (b *Builder) reserve(r *fhirjson.Reader) {
	c := &b.read.concepts
	if len(c.texts) < largeText || cap(c.texts)-len(c.texts) > 1<<16 || b.Size == 0 {
		return
	}
	read := r.Offset()
	factor := min(float64(b.Size)/float64(max(1, read)), 1000) * 1.02
	c.texts = b.Memory.Grow(c.texts, room(len(c.texts), factor))
	c.code, c.display = reserved(c.code, factor), reserved(c.display, factor)
	c.meaning, c.nestedIn = reserved(c.meaning, factor), reserved(c.nestedIn, factor)
	b.read.reader.Designations = reserved(b.read.reader.Designations, factor)
	b.read.properties.rows, b.read.pairs = reserved(b.read.properties.rows, factor), reserved(b.read.pairs, factor)
}

// settle moves a large code system off the heap, and frees the memory needed to build it before the next one is read.
// Collecting is cheap, as there are no pointers to follow.
func (b *Builder) settle(t *Table) {
	m, texts := new(offheap.Memory), b.read.concepts.texts
	t.concepts.texts = slices.Clip(texts)
	if b.Memory.Holds(texts) {
		*m, b.Memory = b.Memory, offheap.Memory{}
	} else {
		offheap.Move(m, (*[]byte)(&t.concepts.texts))
		b.Memory.Release()
	}
	moveArrays(t, m)
	offheap.Own(t, m)
	b.read = source{}
	debug.FreeOSMemory()
}

// reserved returns a list with room for factor times its length.
func reserved[S ~[]T, T any](list S, factor float64) S {
	return slices.Grow(list, room(len(list), factor))
}

// room is how much more than n to reserve.
func room(n int, factor float64) int { return max(1<<17, int(float64(n)*(factor-1))) }

// Reset prepares the builder for the next code system.
func (b *Builder) Reset() {
	b.read.reset()
	b.nested = noParent
}

// PropertyDefinition reads one of CodeSystem.property.
func (b *Builder) PropertyDefinition(r *fhirjson.Reader) error { return b.read.properties.define(r) }

// Concept reads one of CodeSystem.concept with all concepts nested in it.
func (b *Builder) Concept(r *fhirjson.Reader) error {
	b.reserve(r)
	c := &b.read.concepts
	concept, parent := uint32(c.len()), b.nested
	c.code = append(c.code, 0)
	c.display = append(c.display, 0)
	c.meaning = append(c.meaning, 0)
	c.nestedIn = append(c.nestedIn, parent)
	if parent != noParent {
		b.read.pairs = append(b.read.pairs, pair{from: parent, to: concept})
	}
	b.nested = concept
	err := r.Object(func(name []byte) error { return b.conceptMember(r, concept, string(name)) })
	b.nested = parent
	if err == nil && len(c.codeOf(concept)) == 0 {
		err = fmt.Errorf("%s: concept without a code", r.Pointer())
	}
	return err
}

func (b *Builder) conceptMember(r *fhirjson.Reader, concept uint32, name string) error {
	c, reader := &b.read.concepts, &b.read.reader
	switch name {
	case "code":
		return c.texts.Read(r, &c.code[concept])
	case "display":
		return c.texts.Read(r, &c.display[concept])
	case "definition":
		return c.texts.Read(r, &c.meaning[concept])
	case "designation":
		return r.Array(func() error { return reader.Designation(r, &c.texts, concept) })
	case "extension":
		return reader.Extension(r, &c.texts, concept)
	case "modifierExtension":
		return b.Modifiers(r)
	case "property":
		return r.Array(func() error { return b.read.properties.read(r, &c.texts, concept) })
	case "concept":
		return r.Array(func() error { return b.Concept(r) })
	default:
		return r.Skip()
	}
}

// Build returns the concepts of a code system whose displays are in the given language.
func (b *Builder) Build(language string, caseSensitive bool) (*Table, error) {
	read := &b.read
	read.indexCodes()
	if uint64(len(read.concepts.texts)) > math.MaxUint32 {
		return nil, errors.New("more than 4 GiB of text")
	}
	read.relate()
	read.flag()
	n := read.concepts.len()
	t := &Table{
		concepts: read.concepts, language: language, indexes: new(searchIndexes),
		designations: newDesignations(n, &read.reader), extensions: newConceptExtensions(read.reader.Extensions),
		children: newRelation(n, read.pairs), parents: newRelation(n, inverse(read.pairs)),
		properties: read.properties.list, values: read.properties.sorted(n),
	}
	c := &t.concepts
	c.caseSensitive = caseSensitive
	c.code, c.display, c.flags = slices.Clone(c.code), slices.Clone(c.display), slices.Clone(c.flags)
	c.meaning, c.nestedIn = cloneUsed(c.meaning, 0), cloneUsed(c.nestedIn, noParent)
	if len(c.texts) >= largeText && b.Size > 0 { // a request's own is soon gone again
		b.settle(t)
	} else {
		c.texts = slices.Clone(c.texts)
	}
	return t, nil
}

// cloneUsed copies a list, or returns nil if every item equals unused.
func cloneUsed[T ~uint32](list []T, unused T) []T {
	if !slices.ContainsFunc(list, func(v T) bool { return v != unused }) {
		return nil
	}
	return slices.Clone(list)
}
