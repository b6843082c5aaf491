package definitions

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/table"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

// CodeSystem is a CodeSystem resource or a code system from a source. It is immutable once a Set contains it.
type CodeSystem struct {
	Definition
	Concepts       codesystem.Concepts // concepts of the code system
	Content        contentMode         // CodeSystem.content
	CaseSensitive  bool                // CodeSystem.caseSensitive
	Compositional  bool                // CodeSystem.compositional
	VersionNeeded  bool                // CodeSystem.versionNeeded
	isOutdatedCopy bool                // R4's outdated copy of a code system from hl7.terminology
	isLanguagePack bool                // language supplement, which applies without useSupplement
	NotSubsuming   bool                // hierarchyMeaning is grouped-by or part-of
	supplements    string              // canonical of the code system that a supplement extends
	entireValueSet string              // CodeSystem.valueSet
	Copyright      string              // copyright of a source
	CommonCodes    string              // CommonCodes of a source: see [codesystem.Source]
	ReasonIssue    bool                // ReportsReason of a source: see [codesystem.Source]
	isDefault      bool                // IsDefaultEdition of a source: see [codesystem.Source]
	editionName    string              // EditionName of a source: see [codesystem.Source]
	edition        string              // Edition of a source: see [codesystem.Source]
	byValue        string              // ValueSetProperty of a source: see [codesystem.Source]
	isBuiltIn      bool                // from a source: concepts are loaded on first use and must not be read earlier
	isReleased     bool                // from a release, which also implies the value sets
	systemIndex    uint32              // index of the URL in SystemTable.List
	OtherMembers   []fhirjson.Member   // all other members except concept, unchanged
}

// Number returns the number of a concept, or ParsedConcept if the code system is a grammar.
func (cs *CodeSystem) Number(c codesystem.Concept) uint32 {
	if cs.Concepts.List == nil || c.Code != nil {
		return ParsedConcept
	}
	return c.Number
}

// IsComplete reports whether the code system contains every valid code. A grammar without a version may lack recently added
// codes, so it is not complete: codes that a value set enumerates are accepted.
func (cs *CodeSystem) IsComplete() bool {
	return cs.Content == ContentComplete && (cs.Concepts.List != nil || cs.Version != "")
}

// UnknownCode returns the ID and text of HL7's message for a code that the code system does not contain.
func (cs *CodeSystem) UnknownCode(code string) (id, text string) {
	id, text = "Unknown_Code_in", fmt.Sprintf("Unknown code '%s' in the CodeSystem '%s'", code, cs.URL)
	if cs.Version != "" {
		id, text = id+"_Version", fmt.Sprintf("%s version '%s'", text, cs.Version)
	}
	if cs.editionName != "" {
		text += " (" + cs.editionName + ")"
	}
	return id, text
}

// IsSame reports whether a and b are the same concept.
func (cs *CodeSystem) IsSame(a, b codesystem.Concept) bool {
	return a.Number == b.Number && bytes.Equal(a.Code, b.Code)
}

// IsLookupOnlyFor reports whether the code system is a lookup-only substitute for the given version of the complete code
// system. An empty version matches any version.
func (cs *CodeSystem) IsLookupOnlyFor(version string) bool {
	return cs.Content == ContentLookupOnly && slices.Contains([]string{"", cs.Version, cs.edition}, version)
}

// NotEnumerableError returns the error for listing all codes of a grammar without a loaded value set of common codes.
func (cs *CodeSystem) NotEnumerableError() error {
	e := outcome.New(http.StatusUnprocessableEntity, "too-costly", "", "VALUESET_TOO_COSTLY",
		fmt.Sprintf("The code system %s has a grammar, so its codes cannot be listed; list the ones you need in the value set", cs.Canonical()))
	if e.Err = outcome.ErrUnsupported; cs.CommonCodes != "" {
		e.Err, e.Missing = outcome.ErrIncomplete, outcome.MissingOf("ValueSet", cs.CommonCodes, "")
	}
	return e
}

// supersedes reports whether this code system is preferred to one loaded earlier. Any other code system is preferred to R4's
// outdated copies, and the default edition to other editions. Otherwise versions are compared.
func (cs *CodeSystem) supersedes(earlier *CodeSystem) bool {
	if cs.isOutdatedCopy != earlier.isOutdatedCopy {
		return earlier.isOutdatedCopy
	}
	if cs.isDefault != earlier.isDefault {
		return cs.isDefault
	}
	return supersedesVersion(cs.Version, earlier.Version)
}

// contentMode is the value of CodeSystem.content.
type contentMode string

// Values of CodeSystem.content.
const (
	contentNotPresent contentMode = "not-present"
	ContentExample    contentMode = "example"    // code "example"
	ContentFragment   contentMode = "fragment"   // code "fragment"
	ContentComplete   contentMode = "complete"   // code "complete"
	ContentSupplement contentMode = "supplement" // code "supplement"
	ContentLookupOnly contentMode = codesystem.LookupOnly
)

// HasConcepts reports whether some or all of the code system's concepts are loaded.
func (m contentMode) HasConcepts() bool {
	return m == ContentComplete || m.IsPartial()
}

// IsPartial reports whether only some of the codes are loaded, so an unknown code may still be valid.
func (m contentMode) IsPartial() bool { return m == ContentFragment || m == ContentExample }

// replaces reports whether a loaded definition replaces a built-in code system. A complete definition always does, but a
// fragment only replaces a fragment. An example never does, because it would hide a grammar or a full list.
func (m contentMode) replaces(builtIn contentMode) bool {
	return m == ContentComplete || m == ContentFragment && builtIn == ContentFragment
}

// ParsedConcept is Entry.Concept for a code of a grammar. Grammars parse codes and have no concept numbers.
const ParsedConcept = None - 1

// UnlistedConcept is like ParsedConcept, but Entry.Row belongs to another value set and only provides the code.
const UnlistedConcept = ParsedConcept - 1

// None is the index of a missing code system or concept.
const None = ^uint32(0)

// codeSystemBuilder builds a CodeSystem from its members.
type codeSystemBuilder struct {
	CodeSystem
	table table.Builder
	usage *Usage
}

func (b *codeSystemBuilder) reset() {
	b.CodeSystem = CodeSystem{CaseSensitive: true}
	b.table.Modifiers = b.readModifiers
	b.table.Reset()
}

func (b *codeSystemBuilder) build() (*CodeSystem, error) {
	concepts, err := b.table.Build(b.Language, b.CaseSensitive)
	if err != nil {
		return nil, err
	}
	b.usage.applyTo(b.URL, concepts)
	cs := b.CodeSystem
	cs.Concepts = codesystem.DetectInterfaces(concepts)
	return &cs, nil
}

func (b *codeSystemBuilder) readMember(r *fhirjson.Reader, name string) error {
	if known, err := b.Definition.readMember(r, name); known {
		return err
	}
	switch {
	case name == "concept":
		return r.Array(func() error { return b.table.ReadConcept(r) })
	case isIgnored(name):
		return r.Skip()
	}
	inner, err := r.ReadMember(name, &b.OtherMembers)
	if err != nil {
		return err
	}
	return b.readUsedMember(inner, name)
}

// readUsedMember reads a member of CodeSystem that terminology operations use.
func (b *codeSystemBuilder) readUsedMember(r *fhirjson.Reader, name string) error {
	switch name {
	case "caseSensitive":
		return r.ReadBool(&b.CaseSensitive)
	case "compositional":
		return r.ReadBool(&b.Compositional)
	case "versionNeeded":
		return r.ReadBool(&b.VersionNeeded)
	case "hierarchyMeaning":
		meaning, err := r.Text()
		b.NotSubsuming = string(meaning) == "grouped-by" || string(meaning) == "part-of"
		return err
	case "supplements":
		return r.ReadString(&b.supplements)
	case "valueSet":
		return r.ReadString(&b.entireValueSet)
	case "content":
		return r.ReadString((*string)(&b.Content))
	case "extension":
		return b.readExtensions(r)
	case "modifierExtension", "implicitRules":
		return b.readModifiers(r)
	case "property":
		return r.Array(func() error { return b.table.ReadPropertyDefinition(r) })
	}
	return nil
}

func (b *codeSystemBuilder) readExtensions(r *fhirjson.Reader) error {
	list, err := r.Extensions(0)
	for _, x := range list {
		switch x.URL {
		case fhirjson.ExtensionBase + "structuredefinition-standards-status":
			b.standardsStatus = x.Value
		case fhirjson.ExtensionBase + "codesystem-supplement-type":
			b.isLanguagePack = x.Value == "lang-pack"
		}
	}
	return err
}
