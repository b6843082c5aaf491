package definitions

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
)

var errDuplicateType = errors.New("duplicate member resourceType")

// maxBundleDepth is the maximum nesting depth of Bundles.
const maxBundleDepth = 8

// resourceLoader reads resources into a Set, directly or from Bundles. It skips unknown resource types.
type resourceLoader struct {
	definitions  *Set
	codeSystem   codeSystemBuilder
	valueSet     valueSetBuilder
	profile      profile
	conceptMap   ConceptMap
	depth        int
	lastValueSet *ValueSet // last value set read
	options      *Options  // options for limits and progress; nil disables progress
	manifests    []manifest
}

func newResourceLoader(l *Set) *resourceLoader {
	return &resourceLoader{definitions: l, codeSystem: codeSystemBuilder{usage: &l.Usage}, valueSet: valueSetBuilder{definitions: l}}
}

// readResource reads one resource. Members before resourceType are buffered because decoding depends on it. In practice,
// resourceType comes first.
func (l *resourceLoader) readResource(r *fhirjson.Reader) error {
	var kind string
	var early []fhirjson.Member
	start := r.Offset()
	err := r.Object(func(name []byte) error {
		if string(name) == "resourceType" {
			if kind != "" {
				return errDuplicateType
			}
			if err := r.ReadString(&kind); err != nil {
				return err
			}
			l.beginResource(kind)
			return l.replay(r, kind, early)
		}
		if kind != "" {
			return l.readMember(r, kind, string(name))
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
	if err := r.Overhead().Add(r.Offset()-start, smallDefinitionSize); err != nil {
		return err
	}
	return l.finishResource(kind)
}

func (l *resourceLoader) replay(r *fhirjson.Reader, kind string, early []fhirjson.Member) error {
	for _, m := range early {
		if err := l.readMember(r.Inner(m.Value), kind, m.Name); err != nil {
			return fmt.Errorf("%s: %w", m.Name, err)
		}
	}
	return nil
}

func (l *resourceLoader) beginResource(kind string) {
	switch kind {
	case "CodeSystem":
		l.codeSystem.reset()
	case "ValueSet":
		l.valueSet.vs, l.valueSet.systems, l.valueSet.stored = ValueSet{}, nil, nil
	case "StructureDefinition":
		l.profile = profile{contained: valueSetBuilder{definitions: l.definitions}}
	case "ConceptMap":
		l.conceptMap = ConceptMap{}
	}
}

func (l *resourceLoader) readMember(r *fhirjson.Reader, kind, name string) error {
	switch kind {
	case "CodeSystem":
		return l.codeSystem.readMember(r, name)
	case "ValueSet":
		return l.valueSet.readMember(r, name)
	case "StructureDefinition":
		return l.profile.readMember(r, name)
	case "ConceptMap":
		return l.conceptMap.readMember(r, name)
	case "Bundle":
		if name == "entry" {
			return r.Array(func() error { return l.readEntry(r) })
		}
	}
	return r.Skip()
}

func (l *resourceLoader) readEntry(r *fhirjson.Reader) error {
	if l.depth++; l.depth > maxBundleDepth {
		return fmt.Errorf("%s: Bundles are nested more than %d deep", r.Pointer(), maxBundleDepth)
	}
	defer func() { l.depth-- }()
	return r.Object(func(name []byte) error {
		if string(name) == "resource" {
			return l.readResource(r)
		}
		return r.Skip()
	})
}

// finishResource adds the resource that was just read to the Set, unless it has no URL and so cannot be referenced.
func (l *resourceLoader) finishResource(kind string) error {
	if err := countRequestDefinition(l.definitions); err != nil {
		return err
	}
	switch kind {
	case "CodeSystem":
		cs, err := l.codeSystem.build()
		if err != nil {
			return fmt.Errorf("CodeSystem %s: %w", l.codeSystem.URL, err)
		}
		if most := maxVersions(l.definitions); len(l.definitions.Systems.Versions(cs.URL)) >= most {
			return fmt.Errorf("CodeSystem %s: more than %d versions", cs.URL, most)
		}
		l.definitions.Systems.AddCodeSystem(cs)
	case "ValueSet":
		l.lastValueSet = l.valueSet.build()
		l.definitions.ValueSets.addValueSet(l.lastValueSet)
	case "StructureDefinition":
		l.definitions.ValueSets.addProfile(&l.profile)
	case "ConceptMap":
		m := l.conceptMap
		l.definitions.Maps.addConceptMap(&m)
	}
	return nil
}

// IsResourceType reports whether name is a resource type with terminology operations.
func IsResourceType(name string) bool {
	return name == "ValueSet" || name == "CodeSystem" || name == "ConceptMap"
}

var errNoResources = errors.New("no resource found")

// readResources reads JSON resources up to the end of src.
func (l *resourceLoader) readResources(ctx context.Context, src io.Reader, short *fhirjson.Overhead) error {
	r := fhirjson.NewSourceReader(ctx, src, l.options.MaxValue).WithOverhead(short)
	if r.AtEnd() {
		return errNoResources
	}
	for !r.AtEnd() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := l.readResource(r); err != nil {
			return err
		}
	}
	return nil
}
