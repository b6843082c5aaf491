package definitions

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
	"github.com/caddy-fhir/caddy-fhir/terminology/parameters"
)

type valueSetBuilder struct {
	library *Set
	vs      ValueSet
	systems []*CodeSystem // contained
	stored  *storedExpansion
	depth   int // of contained resources
}

// member reads one member of a ValueSet. Most are also kept as they are, for includeDefinition.
func (b *valueSetBuilder) member(r *fhirjson.Reader, name string) error {
	if known, err := b.vs.Definition.member(r, name); known {
		return err
	}
	if name == "expansion" {
		return b.expansion(r)
	}
	if isLeftOut(name) {
		return r.Skip()
	}
	inner, err := r.Keep(name, &b.vs.Rest)
	if err != nil {
		return err
	}
	return b.known(inner, name)
}

// known reads a member that expansion needs.
func (b *valueSetBuilder) known(r *fhirjson.Reader, name string) error {
	switch name {
	case "compose":
		return b.compose(r)
	case "contained":
		return r.Array(func() error { return b.contained(r) })
	case "extension":
		return b.extensions(r)
	case "modifierExtension", "implicitRules":
		return b.vs.modifiers(r)
	}
	return nil
}

// extensions reads the extensions of a value set or of its compose.
func (b *valueSetBuilder) extensions(r *fhirjson.Reader) error {
	list, err := r.Extensions(0)
	for _, x := range list {
		switch x.URL {
		case fhirjson.ExtensionBase + "structuredefinition-standards-status":
			b.vs.standardsStatus = x.Value
		case fhirjson.ExtensionBase + "valueset-supplement":
			b.vs.Supplements = append(b.vs.Supplements, x.Value)
		case fhirjson.ExtensionBase + "valueset-expansion-parameter", toolsExtensionBase + "valueset-expansion-parameter":
			b.vs.Defaults = append(b.vs.Defaults, parameters.Input{Name: x.Part("name"), Value: x.Part("value")})
		}
	}
	return err
}

// toolsExtensionBase is the start of the urls of extensions that are not yet part of FHIR.
const toolsExtensionBase = "http://hl7.org/fhir/tools/StructureDefinition/"

// contained reads a contained resource. Only value sets and code systems are of use.
func (b *valueSetBuilder) contained(r *fhirjson.Reader) error {
	raw, err := r.Value('{')
	if err != nil || b.depth > 0 {
		return err
	}
	if err := bring(b.library); err != nil {
		return err
	}
	if err := r.Shortage().Add(int64(len(raw)), shortDefinition); err != nil {
		return err
	}
	kind, err := fhirjson.ResourceType(raw)
	x := r.Inner(raw.Clone())
	switch {
	case err != nil:
		return err
	case kind == "ValueSet":
		return b.containedValueSet(x)
	case kind == "CodeSystem":
		return b.containedCodeSystem(x)
	}
	return nil
}

func (b *valueSetBuilder) containedValueSet(r *fhirjson.Reader) error {
	inner := valueSetBuilder{library: b.library, depth: b.depth + 1}
	err := r.Object(func(name []byte) error { return inner.member(r, string(name)) })
	inner.stored.adopt(&inner.vs)
	b.vs.Contained = append(b.vs.Contained, &inner.vs)
	return err
}

func (b *valueSetBuilder) containedCodeSystem(r *fhirjson.Reader) error {
	inner := codeSystemBuilder{usage: &b.library.Usage}
	inner.reset()
	if err := r.Object(func(name []byte) error { return inner.member(r, string(name)) }); err != nil {
		return err
	}
	cs, err := inner.build()
	b.systems = append(b.systems, cs)
	return err
}

// build returns the value set with what it contains. A contained code system without a url gets the value set's, with
// its id as the fragment.
func (b *valueSetBuilder) build() *ValueSet {
	vs := b.vs
	b.stored.adopt(&vs)
	for _, inner := range vs.Contained {
		inner.Container = &vs
		if vs.URL != "" && inner.ID != "" {
			inner.Key = vs.URL + "|" + vs.Version + "#" + inner.ID
		}
	}
	for _, cs := range b.systems {
		if cs.URL == "" {
			cs.URL = vs.URL + "#" + cs.ID
		}
		vs.CodeSystems = append(vs.CodeSystems, b.library.Systems.addContained(cs))
	}
	return &vs
}

func (b *valueSetBuilder) compose(r *fhirjson.Reader) error {
	b.vs.Composed = true
	return r.Object(func(name []byte) error {
		switch string(name) {
		case "inactive":
			var inactive bool
			err := r.ReadBool(&inactive)
			b.vs.ActiveOnly = !inactive
			return err
		case "lockedDate":
			return r.ReadString(&b.vs.LockedDate)
		case "include":
			return r.ArrayOf(shortPart, func() error { return b.conceptSet(r, &b.vs.Include) })
		case "exclude":
			return r.ArrayOf(shortPart, func() error { return b.conceptSet(r, &b.vs.Exclude) })
		case "extension":
			return b.extensions(r)
		case "modifierExtension":
			return b.vs.modifiers(r)
		default:
			return r.Skip()
		}
	})
}

// conceptSet reads one of compose.include or exclude into list.
func (b *valueSetBuilder) conceptSet(r *fhirjson.Reader, list *[]ConceptSet) error {
	var set ConceptSet
	rows := &b.library.rows
	set.First = rows.end()
	err := r.Object(func(name []byte) error {
		switch string(name) {
		case "system":
			return r.ReadName(&set.System)
		case "version":
			return r.ReadName(&set.Version)
		case "concept":
			set.Enumerated = true
			return r.Array(func() error { return b.concept(r) })
		case "filter":
			return r.Array(func() error { return b.filter(r, &set) })
		case "valueSet":
			return r.Array(func() error {
				set.ValueSets = append(set.ValueSets, "")
				return r.ReadString(&set.ValueSets[len(set.ValueSets)-1])
			})
		case "modifierExtension":
			return b.vs.modifiers(r)
		default:
			return r.Skip()
		}
	})
	set.Last = rows.end()
	if set.Enumerated {
		system := b.library.Systems.internSystem(set.System)
		for range set.Last - set.First {
			rows.system = append(rows.system, system)
		}
	}
	*list = append(*list, set)
	return err
}

func (b *valueSetBuilder) filter(r *fhirjson.Reader, set *ConceptSet) error {
	var f Filter
	var later string
	err := r.Object(func(name []byte) error {
		switch string(name) {
		case "_op":
			return r.Object(func(name []byte) error {
				if string(name) != "extension" {
					return r.Skip()
				}
				return b.laterOperator(r, &later)
			})
		case "extension":
			return b.laterOperator(r, &later)
		case "property":
			return r.ReadString(&f.Property)
		case "op":
			return r.ReadString(&f.Op)
		case "value":
			return r.ReadString(&f.Value)
		case "modifierExtension":
			return b.vs.modifiers(r)
		default:
			return r.Skip()
		}
	})
	f.Op = cmp.Or(later, f.Op)
	set.Filters = append(set.Filters, f)
	return err
}

// filterExtensions is how the urls of the extensions end in which later releases of FHIR write what R4's filters cannot
// hold: op, an operator, and filter, a filter within a filter.
const filterExtensions = "/StructureDefinition/extension-ValueSet.compose.include.filter."

// laterOperator reads the operator of a later release of FHIR from the extensions of a filter or of its operator. Filters
// within a filter are not supported, so a value set that has one must not be used.
func (b *valueSetBuilder) laterOperator(r *fhirjson.Reader, op *string) error {
	list, err := r.Extensions(0)
	for _, x := range list {
		switch release, element, _ := strings.Cut(x.URL, filterExtensions); {
		case !strings.HasPrefix(release, "http://hl7.org/fhir/"):
		case element == "op":
			*op = cmp.Or(x.Value, "unknown")
		case element == "filter":
			b.vs.modifier = "the extension " + x.URL
		}
	}
	return err
}

func (b *valueSetBuilder) concept(r *fhirjson.Reader) error {
	var code, display codesystem.TextRef
	rows := &b.library.rows
	row := rows.end()
	err := r.Object(func(name []byte) error {
		switch string(name) {
		case "code":
			return rows.Texts.Read(r, &code)
		case "display":
			return rows.Texts.Read(r, &display)
		case "designation":
			return r.Array(func() error { return rows.Designation(r, &rows.Texts, row) })
		case "extension":
			return rows.Extension(r, &rows.Texts, row)
		case "modifierExtension":
			return b.vs.modifiers(r)
		default:
			return r.Skip()
		}
	})
	if err == nil && len(rows.Texts.At(code)) == 0 {
		err = fmt.Errorf("%s: concept without a code", r.Pointer())
	}
	rows.Code = append(rows.Code, code)
	rows.display = append(rows.display, display)
	return err
}
