package terminology

import (
	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem/table"
	"github.com/caddy-fhir/caddy-fhir/terminology/fhirjson"
)

// codeSystemBuilder reads a CodeSystem.
type codeSystemBuilder struct {
	codeSystem
	table table.Builder
	usage *usage
}

func (b *codeSystemBuilder) reset() {
	b.codeSystem = codeSystem{caseSensitive: true}
	b.table.Modifiers = b.modifiers
	b.table.Reset()
}

func (b *codeSystemBuilder) build() (*codeSystem, error) {
	concepts, err := b.table.Build(b.language, b.caseSensitive)
	if err != nil {
		return nil, err
	}
	b.usage.weigh(b.url, concepts)
	cs := b.codeSystem
	cs.concepts = codesystem.Of(concepts)
	return &cs, nil
}

func (b *codeSystemBuilder) member(r *fhirjson.Reader, name string) error {
	if known, err := b.definition.member(r, name); known {
		return err
	}
	switch {
	case name == "concept":
		return r.Array(func() error { return b.table.Concept(r) })
	case isLeftOut(name):
		return r.Skip()
	}
	inner, err := r.Keep(name, &b.rest)
	if err != nil {
		return err
	}
	return b.known(inner, name)
}

// known reads a member that has a meaning here.
func (b *codeSystemBuilder) known(r *fhirjson.Reader, name string) error {
	switch name {
	case "caseSensitive":
		return r.ReadBool(&b.caseSensitive)
	case "compositional":
		return r.ReadBool(&b.compositional)
	case "versionNeeded":
		return r.ReadBool(&b.versionNeeded)
	case "hierarchyMeaning":
		meaning, err := r.Text()
		b.notSubsuming = string(meaning) == "grouped-by" || string(meaning) == "part-of"
		return err
	case "supplements":
		return r.ReadString(&b.supplements)
	case "valueSet":
		return r.ReadString(&b.entireValueSet)
	case "content":
		return r.ReadString((*string)(&b.content))
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
