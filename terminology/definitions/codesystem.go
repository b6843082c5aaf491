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

// CodeSystem is a CodeSystem. It does not change once it is in a library.
type CodeSystem struct {
	Definition
	Concepts       codesystem.Concepts // what it says of its codes
	Content        contentMode         // CodeSystem.content
	CaseSensitive  bool                // CodeSystem.caseSensitive
	Compositional  bool                // CodeSystem.compositional
	VersionNeeded  bool                // CodeSystem.versionNeeded
	frozen         bool                // R4's copy of one that HL7 maintains elsewhere
	languagePack   bool                // a supplement that adds a language, and is used without being named
	NotSubsuming   bool                // hierarchyMeaning is grouped-by or part-of
	supplements    string              // canonical of the code system that a supplement adds to
	entireValueSet string              // CodeSystem.valueSet
	Copyright      string              // of a source
	Common         string              // of a source: see [codesystem.Source]
	ReasonIssue    bool                // of a source: see [codesystem.Source]
	edition        string              // of a source: see [codesystem.Source]
	byValue        string              // of a source, as is Common
	builtIn        bool                // is a source, whose concepts must not be read before they are needed
	system         uint32              // index of url in systemTable.systems
	Rest           []fhirjson.Member   // all other members but concept, unchanged
}

// Number returns the number of a concept, or Parsed if it has none.
func (cs *CodeSystem) Number(c codesystem.Concept) uint32 {
	if cs.Concepts.List == nil || c.Code != nil {
		return Parsed
	}
	return c.Number
}

// IsWhole reports whether a code that is not found is none. A grammar without a version may not know the latest words, so a
// value set that lists such a code keeps it.
func (cs *CodeSystem) IsWhole() bool {
	return cs.Content == ContentComplete && (cs.Concepts.List != nil || cs.Version != "")
}

// UnknownCode tells people that a code is none of the code system, and names the message as HL7 does.
func (cs *CodeSystem) UnknownCode(code string) (id, text string) {
	id, text = "Unknown_Code_in", fmt.Sprintf("Unknown code '%s' in the CodeSystem '%s'", code, cs.URL)
	if cs.Version != "" {
		id, text = id+"_Version", fmt.Sprintf("%s version '%s'", text, cs.Version)
	}
	return id, text
}

// IsSame reports whether two concepts are one.
func (cs *CodeSystem) IsSame(a, b codesystem.Concept) bool {
	return a.Number == b.Number && bytes.Equal(a.Code, b.Code)
}

// StandsInFor reports whether it stands in for a version of the code system, "" for any.
func (cs *CodeSystem) StandsInFor(version string) bool {
	return cs.Content == ContentStandIn && slices.Contains([]string{"", cs.Version, cs.edition}, version)
}

// NotListed is the error for a code system whose codes are those of a grammar, where all of them are wanted and no value
// set of common ones is here.
func (cs *CodeSystem) NotListed() error {
	e := outcome.New(http.StatusUnprocessableEntity, "too-costly", "", "VALUESET_TOO_COSTLY",
		fmt.Sprintf("The code system %s has a grammar, so its codes cannot be listed; list the ones you need in the value set", cs.Canonical()))
	if e.Err = outcome.ErrUnsupported; cs.Common != "" {
		e.Err, e.Missing = outcome.ErrIncomplete, outcome.MissingOf("ValueSet", cs.Common, "")
	}
	return e
}

// supersedes reports whether a code system loaded later is preferred to an earlier one: any to R4's copy, else by their
// versions.
func (cs *CodeSystem) supersedes(earlier *CodeSystem) bool {
	if cs.frozen != earlier.frozen {
		return earlier.frozen
	}
	return supersedes(cs.Version, earlier.Version)
}

// contentMode is CodeSystem.content.
type contentMode string

// The values of CodeSystem.content.
const (
	contentNotPresent contentMode = "not-present"
	ContentExample    contentMode = "example"    // the code example
	ContentFragment   contentMode = "fragment"   // the code fragment
	ContentComplete   contentMode = "complete"   // the code complete
	ContentSupplement contentMode = "supplement" // the code supplement
	ContentStandIn    contentMode = codesystem.StandIn
)

// HasConcepts reports whether all or some of the code system's own concepts are here.
func (m contentMode) HasConcepts() bool {
	return m == ContentComplete || m.IsPart()
}

// IsPart reports whether the code system has more codes than are here, so that a code that is not found may be valid.
func (m contentMode) IsPart() bool { return m == ContentFragment || m == ContentExample }

// replaces reports whether a definition takes the place of a built-in code system: a complete one always does, and a
// fragment that of a fragment. An example never does, since it would hide a grammar or a full list.
func (m contentMode) replaces(builtIn contentMode) bool {
	return m == ContentComplete || m == ContentFragment && builtIn == ContentFragment
}

// Parsed is the concept of an entry whose code system reads codes rather than listing them.
const Parsed = None - 1

// Unlisted is Parsed for an entry that has its code from another value set, which does not count otherwise.
const Unlisted = Parsed - 1

// None is the index of no code system or concept.
const None = ^uint32(0)

// codeSystemBuilder reads a CodeSystem.
type codeSystemBuilder struct {
	CodeSystem
	table table.Builder
	usage *Usage
}

func (b *codeSystemBuilder) reset() {
	b.CodeSystem = CodeSystem{CaseSensitive: true}
	b.table.Modifiers = b.modifiers
	b.table.Reset()
}

func (b *codeSystemBuilder) build() (*CodeSystem, error) {
	concepts, err := b.table.Build(b.Language, b.CaseSensitive)
	if err != nil {
		return nil, err
	}
	b.usage.weigh(b.URL, concepts)
	cs := b.CodeSystem
	cs.Concepts = codesystem.Of(concepts)
	return &cs, nil
}

func (b *codeSystemBuilder) member(r *fhirjson.Reader, name string) error {
	if known, err := b.Definition.member(r, name); known {
		return err
	}
	switch {
	case name == "concept":
		return r.Array(func() error { return b.table.Concept(r) })
	case isLeftOut(name):
		return r.Skip()
	}
	inner, err := r.Keep(name, &b.Rest)
	if err != nil {
		return err
	}
	return b.known(inner, name)
}

// known reads a member that has a meaning here.
func (b *codeSystemBuilder) known(r *fhirjson.Reader, name string) error {
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
		return b.extensions(r)
	case "modifierExtension", "implicitRules":
		return b.modifiers(r)
	case "property":
		return r.Array(func() error { return b.table.PropertyDefinition(r) })
	}
	return nil
}

func (b *codeSystemBuilder) extensions(r *fhirjson.Reader) error {
	list, err := r.Extensions(0)
	for _, x := range list {
		switch x.URL {
		case fhirjson.ExtensionBase + "structuredefinition-standards-status":
			b.standardsStatus = x.Value
		case fhirjson.ExtensionBase + "codesystem-supplement-type":
			b.languagePack = x.Value == "lang-pack"
		}
	}
	return err
}
