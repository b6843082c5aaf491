package definitions

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
)

var errTwoTypes = errors.New("resourceType is there twice")

// maxBundleDepth is the maximum nesting of Bundles.
const maxBundleDepth = 8

// resourceLoader reads resources into a Set, directly or from Bundles. It skips unknown resource types.
type resourceLoader struct {
	library *Set
	codes   codeSystemBuilder
	values  valueSetBuilder
	profile profile
	maps    ConceptMap
	depth   int
	last    *ValueSet // last value set read
	options *Options  // source of the progress settings; nil disables progress
}

func newResourceLoader(l *Set) *resourceLoader {
	return &resourceLoader{library: l, codes: codeSystemBuilder{usage: &l.Usage}, values: valueSetBuilder{library: l}}
}

// resource reads one resource. Decoding depends on resourceType, so earlier members are buffered; in practice
// resourceType comes first.
func (l *resourceLoader) resource(r *fhirjson.Reader) error {
	var kind string
	var early []fhirjson.Member
	start := r.Offset()
	err := r.Object(func(name []byte) error {
		if string(name) == "resourceType" {
			if kind != "" {
				return errTwoTypes
			}
			if err := r.ReadString(&kind); err != nil {
				return err
			}
			l.begin(kind)
			return l.replay(r, kind, early)
		}
		if kind != "" {
			return l.member(r, kind, string(name))
		}
		early = append(early, fhirjson.Member{Name: string(name)})
		value, err := r.Value(0)
		early[len(early)-1].Value = value.Clone()
		return err
	})
	if err != nil {
		return err
	}
	if kind == "" {
		return fhirjson.ErrNoResourceType
	}
	if err := r.Shortage().Add(r.Offset()-start, shortDefinition); err != nil {
		return err
	}
	return l.finish(kind)
}

func (l *resourceLoader) replay(r *fhirjson.Reader, kind string, early []fhirjson.Member) error {
	for _, m := range early {
		if err := l.member(r.Inner(m.Value), kind, m.Name); err != nil {
			return fmt.Errorf("%s: %w", m.Name, err)
		}
	}
	return nil
}

func (l *resourceLoader) begin(kind string) {
	switch kind {
	case "CodeSystem":
		l.codes.reset()
	case "ValueSet":
		l.values.vs, l.values.systems, l.values.stored = ValueSet{}, nil, nil
	case "StructureDefinition":
		l.profile = profile{contained: valueSetBuilder{library: l.library}}
	case "ConceptMap":
		l.maps = ConceptMap{}
	}
}

func (l *resourceLoader) member(r *fhirjson.Reader, kind, name string) error {
	switch kind {
	case "CodeSystem":
		return l.codes.member(r, name)
	case "ValueSet":
		return l.values.member(r, name)
	case "StructureDefinition":
		return l.profile.member(r, name)
	case "ConceptMap":
		return l.maps.member(r, name)
	case "Bundle":
		if name == "entry" {
			return r.Array(func() error { return l.entry(r) })
		}
	}
	return r.Skip()
}

func (l *resourceLoader) entry(r *fhirjson.Reader) error {
	if l.depth++; l.depth > maxBundleDepth {
		return fmt.Errorf("%s: Bundles nested deeper than %d", r.Pointer(), maxBundleDepth)
	}
	defer func() { l.depth-- }()
	return r.Object(func(name []byte) error {
		if string(name) == "resource" {
			return l.resource(r)
		}
		return r.Skip()
	})
}

// finish adds the resource to the Set. Resources without a URL cannot be referenced and are skipped.
func (l *resourceLoader) finish(kind string) error {
	if err := bring(l.library); err != nil {
		return err
	}
	switch kind {
	case "CodeSystem":
		cs, err := l.codes.build()
		if err != nil {
			return fmt.Errorf("CodeSystem %s: %w", l.codes.URL, err)
		}
		if most := maxVersions(l.library); len(l.library.Systems.Versions(cs.URL)) >= most {
			return fmt.Errorf("CodeSystem %s: more than %d versions", cs.URL, most)
		}
		l.library.Systems.AddCodeSystem(cs)
	case "ValueSet":
		l.last = l.values.build()
		l.library.ValueSets.addValueSet(l.last)
	case "StructureDefinition":
		l.library.ValueSets.addProfile(&l.profile)
	case "ConceptMap":
		m := l.maps
		l.library.Maps.addConceptMap(&m)
	}
	return nil
}

// IsResourceType reports whether a path segment is a resource type with terminology operations.
func IsResourceType(name string) bool {
	return name == "ValueSet" || name == "CodeSystem" || name == "ConceptMap"
}

var errEmpty = errors.New("empty: no resource in it")

// resources reads JSON resources up to the end of src.
func (l *resourceLoader) resources(ctx context.Context, src io.Reader, short *fhirjson.Overhead) error {
	r := fhirjson.NewSourceReader(ctx, src, l.options.MaxValue).Counting(short)
	if r.AtEnd() {
		return errEmpty
	}
	for !r.AtEnd() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := l.resource(r); err != nil {
			return err
		}
	}
	return nil
}
