package definitions

import (
	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/table"
)

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
