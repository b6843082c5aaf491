package ecl

import "github.com/caddy-fhir/caddy-fhir/terminology/internal/bitset"

// Content is the snapshot of an edition that expressions are evaluated against. Concepts are numbered from 0 to Len()-1, parents
// before children: the evaluator depends on this order. Sets contain concept numbers and are created by [bitset.New] with Len(). A
// Content is safe for concurrent use and never changes. Callers must not modify the sets and slices that its methods return.
type Content interface {
	// Len returns the number of concepts, active and inactive.
	Len() int

	// Number returns the number of the concept with an SCTID.
	Number(id uint64) (concept uint32, ok bool)

	// ID returns the SCTID of a concept.
	ID(concept uint32) uint64

	// AlternateIdentifier returns the concept with a code in the identifier file. It ignores the case of the scheme alias.
	AlternateIdentifier(scheme, code string) (concept uint32, ok bool)

	// Active returns the active concepts.
	Active() bitset.Set

	// Parents returns the destinations of a concept's active is-a relationships.
	Parents(concept uint32) []uint32

	// Children returns the sources of the active is-a relationships to a concept.
	Children(concept uint32) []uint32

	// Relationships returns the active inferred relationships without is-a and without concrete values.
	Relationships() *Relationships

	// ConcreteValues returns the active relationships with concrete values.
	ConcreteValues() *ConcreteValues

	// Refsets returns the reference sets that have rows for concepts, active or inactive.
	Refsets() []uint32

	// Members returns the concepts of the active rows of a reference set in ascending order, with or without duplicates. It
	// returns nil for concepts that are not reference sets of concepts.
	Members(refset uint32) []uint32

	// MemberFields returns the names of the additional columns of a reference set, such as mapTarget. The columns id,
	// effectiveTime, active, moduleId, refsetId and referencedComponentId are not additional columns.
	MemberFields(refset uint32) []string

	// EachMember calls visit with the rows of a reference set, active and inactive, until visit returns false. The Member and
	// its fields are valid only during the call.
	EachMember(refset uint32, visit func(m *Member) bool)

	// Associations returns the column targetComponentId of the active rows of an association reference set, parallel to
	// Members with duplicates. A target that is not a concept of the edition is [NoConcept]. It returns nil if the reference
	// set does not have this column.
	Associations(refset uint32) (components, targets []uint32)

	// EachDescription calls visit with the descriptions and text definitions of a concept, active and inactive, until visit
	// returns false. The Description and its fields are valid only during the call.
	EachDescription(concept uint32, visit func(d *Description) bool)

	// FindWords returns a superset of the concepts with an active description or text definition that contains each of words as
	// the beginning of a word. Words have the form in which [textindex.Fold] returns them. ok is false if the content has no
	// index. spend charges steps of about fifty nanoseconds; its error is returned.
	FindWords(words []string, spend func(steps int) error) (concepts bitset.Set, ok bool, err error)

	// Metadata returns the columns of the concept file for a concept.
	Metadata(concept uint32) Metadata
}

// NoConcept is the number of a concept that is not part of the edition.
const NoConcept = ^uint32(0)

// Metadata contains columns of the concept file.
type Metadata struct {
	// Module and DefinitionStatus are SCTIDs.
	Module, DefinitionStatus uint64

	// EffectiveTime is YYYYMMDD as a number, or 0 for an unpublished concept.
	EffectiveTime uint32
}

// Relationships are the columns of the relationship file, sorted by source, then group. The source and type of a row are always
// concepts of the edition.
type Relationships struct {
	// From contains the first row of each source, followed by the number of rows. It has Len()+1 values.
	From []uint32

	// Source, Type and Destination are the columns of the same names, as concept numbers.
	Source, Type, Destination []uint32

	// Group is the column relationshipGroup. 0 means that a relationship is not grouped.
	Group []uint16

	// ByDestination contains the rows sorted by destination, then row; rows ByDestination[To[i]:To[i+1]] have the destination i.
	To, ByDestination []uint32
}

// ConcreteValues are the columns of the file of relationships with concrete values, sorted by source.
type ConcreteValues struct {
	// Source and Type are columns as in Relationships.
	Source, Type []uint32

	// Group is a column as in Relationships.
	Group []uint16

	// Value returns the value of a row as in the file: a number after #, a string in double quotes, or true or false.
	Value func(row int) []byte
}

// Member is a row of a reference set.
type Member struct {
	// Component is the concept in referencedComponentId, or [NoConcept].
	Component uint32

	// Module is the SCTID in moduleId.
	Module uint64

	// EffectiveTime is YYYYMMDD as a number, or 0 for an unpublished row.
	EffectiveTime uint32

	// Active is the column active.
	Active bool

	// Fields are the additional columns as in the file, in the order of MemberFields.
	Fields [][]byte
}

// Description is a description or a text definition.
type Description struct {
	// ID is the SCTID of the description.
	ID uint64

	// Term is the text.
	Term []byte

	// Language is the language code as in the file, such as en.
	Language string

	// Type and Module are SCTIDs.
	Type, Module uint64

	// EffectiveTime is YYYYMMDD as a number, or 0 for an unpublished description.
	EffectiveTime uint32

	// Active is the column active.
	Active bool

	// Dialects are the active rows of language reference sets for the description.
	Dialects []Dialect
}

// Dialect is a row of a language reference set.
type Dialect struct {
	// Refset is the SCTID of the reference set. Acceptability is the SCTID of preferred or acceptable.
	Refset, Acceptability uint64
}
