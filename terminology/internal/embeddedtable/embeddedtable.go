// Package embeddedtable implements embedded code systems. They are CodeSystem resources in zstd-compressed JSON, which is
// decompressed when the concepts are first used.
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

// New returns the concepts of a CodeSystem resource in zstd-compressed JSON. It does not read the data. Invalid data is a
// programming error and causes a panic on first use.
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

// WithWeights returns the same code system with usage weights.
func (s *system) WithWeights(weights iter.Seq2[string, float64]) codesystem.System {
	return newSystem(s.data, weights)
}

// Unpack decompresses zstd data at once. A stream could allocate a window of megabytes for a few kilobytes.
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

// Locate and the following methods implement [codesystem.System] and the other interfaces of a [table.Table].
func (s *system) Locate(code []byte) (codesystem.Concept, bool) { return s.table().Locate(code) }

func (s *system) Code(c codesystem.Concept) []byte { return s.table().Code(c) }

func (s *system) Concept(c codesystem.Concept) (code, display []byte, flags codesystem.Flags) {
	return s.table().Concept(c)
}

func (s *system) AppendTexts(dst []codesystem.Text, c codesystem.Concept) []codesystem.Text {
	return s.table().AppendTexts(dst, c)
}

func (s *system) AppendValues(dst []codesystem.Value, c codesystem.Concept) []codesystem.Value {
	return s.table().AppendValues(dst, c)
}

func (s *system) Language() string { return s.table().Language() }

func (s *system) Len() int { return s.table().Len() }

func (s *system) AppendConcepts(dst []byte) []byte { return s.table().AppendConcepts(dst) }

func (s *system) Parents(concept uint32) []uint32 { return s.table().Parents(concept) }

func (s *system) Children(concept uint32) []uint32 { return s.table().Children(concept) }

func (s *system) Above(concept uint32, spend func(steps int) error) (bitset.Set, error) {
	return s.table().Above(concept, spend)
}

func (s *system) Below(concept uint32, spend func(steps int) error) (bitset.Set, error) {
	return s.table().Below(concept, spend)
}

func (s *system) Properties() []codesystem.Property { return s.table().Properties() }

func (s *system) Values(c codesystem.Concept, property int, visit func(text []byte) bool) {
	s.table().Values(c, property, visit)
}

func (s *system) Definition(c codesystem.Concept) []byte { return s.table().Definition(c) }

func (s *system) Status(c codesystem.Concept) string { return s.table().Status(c) }

func (s *system) AppendExtensions(dst []codesystem.Extension, c codesystem.Concept) []codesystem.Extension {
	return s.table().AppendExtensions(dst, c)
}

func (s *system) HasLanguage(language string) bool { return s.table().HasLanguage(language) }

func (s *system) SearchIndex(languages string) *textindex.Index {
	return s.table().SearchIndex(languages)
}

func (s *system) SearchRank(concept uint32) uint32 { return s.table().SearchRank(concept) }

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
