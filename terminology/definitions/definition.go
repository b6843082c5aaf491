package definitions

import (
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

// Definition contains the members that CodeSystem, ValueSet and ConceptMap share.
type Definition struct {
	ID, URL, Version, Name, Title, Status string // members of the same names
	Language, Date, Publisher             string // members of the same names
	standardsStatus                       string // value of the extension structuredefinition-standards-status
	Experimental                          *bool  // nil if absent
	unsupportedModifier                   string // unsupported implicit rules or modifier extension, as described in error messages; "" if none
}

// Canonical returns the canonical: url|version, or only the URL if there is no version.
func (d *Definition) Canonical() string { return outcome.Canonical(d.URL, d.Version) }

// MatchesCanonical reports whether a canonical refers to this definition.
func (d *Definition) MatchesCanonical(reference string) bool {
	url, version := outcome.SplitCanonical(reference)
	return url == d.URL && (version == "" || MatchesVersion(d.Version, version))
}

// readMember reads a member that belongs to Definition. It returns false for any other name.
func (d *Definition) readMember(r *fhirjson.Reader, name string) (bool, error) {
	if name == "experimental" {
		d.Experimental = new(bool)
		return true, r.ReadBool(d.Experimental)
	}
	for _, m := range d.StringMembers() {
		switch {
		case m.Name != name:
		case name == "url" || name == "version":
			return true, r.ReadName(m.Destination)
		default:
			return true, r.ReadString(m.Destination)
		}
	}
	return false, nil
}

// StringMembers returns the string members of Definition and where to store their values.
func (d *Definition) StringMembers() [9]fhirjson.String {
	return [...]fhirjson.String{
		{Name: "id", Destination: &d.ID}, {Name: "language", Destination: &d.Language}, {Name: "url", Destination: &d.URL},
		{Name: "version", Destination: &d.Version}, {Name: "name", Destination: &d.Name}, {Name: "title", Destination: &d.Title},
		{Name: "status", Destination: &d.Status}, {Name: "date", Destination: &d.Date}, {Name: "publisher", Destination: &d.Publisher},
	}
}

// ParseDefinition reads the members of Definition from a resource.
func ParseDefinition(resource jsontext.Value) (d Definition, err error) {
	r := fhirjson.NewValueReader(resource)
	err = r.Object(func(name []byte) error {
		if known, err := d.readMember(r, string(name)); known {
			return err
		}
		return r.Skip()
	})
	return d, err
}

// isIgnored reports whether a member is ignored: narrative, metadata, a stored expansion, or an extension of a primitive.
func isIgnored(name string) bool {
	return name == "text" || name == "meta" || name == "expansion" || strings.HasPrefix(name, "_")
}

// converterRules are the implicit rules that HL7's converter adds to definitions of later FHIR releases when it moves codes
// that R4 lacks to extensions. Only extensions of filters affect expansion, and those are supported.
const converterRules = "https://hl7.org/fhir/implicit-rules/omitted-mandatory-interversion-code"

// readModifiers reads modifier extensions or implicitRules. Only the value converterRules is supported (R4 §2.4).
func (d *Definition) readModifiers(r *fhirjson.Reader) error {
	if r.IsPrimitive() {
		rules, err := r.Text()
		if string(rules) != converterRules {
			d.unsupportedModifier = "the implicit rules " + string(rules)
		}
		return err
	}
	list, err := r.Extensions(0)
	if len(list) > 0 {
		d.unsupportedModifier = "the modifier extension " + list[0].URL
	}
	return err
}

// CheckUsable returns an error for a definition with unsupported implicit rules or modifier extensions.
func (d *Definition) CheckUsable(kind string) error {
	if d.unsupportedModifier == "" {
		return nil
	}
	return outcome.NewIncomplete("not-supported", "%s %s has %s, which this server does not support", kind, d.Canonical(), d.unsupportedModifier)
}

// StatusWarning returns the status to report in a warning, or "". Deprecated and withdrawn are always reported. Retired,
// experimental and draft are reported only if the value set has a different status.
func (d *Definition) StatusWarning(vs *ValueSet) string {
	experimental := func(d *Definition) bool { return d.Experimental != nil && *d.Experimental }
	switch {
	case d.standardsStatus == "deprecated" || d.standardsStatus == "withdrawn":
		return d.standardsStatus
	case d.Status == "retired":
		if vs.Status != "retired" {
			return "retired"
		}
	case experimental(d):
		if !experimental(&vs.Definition) {
			return "experimental"
		}
	case d.Status == "draft" || d.standardsStatus == "draft":
		if vs.Status != "draft" && vs.standardsStatus != "draft" {
			return "draft"
		}
	}
	return ""
}

// LatestOf returns the latest resource with the requested canonical or ID, or nil. It prefers resources with content.
func LatestOf(resources []jsontext.Value, m outcome.MissingDefinition) (latest jsontext.Value, err error) {
	var best *resourceSummary
	for _, resource := range resources {
		h, err := ParseSummary(resource)
		if err != nil {
			return nil, fmt.Errorf("parsing %v: %w", m, err)
		}
		if h.Kind != m.ResourceType || m.ID != h.ID && m.ID != "" || m.ID == "" && !h.MatchesCanonical(m.Canonical) {
			continue
		}
		if best == nil || h.hasContent() && !best.hasContent() || h.hasContent() == best.hasContent() && supersedesVersion(h.Version, best.Version) {
			best, latest = h, resource
		}
	}
	return latest, nil
}

// resourceSummary contains the members that [LatestOf] compares.
type resourceSummary struct {
	Definition
	Kind    string
	content contentMode
}

func (h *resourceSummary) hasContent() bool { return h.Kind != "CodeSystem" || h.content.HasConcepts() }

// ParseSummary reads the members of a resource that [LatestOf] compares.
func ParseSummary(resource jsontext.Value) (*resourceSummary, error) {
	h, r := new(resourceSummary), fhirjson.NewValueReader(resource)
	return h, r.Strings(
		fhirjson.String{Name: "resourceType", Destination: &h.Kind}, fhirjson.String{Name: "id", Destination: &h.ID},
		fhirjson.String{Name: "url", Destination: &h.URL}, fhirjson.String{Name: "version", Destination: &h.Version},
		fhirjson.String{Name: "content", Destination: (*string)(&h.content)},
	)
}

// AppendUnique appends the values that list does not contain yet.
func AppendUnique[T comparable](list *[]T, values ...T) {
	for _, value := range values {
		if !slices.Contains(*list, value) {
			*list = append(*list, value)
		}
	}
}
