package table

import (
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"slices"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/offheap"
)

// Builder reads the concepts of a code system from JSON. It is reused for the next one, so that its arrays grow once;
// Build copies what it has read into arrays of the exact size.
type Builder struct {
	Table
	reader codesystem.ConceptReader
	pairs  []pair // parent, child
	rows   []propertyRow
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
	if len(b.texts) < largeText || cap(b.texts)-len(b.texts) > 1<<16 || b.Size == 0 {
		return
	}
	read := r.Offset()
	factor := min(float64(b.Size)/float64(max(1, read)), 1000) * 1.02
	b.texts = b.Memory.Grow(b.texts, room(len(b.texts), factor))
	b.code, b.display = reserved(b.code, factor), reserved(b.display, factor)
	b.meaning, b.nestedIn = reserved(b.meaning, factor), reserved(b.nestedIn, factor)
	b.reader.Designations = reserved(b.reader.Designations, factor)
	b.rows, b.pairs = reserved(b.rows, factor), reserved(b.pairs, factor)
}

// settle moves a large code system off the heap, and frees the memory needed to build it before the next one is read.
// Collecting is cheap, as there are no pointers to follow.
func (b *Builder) settle(t *Table) {
	m := new(offheap.Memory)
	t.texts = slices.Clip(b.texts)
	if b.Memory.Holds(b.texts) {
		*m, b.Memory = b.Memory, offheap.Memory{}
	} else {
		offheap.Move(m, (*[]byte)(&t.texts))
		b.Memory.Release()
	}
	t.settle(m)
	offheap.Own(t, m)
	b.Table = Table{}
	b.pairs, b.rows, b.reader.Designations = nil, nil, nil
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
	b.Table = Table{concepts: concepts{
		texts: b.texts[:0], code: b.code[:0], display: b.display[:0], meaning: b.meaning[:0], nestedIn: b.nestedIn[:0], flags: b.flags[:0],
	}}
	b.reader.Reset()
	b.pairs, b.rows, b.nested = b.pairs[:0], b.rows[:0], noParent
}

// Concept reads one of CodeSystem.concept with all concepts nested in it.
func (b *Builder) Concept(r *fhirjson.Reader) error {
	b.reserve(r)
	concept, parent := uint32(b.Len()), b.nested
	b.code = append(b.code, 0)
	b.display = append(b.display, 0)
	b.meaning = append(b.meaning, 0)
	b.nestedIn = append(b.nestedIn, parent)
	if parent != noParent {
		b.pairs = append(b.pairs, pair{from: parent, to: concept})
	}
	b.nested = concept
	err := r.Object(func(name []byte) error { return b.conceptMember(r, concept, string(name)) })
	b.nested = parent
	if err == nil && len(b.codeOf(concept)) == 0 {
		err = fmt.Errorf("%s: concept without a code", r.Pointer())
	}
	return err
}

func (b *Builder) conceptMember(r *fhirjson.Reader, concept uint32, name string) error {
	switch name {
	case "code":
		return b.texts.Read(r, &b.code[concept])
	case "display":
		return b.texts.Read(r, &b.display[concept])
	case "definition":
		return b.texts.Read(r, &b.meaning[concept])
	case "designation":
		return r.Array(func() error { return b.reader.Designation(r, &b.texts, concept) })
	case "extension":
		return b.reader.Extension(r, &b.texts, concept)
	case "modifierExtension":
		return b.Modifiers(r)
	case "property":
		return r.Array(func() error { return b.value(r, concept) })
	case "concept":
		return r.Array(func() error { return b.Concept(r) })
	default:
		return r.Skip()
	}
}

// Build returns the concepts of a code system whose displays are in the given language.
func (b *Builder) Build(language string, caseSensitive bool) (*Table, error) {
	b.indexCodes()
	if uint64(len(b.texts)) > math.MaxUint32 {
		return nil, errors.New("more than 4 GiB of text")
	}
	b.relate()
	b.flag()
	t := b.Table
	t.language, t.caseSensitive = language, caseSensitive
	t.meaning = cloneUsed(b.meaning, 0)
	t.nestedIn = cloneUsed(b.nestedIn, noParent)
	t.designations = newDesignations(b.Len(), b.reader.Designations)
	t.designations.languages, t.designations.uses = b.reader.Languages, b.reader.Uses
	t.extensions = newConceptExtensions(b.reader.Extensions)
	t.flags = slices.Clone(b.flags)
	t.values = b.sortedValues()
	t.indexes = new(searchIndexes)
	t.code, t.display = slices.Clone(b.code), slices.Clone(b.display)
	if len(b.texts) >= largeText && b.Size > 0 { // a request's own is soon gone again
		b.settle(&t)
	} else {
		t.texts = slices.Clone(b.texts)
	}
	return &t, nil
}

// cloneUsed copies a list, or returns nil if every item equals unused.
func cloneUsed[T ~uint32](list []T, unused T) []T {
	if !slices.ContainsFunc(list, func(v T) bool { return v != unused }) {
		return nil
	}
	return slices.Clone(list)
}
