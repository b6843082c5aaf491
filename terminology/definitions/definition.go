package definitions

import (
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

// Definition holds the members that code systems and value sets have in common.
type Definition struct {
	ID, URL, Version, Name, Title, Status string // members of these names
	Language, Date, Publisher             string // members of these names
	standardsStatus                       string // from the extension
	Experimental                          *bool  // nil: not said
	modifier                              string // implicit rules or a modifier extension in it, which are not understood
}

// Canonical returns url|version.
func (d *Definition) Canonical() string { return outcome.Canonical(d.URL, d.Version) }

// IsNamed reports whether a canonical means this definition.
func (d *Definition) IsNamed(reference string) bool {
	url, version := outcome.Split(reference)
	return url == d.URL && (version == "" || MatchesVersion(d.Version, version))
}

// member reads a member that code systems and value sets share, and reports whether it was one.
func (d *Definition) member(r *fhirjson.Reader, name string) (bool, error) {
	if name == "experimental" {
		d.Experimental = new(bool)
		return true, r.ReadBool(d.Experimental)
	}
	for _, m := range d.Texts() {
		switch {
		case m.Name != name:
		case name == "url" || name == "version":
			return true, r.ReadName(m.Into)
		default:
			return true, r.ReadString(m.Into)
		}
	}
	return false, nil
}

// Texts are the members that code systems and value sets share and that are strings.
func (d *Definition) Texts() [9]fhirjson.String {
	return [...]fhirjson.String{
		{Name: "id", Into: &d.ID}, {Name: "language", Into: &d.Language}, {Name: "url", Into: &d.URL},
		{Name: "version", Into: &d.Version}, {Name: "name", Into: &d.Name}, {Name: "title", Into: &d.Title},
		{Name: "status", Into: &d.Status}, {Name: "date", Into: &d.Date}, {Name: "publisher", Into: &d.Publisher},
	}
}

// DefinitionOf reads the members that code systems and value sets share.
func DefinitionOf(resource jsontext.Value) (d Definition, err error) {
	r := fhirjson.ReaderOf(resource)
	err = r.Object(func(name []byte) error {
		if known, err := d.member(r, string(name)); known {
			return err
		}
		return r.Skip()
	})
	return d, err
}

// isLeftOut reports whether a member is of no use here: narrative and metadata, a stored expansion, and extensions of
// primitives.
func isLeftOut(name string) bool {
	return name == "text" || name == "meta" || name == "expansion" || strings.HasPrefix(name, "_")
}
