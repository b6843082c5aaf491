// Package embeddedtable implements embedded code systems: CodeSystem resources as zstd-compressed JSON, decompressed when
// their concepts are first used.
package embeddedtable

import (
	"fmt"
	"iter"
	"math"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/bitset"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/table"
	"github.com/caddy-fhir/caddy-fhir/terminology/textindex"
)

// New returns the concepts of a CodeSystem resource, given as zstd-compressed JSON. It does not read the data. Invalid
// data is a programming error and causes a panic on first use.
func New(data []byte) codesystem.System { return newSystem(data, nil) }

func newSystem(data []byte, weights iter.Seq2[string, float64]) *system {
	return &system{data: data, table: sync.OnceValue(func() *table.Table {
		t, err := buildTable(data)
		if err != nil {
			panic(fmt.Errorf("reading embedded code system: %w", err))
		}
		if weights != nil {
			t.SetWeights(weights)
		}
		return t
	})}
}

// system is a table that is built on first use.
type system struct {
	data  []byte
	table func() *table.Table
}

// WithWeights returns the same concepts with usage weights.
func (s *system) WithWeights(weights iter.Seq2[string, float64]) codesystem.System {
	return newSystem(s.data, weights)
}

// Unpack decompresses zstd data as a whole: a stream could use a window of megabytes for a few kilobytes.
func Unpack(data []byte) ([]byte, error) {
	decoder, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true))
	if err != nil {
		return nil, err
	}
	defer decoder.Close()
	return decoder.DecodeAll(data, nil)
}

// buildTable builds the table of a CodeSystem.
func buildTable(data []byte) (*table.Table, error) {
	resource, err := Unpack(data)
	if err != nil {
		return nil, err
	}
	language, caseSensitive := "", true
	b, r := table.Builder{Modifiers: (*fhirjson.Reader).Skip}, fhirjson.NewValueReader(resource)
	b.Reset()
	err = r.WithOverhead(fhirjson.NewOverhead(math.MaxInt64)).Object(func(name []byte) error {
		switch string(name) {
		case "language":
			return r.ReadString(&language)
		case "caseSensitive":
			return r.ReadBool(&caseSensitive)
		case "property":
			return r.Array(func() error { return b.ReadPropertyDefinition(r) })
		case "concept":
			return r.Array(func() error { return b.ReadConcept(r) })
		}
		return r.Skip()
	})
	if err != nil {
		return nil, err
	}
	return b.Build(language, caseSensitive)
}

// Locate and the following methods implement [codesystem.System] and the other interfaces of a table.
func (s *system) Locate(code []byte) (codesystem.Concept, bool) { return s.table().Locate(code) }

// Code returns the code of a concept.
func (s *system) Code(c codesystem.Concept) []byte { return s.table().Code(c) }

// Concept returns the code, display and flags of a concept.
func (s *system) Concept(c codesystem.Concept) (code, display []byte, flags codesystem.Flags) {
	return s.table().Concept(c)
}

// AppendTexts appends the display and designations of a concept.
func (s *system) AppendTexts(dst []codesystem.Text, c codesystem.Concept) []codesystem.Text {
	return s.table().AppendTexts(dst, c)
}

// AppendValues appends the values of all properties of a concept.
func (s *system) AppendValues(dst []codesystem.Value, c codesystem.Concept) []codesystem.Value {
	return s.table().AppendValues(dst, c)
}

// Language returns the language of the displays.
func (s *system) Language() string { return s.table().Language() }

// Len returns the number of concepts.
func (s *system) Len() int { return s.table().Len() }

// AppendConcepts appends the JSON member concept.
func (s *system) AppendConcepts(dst []byte) []byte { return s.table().AppendConcepts(dst) }

// Parents returns the direct parents of a concept.
func (s *system) Parents(concept uint32) []uint32 { return s.table().Parents(concept) }

// Children returns the direct children of a concept.
func (s *system) Children(concept uint32) []uint32 { return s.table().Children(concept) }

// Above returns all ancestors of a concept.
func (s *system) Above(concept uint32, spend func(steps int) error) (bitset.Set, error) {
	return s.table().Above(concept, spend)
}

// Below returns all descendants of a concept.
func (s *system) Below(concept uint32, spend func(steps int) error) (bitset.Set, error) {
	return s.table().Below(concept, spend)
}

// Properties returns the declared properties of concepts.
func (s *system) Properties() []codesystem.Property { return s.table().Properties() }

// Values calls visit with the values of a property of a concept.
func (s *system) Values(c codesystem.Concept, property int, visit func(text []byte) bool) {
	s.table().Values(c, property, visit)
}

// Definition returns the definition of a concept, or nil.
func (s *system) Definition(c codesystem.Concept) []byte { return s.table().Definition(c) }

// Status returns the status of a concept other than active, or "".
func (s *system) Status(c codesystem.Concept) string { return s.table().Status(c) }

// AppendExtensions appends the extensions of a concept.
func (s *system) AppendExtensions(dst []codesystem.Extension, c codesystem.Concept) []codesystem.Extension {
	return s.table().AppendExtensions(dst, c)
}

// HasLanguage reports whether texts in a language or a similar one exist.
func (s *system) HasLanguage(language string) bool { return s.table().HasLanguage(language) }

// SearchIndex returns the search index for a list of languages.
func (s *system) SearchIndex(languages string) *textindex.Index {
	return s.table().SearchIndex(languages)
}

// SearchRank returns the rank of a concept among equally good matches.
func (s *system) SearchRank(concept uint32) uint32 { return s.table().SearchRank(concept) }

// SearchWeight returns the usage weight of a concept.
func (s *system) SearchWeight(concept uint32) float64 { return s.table().SearchWeight(concept) }

var (
	_ codesystem.System       = (*system)(nil)
	_ codesystem.List         = (*system)(nil)
	_ codesystem.Hierarchy    = (*system)(nil)
	_ codesystem.Filterable   = (*system)(nil)
	_ codesystem.Annotations  = (*system)(nil)
	_ codesystem.Multilingual = (*system)(nil)
	_ codesystem.Searchable   = (*system)(nil)
)
