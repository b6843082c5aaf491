package terminology

import (
	"bytes"

	"github.com/caddy-fhir/caddy-fhir/terminology/fhirjson"
)

// codeSystem is a CodeSystem with its concepts in flat arrays. A concept is its index in them, which is
// its place in the definition: a parent before its children, depth first. Nothing in it is changed once
// it is built, and no array holds a pointer.
type codeSystem struct {
	definition
	content        contentMode
	caseSensitive  bool
	compositional  bool
	versionNeeded  bool
	languagePack   bool              // a supplement that adds a language, and so is made use of without being named
	notSubsuming   bool              // hierarchyMeaning is grouped-by or part-of: a concept is not what the one above it is
	supplements    string            // canonical of the code system that a supplement adds to
	entireValueSet string            // CodeSystem.valueSet: canonical of the value set of all its codes
	system         uint32            // index of url in systemTable.systems
	rest           []fhirjson.Member // all other members but the concepts, as they are

	texts    texts
	code     []textRef
	display  []textRef // 0 where a concept has none
	meaning  []textRef // concept.definition, 0 where a concept has none; nil where none has one
	flags    []conceptFlags
	index    codeIndex
	nestedIn []uint32 // the concept within which each stands in the definition, or none; nil where all are at the top

	languages    []string // of designations; 0 is none
	uses         []designationUse
	designations designations
	extensions   conceptExtensions

	parents, children relation
	properties        []property
	values            propertyValues

	indexes *searchIndexes // filled when they are needed
}

// definition is what code systems and value sets have alike.
type definition struct {
	id, url, version, name, title, status string
	language, date, publisher             string
	standardsStatus                       string // by the extension of that name
	experimental                          *bool
	modifier                              string // what changes the meaning of it, or of a part of it, in a way not known here
}

// canonical returns url|version, or the url alone where there is no version.
func (d *definition) canonical() string { return canonical(d.url, d.version) }

// isNamed reports whether a canonical means this definition.
func (d *definition) isNamed(reference string) bool {
	url, version := splitCanonical(reference)
	return url == d.url && (version == "" || matchesVersion(d.version, version))
}

// contentMode is CodeSystem.content.
type contentMode string

const (
	contentNotPresent contentMode = "not-present"
	contentExample    contentMode = "example"
	contentFragment   contentMode = "fragment"
	contentComplete   contentMode = "complete"
	contentSupplement contentMode = "supplement"
)

// hasConcepts reports whether the code system's own concepts are here, all of them or some.
func (m contentMode) hasConcepts() bool {
	return m == contentComplete || m == contentFragment || m == contentExample
}

// conceptFlags is what the answer says of a concept beside code and display.
type conceptFlags uint8

const (
	flagAbstract   conceptFlags = 1 << iota // property notSelectable is true
	flagInactive                            // property inactive is true, or status is retired or inactive
	flagDeprecated                          // status is deprecated, or deprecated is true or has a date
	flagStatus                              // has a status that is not active
)

// property is one of CodeSystem.property, or one that a concept has without its being declared.
type property struct{ code, uri, description, kind string }

// valueKind is which value[x] a property has.
type valueKind uint8

const (
	valueCode valueKind = iota
	valueCoding
	valueString
	valueInteger
	valueBoolean
	valueDateTime
	valueDecimal
)

// valueMembers are the names of value[x], by kind.
var valueMembers = [...]string{
	"valueCode", "valueCoding", "valueString", "valueInteger", "valueBoolean", "valueDateTime", "valueDecimal",
}

// propertyValues holds the properties of all concepts, as rows: those of concept i are the rows
// from[i] up to from[i+1].
type propertyValues struct {
	from     []uint32
	property []uint16 // index in codeSystem.properties
	kind     []valueKind
	value    []textRef // as text; of a Coding, its code
	coding   []textRef // of a Coding, all of it as JSON, else 0; nil where there are none
}

// len returns the number of concepts.
func (cs *codeSystem) len() int { return len(cs.code) }

// codeOf returns a concept's code.
func (cs *codeSystem) codeOf(concept uint32) []byte { return cs.texts.at(cs.code[concept]) }

// displayOf returns a concept's display, or nil.
func (cs *codeSystem) displayOf(concept uint32) []byte { return cs.texts.at(cs.display[concept]) }

// concept finds a concept by its code: as it is written, or, where the code system says that case does
// not matter, in any case.
func (cs *codeSystem) concept(code []byte) (uint32, bool) {
	concept, ok := cs.exact(code)
	if ok || cs.caseSensitive {
		return concept, ok
	}
	return cs.index.find(code, func(c uint32) bool { return equalFold(cs.codeOf(c), code) })
}

// exact finds a concept by its code as it is written.
func (cs *codeSystem) exact(code []byte) (uint32, bool) {
	return cs.index.find(code, func(c uint32) bool { return bytes.Equal(cs.codeOf(c), code) })
}

// meaningOf returns a concept's definition, or nil.
func (cs *codeSystem) meaningOf(concept uint32) []byte {
	if cs.meaning == nil {
		return nil
	}
	return cs.texts.at(cs.meaning[concept])
}

// eachValue calls visit with a concept's values of a property until visit returns false.
func (cs *codeSystem) eachValue(concept uint32, property uint16, visit func(value []byte) bool) {
	if cs.values.from == nil {
		return
	}
	for row := cs.values.from[concept]; row < cs.values.from[concept+1]; row++ {
		if cs.values.property[row] == property && !visit(cs.texts.at(cs.values.value[row])) {
			return
		}
	}
}

// propertyIndex finds a property by its code.
func (cs *codeSystem) propertyIndex(code string) (uint16, bool) {
	for i, p := range cs.properties {
		if p.code == code {
			return uint16(i), true
		}
	}
	return 0, false
}

// is reports whether a property is the one that FHIR defines under the given name: by its uri or by its
// code, since many code systems declare no uri, or another.
func (p property) is(name string) bool {
	return p.uri == conceptProperties+name || p.code == name
}

// conceptProperties is the start of the uris of the properties that FHIR itself defines (R4 §4.8.10).
const conceptProperties = "http://hl7.org/fhir/concept-properties#"
