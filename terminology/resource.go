package terminology

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
)

// errNoResourceType is the error for a JSON object that is no FHIR resource.
var errNoResourceType = errors.New("no resourceType: not a FHIR resource")

// maxBundleDepth is how deep Bundles may stand within each other.
const maxBundleDepth = 8

// resourceLoader reads resources into a library: code systems and value sets, alone or in Bundles.
// Other resources are skipped.
type resourceLoader struct {
	library *Library
	codes   codeSystemBuilder
	values  valueSetBuilder
	depth   int
}

// resource reads one resource. Its type decides how the members are read, so members that come before
// resourceType are kept aside; in practice it is always the first.
func (l *resourceLoader) resource(r *reader) error {
	var kind string
	var early []member
	err := r.object(func(name []byte) error {
		if string(name) == "resourceType" {
			if err := r.string(&kind); err != nil {
				return err
			}
			l.begin(kind)
			return l.replay(kind, early)
		}
		if kind != "" {
			return l.member(r, kind, string(name))
		}
		early = append(early, member{name: string(name)})
		value, err := r.dec.ReadValue()
		early[len(early)-1].value = value.Clone()
		return err
	})
	if err != nil {
		return err
	}
	if kind == "" {
		return errNoResourceType
	}
	return l.finish(kind)
}

// member is a member of a resource that was read before its type was known.
type member struct {
	name  string
	value jsontext.Value
}

// replay reads the members that were kept aside.
func (l *resourceLoader) replay(kind string, early []member) error {
	for _, m := range early {
		if err := l.member(newReader(bytes.NewReader(m.value)), kind, m.name); err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
	}
	return nil
}

// begin starts a resource.
func (l *resourceLoader) begin(kind string) {
	switch kind {
	case "CodeSystem":
		l.codes.reset()
	case "ValueSet":
		l.values.vs = valueSet{}
	}
}

// member reads one member of a resource.
func (l *resourceLoader) member(r *reader, kind, name string) error {
	switch kind {
	case "CodeSystem":
		return l.codes.member(r, name)
	case "ValueSet":
		return l.values.member(r, name)
	case "Bundle":
		if name == "entry" {
			return r.array(func() error { return l.entry(r) })
		}
	}
	return r.skip()
}

// entry reads one of Bundle.entry.
func (l *resourceLoader) entry(r *reader) error {
	if l.depth++; l.depth > maxBundleDepth {
		return fmt.Errorf("%s: Bundles nested deeper than %d", r.pointer(), maxBundleDepth)
	}
	defer func() { l.depth-- }()
	return r.object(func(name []byte) error {
		if string(name) == "resource" {
			return l.resource(r)
		}
		return r.skip()
	})
}

// finish adds the resource to the library. One without a url cannot be referred to, and is skipped.
func (l *resourceLoader) finish(kind string) error {
	switch kind {
	case "CodeSystem":
		cs, err := l.codes.build()
		if err != nil {
			return fmt.Errorf("CodeSystem %s: %w", l.codes.url, err)
		}
		l.library.addCodeSystem(cs)
	case "ValueSet":
		vs := l.values.vs
		l.library.addValueSet(&vs)
	}
	return nil
}

// member reads one member of a CodeSystem.
func (b *codeSystemBuilder) member(r *reader, name string) error {
	switch name {
	case "url":
		return r.string(&b.url)
	case "version":
		return r.string(&b.version)
	case "caseSensitive":
		return r.bool(&b.caseSensitive)
	case "content":
		return r.string((*string)(&b.content))
	case "property":
		return r.array(func() error { return b.propertyDefinition(r) })
	case "concept":
		return r.array(func() error { return b.concept(r) })
	default:
		return r.skip()
	}
}

// member reads one member of a ValueSet.
func (b *valueSetBuilder) member(r *reader, name string) error {
	switch name {
	case "url":
		return r.string(&b.vs.url)
	case "version":
		return r.string(&b.vs.version)
	case "name":
		return r.string(&b.vs.name)
	case "title":
		return r.string(&b.vs.title)
	case "status":
		return r.string(&b.vs.status)
	case "experimental":
		b.vs.experimental = new(bool)
		return r.bool(b.vs.experimental)
	case "compose":
		return b.compose(r)
	default:
		return r.skip()
	}
}
