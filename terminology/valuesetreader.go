package terminology

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/fhirjson"
)

type valueSetBuilder struct {
	library *Set
	vs      valueSet
	systems []*codeSystem // contained
	depth   int           // of contained resources
}

// member reads one member of a ValueSet. Most are also kept as they are, for includeDefinition.
func (b *valueSetBuilder) member(r *fhirjson.Reader, name string) error {
	if known, err := b.vs.definition.member(r, name); known {
		return err
	}
	if isLeftOut(name) {
		return r.Skip()
	}
	inner, err := r.Keep(name, &b.vs.rest)
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
			b.vs.supplements = append(b.vs.supplements, x.Value)
		case fhirjson.ExtensionBase + "valueset-expansion-parameter", toolsExtensionBase + "valueset-expansion-parameter":
			b.vs.defaults = append(b.vs.defaults, input{name: x.Part("name"), value: x.Part("value")})
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
	if err := b.library.bring(); err != nil {
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
	b.vs.contained = append(b.vs.contained, &inner.vs)
	return err
}

func (b *valueSetBuilder) containedCodeSystem(r *fhirjson.Reader) error {
	inner := codeSystemBuilder{usage: &b.library.usage}
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
func (b *valueSetBuilder) build() *valueSet {
	vs := b.vs
	for _, inner := range vs.contained {
		inner.container = &vs
	}
	for _, cs := range b.systems {
		if cs.url == "" {
			cs.url = vs.url + "#" + cs.id
		}
		vs.codeSystems = append(vs.codeSystems, b.library.addContained(cs))
	}
	return &vs
}

func (b *valueSetBuilder) compose(r *fhirjson.Reader) error {
	b.vs.composed = true
	return r.Object(func(name []byte) error {
		switch string(name) {
		case "inactive":
			var inactive bool
			err := r.ReadBool(&inactive)
			b.vs.activeOnly = !inactive
			return err
		case "lockedDate":
			return r.ReadString(&b.vs.lockedDate)
		case "include":
			return r.ArrayOf(shortPart, func() error { return b.conceptSet(r, &b.vs.include) })
		case "exclude":
			return r.ArrayOf(shortPart, func() error { return b.conceptSet(r, &b.vs.exclude) })
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
func (b *valueSetBuilder) conceptSet(r *fhirjson.Reader, list *[]conceptSet) error {
	var set conceptSet
	rows := &b.library.listed
	set.first = rows.end()
	err := r.Object(func(name []byte) error {
		switch string(name) {
		case "system":
			return r.ReadName(&set.system)
		case "version":
			return r.ReadName(&set.version)
		case "concept":
			set.enumerated = true
			return r.Array(func() error { return b.concept(r) })
		case "filter":
			return r.Array(func() error { return b.filter(r, &set) })
		case "valueSet":
			return r.Array(func() error {
				set.valueSets = append(set.valueSets, "")
				return r.ReadString(&set.valueSets[len(set.valueSets)-1])
			})
		case "modifierExtension":
			return b.vs.modifiers(r)
		default:
			return r.Skip()
		}
	})
	set.last = rows.end()
	if set.enumerated {
		system := b.library.internSystem(set.system)
		for range set.last - set.first {
			rows.system = append(rows.system, system)
		}
	}
	*list = append(*list, set)
	return err
}

func (b *valueSetBuilder) filter(r *fhirjson.Reader, set *conceptSet) error {
	var f filter
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
			return r.ReadString(&f.property)
		case "op":
			return r.ReadString(&f.op)
		case "value":
			return r.ReadString(&f.value)
		case "modifierExtension":
			return b.vs.modifiers(r)
		default:
			return r.Skip()
		}
	})
	f.op = cmp.Or(later, f.op)
	set.filters = append(set.filters, f)
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
	rows := &b.library.listed
	row := rows.end()
	err := r.Object(func(name []byte) error {
		switch string(name) {
		case "code":
			return rows.texts.Read(r, &code)
		case "display":
			return rows.texts.Read(r, &display)
		case "designation":
			return r.Array(func() error { return rows.Designation(r, &rows.texts, row) })
		case "extension":
			return rows.Extension(r, &rows.texts, row)
		case "modifierExtension":
			return b.vs.modifiers(r)
		default:
			return r.Skip()
		}
	})
	if err == nil && len(rows.texts.At(code)) == 0 {
		err = fmt.Errorf("%s: concept without a code", r.Pointer())
	}
	rows.code = append(rows.code, code)
	rows.display = append(rows.display, display)
	return err
}
