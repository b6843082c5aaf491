package terminology

import (
	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/fhirjson"
)

// codeSystem is a CodeSystem: what its definition says of it as a whole, and its concepts. Nothing in it is changed once
// it is in a library.
type codeSystem struct {
	codesystem.System
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
