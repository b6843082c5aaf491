package terminology

import (
	"bytes"
	"fmt"
	"net/http"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/fhirjson"
)

// codeSystem is a CodeSystem. It does not change once it is in a library.
type codeSystem struct {
	definition
	concepts       codesystem.Concepts
	content        contentMode
	caseSensitive  bool
	compositional  bool
	versionNeeded  bool
	frozen         bool              // R4's copy of one that HL7 maintains elsewhere
	languagePack   bool              // a supplement that adds a language, and is used without being named
	notSubsuming   bool              // hierarchyMeaning is grouped-by or part-of
	supplements    string            // canonical of the code system that a supplement adds to
	entireValueSet string            // CodeSystem.valueSet
	system         uint32            // index of url in systemTable.systems
	rest           []fhirjson.Member // all other members but concept, unchanged
}

// number returns the number of a concept, or none if the code system does not number its concepts.
func (cs *codeSystem) number(c codesystem.Concept) uint32 {
	if cs.concepts.List == nil {
		return none
	}
	return c.Number
}

// isWhole reports whether a code that is not found is none. A grammar may not know the latest words, so a value set that
// lists such a code keeps it.
func (cs *codeSystem) isWhole() bool { return cs.content == contentComplete && cs.concepts.List != nil }

// isSame reports whether two concepts are one.
func (cs *codeSystem) isSame(a, b codesystem.Concept) bool {
	if cs.concepts.List == nil {
		return bytes.Equal(a.Code, b.Code)
	}
	return a.Number == b.Number
}

// notListed is the error for a code system whose codes are those of a grammar, where all of them are wanted.
func (cs *codeSystem) notListed() error {
	e := issue(http.StatusUnprocessableEntity, "too-costly", "", "VALUESET_TOO_COSTLY",
		fmt.Sprintf("The code system %s has a grammar, so its codes cannot be listed", cs.canonical()))
	e.Err = ErrUnsupported
	return e
}

// definition holds the members that code systems and value sets have in common.
type definition struct {
	id, url, version, name, title, status string
	language, date, publisher             string
	standardsStatus                       string // from the extension
	experimental                          *bool
	modifier                              string // implicit rules or a modifier extension in it, which are not understood
}

func (d *definition) canonical() string { return canonical(d.url, d.version) }

// isNamed reports whether a canonical means this definition.
func (d *definition) isNamed(reference string) bool {
	url, version := splitCanonical(reference)
	return url == d.url && (version == "" || matchesVersion(d.version, version))
}

// supersedes reports whether a code system loaded later is preferred to an earlier one: any to R4's copy, else by their
// versions.
func (cs *codeSystem) supersedes(earlier *codeSystem) bool {
	if cs.frozen != earlier.frozen {
		return earlier.frozen
	}
	return supersedes(cs.version, earlier.version)
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

// hasConcepts reports whether all or some of the code system's own concepts are here.
func (m contentMode) hasConcepts() bool {
	return m == contentComplete || m == contentFragment || m == contentExample
}
