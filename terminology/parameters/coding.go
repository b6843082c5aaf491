package parameters

import (
	"cmp"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

// Coding is a code of a code system.
type Coding struct {
	// System is the url of the code system, and Version its version; empty: not known.
	System, Version string

	// Code is the code, and Display what is shown of it.
	Code, Display string

	at string // FHIRPath of the Coding in a request; empty if its parts are parameters of their own
}

// Place returns the FHIRPath of a part of the coding; empty: of the whole.
func (c *Coding) Place(part string) string {
	if c.at != "" && part != "" {
		return c.at + "." + part
	}
	return cmp.Or(c.at, part, "code")
}

// String returns the coding as messages have it: system|version#code ('display').
func (c *Coding) String() string {
	s := outcome.Canonical(c.System, c.Version) + "#" + c.Code
	if c.Display != "" {
		s += " ('" + c.Display + "')"
	}
	return s
}

// Append appends the Coding as JSON.
func (c *Coding) Append(dst []byte) []byte {
	start := len(dst)
	dst = fhirjson.AppendMember(dst, "system", c.System)
	dst = fhirjson.AppendMember(dst, "version", c.Version)
	dst = fhirjson.AppendMember(dst, "code", c.Code)
	dst = append(fhirjson.AppendMember(dst, "display", c.Display), '}')
	dst[start] = '{' // in place of the comma
	return dst
}

// ParseCoding reads a Coding that lies at a FHIRPath.
func ParseCoding(value jsontext.Value, at string) (Coding, error) {
	c := Coding{at: at}
	err := fhirjson.ReaderOf(value).Strings(
		fhirjson.String{Name: "system", Into: &c.System}, fhirjson.String{Name: "version", Into: &c.Version},
		fhirjson.String{Name: "code", Into: &c.Code}, fhirjson.String{Name: "display", Into: &c.Display},
	)
	if err != nil {
		return c, outcome.BadRequest("structure", "%s cannot be read: %v", at, err)
	}
	return c, nil
}

// maxCodings bounds the codings of a CodeableConcept; more are ignored.
const maxCodings = 1000

// ParseConcept returns the codings of a CodeableConcept.
func ParseConcept(value jsontext.Value) ([]Coding, error) {
	var list []Coding
	r := fhirjson.ReaderOf(value)
	err := r.Object(func(name []byte) error {
		if string(name) != "coding" {
			return r.Skip()
		}
		return r.Array(func() error {
			raw, err := r.Value('{')
			if err != nil || len(list) == maxCodings {
				return err
			}
			c, err := ParseCoding(raw.Clone(), fmt.Sprintf("CodeableConcept.coding[%d]", len(list)))
			list = append(list, c)
			return err
		})
	})
	if err != nil {
		return nil, outcome.BadRequest("structure", "CodeableConcept cannot be read: %v", err)
	}
	return list, nil
}
