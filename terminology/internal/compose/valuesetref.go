package compose

import (
	"fmt"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/budget"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

// ValueSetFor finds the value set of an operation, and the library to expand it in: an overlay if the value set came
// with the request.
func (c *CodeListCache) ValueSetFor(l *definitions.Set, ref *ValueSetRef, rules *Rules, b *budget.Budget) (_ *definitions.Set, vs *definitions.ValueSet, err error) {
	if ref.ValueSet != nil {
		if err := b.Read(len(ref.ValueSet)); err != nil {
			return nil, nil, err
		}
	}
	if err := definitions.CheckDate(rules.Date); err != nil {
		return nil, nil, err
	}
	switch {
	case ref.ID != "":
		vs, err = byInstance(l, ref)
	case ref.ValueSet != nil:
		return c.inline(l, ref.ValueSet)
	case ref.URL != "":
		vs, err = byURL(l, ref, rules)
	case ref.Context != "":
		vs, err = byContext(l, ref, rules)
	default:
		err = outcome.BadRequest("required", "the parameter url is required: the canonical of the value set to expand (or else valueSet, or context)")
	}
	return l, vs, err
}

// byInstance finds a value set by its id. A url beside the id must match.
func byInstance(d *definitions.Set, ref *ValueSetRef) (*definitions.ValueSet, error) {
	vs, ok := d.ValueSets.ValueSetByID(ref.ID)
	if !ok {
		return nil, outcome.Unknown("", "there is no value set with the id "+ref.ID, outcome.Missing{Kind: "ValueSet", ID: ref.ID})
	}
	if ref.URL != "" && !vs.IsNamed(ref.URL) {
		return nil, outcome.BadRequest("invalid", "the value set with the id %s is %s, not %s", ref.ID, vs.Canonical(), ref.URL)
	}
	return vs, nil
}

// byURL finds a value set by its url, in the version asked for.
func byURL(d *definitions.Set, ref *ValueSetRef, rules *Rules) (*definitions.ValueSet, error) {
	reference := ref.URL
	if url, version := outcome.Split(ref.URL); ref.Version != "" {
		if version != "" && version != ref.Version {
			return nil, outcome.BadRequest("invalid", "url has version %s, but valueSetVersion is %s", version, ref.Version)
		}
		reference = outcome.Canonical(url, ref.Version)
	} else if version == "" {
		if version, _ := VersionFor(rules.Versions.ValueSets, url); version != "" {
			reference = outcome.Canonical(url, version)
		}
	}
	if vs, ok := d.AnyValueSet(reference, rules.Date); ok {
		return vs, nil
	}
	if _, ok := d.ValueSets.Find(reference); ok {
		return nil, definitions.NotAsOf("value set", reference, rules.Date)
	}
	text := fmt.Sprintf("A definition for the value Set '%s' could not be found", reference)
	return nil, outcome.Unknown("Unable_to_resolve_value_Set_", text, outcome.MissingOf("ValueSet", reference, "")...)
}

// byContext finds the value set bound to an element of a profile.
func byContext(d *definitions.Set, ref *ValueSetRef, rules *Rules) (*definitions.ValueSet, error) {
	reference, ok := d.ValueSets.BoundTo(ref.Context)
	if !ok {
		return nil, outcome.Unknown("", "no value set is known for the context "+ref.Context)
	}
	return byURL(d, &ValueSetRef{URL: reference, Version: ref.Version}, rules)
}

// ValueSetRef names a value set by id, as a resource, by url or by context. The first that is not empty counts.
type ValueSetRef struct {
	// ID is the id of the resource, for an operation on an instance. A URL beside it must be that resource's.
	ID string

	// ValueSet is the value set itself, in JSON.
	ValueSet jsontext.Value

	// URL is the canonical, url or url|version.
	URL string

	// Version is the version, if URL has none.
	Version string

	// Context is an element of a profile, as url#path, whose binding names the value set.
	Context string
}
