package terminology

import (
	"fmt"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/terminology/fhirjson"
)

// coding is a Coding that a request holds, and where it stands there.
type coding struct {
	system, version, code, display string
	at                             string // FHIRPath of the Coding; empty where its parts are parameters of their own
}

// place returns the FHIRPath of a part of the coding.
func (c *coding) place(part string) string {
	switch {
	case c.at == "" && part == "":
		return "code"
	case c.at == "":
		return part
	case part == "":
		return c.at
	}
	return c.at + "." + part
}

// String writes the coding as messages do: system|version#code ('display').
func (c *coding) String() string {
	s := canonical(c.system, c.version) + "#" + c.code
	if c.display != "" {
		s += " ('" + c.display + "')"
	}
	return s
}

// parseCoding reads a Coding.
func parseCoding(value jsontext.Value, at string) (coding, error) {
	c := coding{at: at}
	r := fhirjson.ReaderOf(value)
	err := r.Object(func(name []byte) error {
		switch string(name) {
		case "system":
			return r.ReadString(&c.system)
		case "version":
			return r.ReadString(&c.version)
		case "code":
			return r.ReadString(&c.code)
		case "display":
			return r.ReadString(&c.display)
		default:
			return r.Skip()
		}
	})
	if err != nil {
		return c, badRequest("structure", "%s cannot be read: %v", at, err)
	}
	return c, nil
}

// maxCodings bounds how many codings a CodeableConcept may have.
const maxCodings = 1000

// parseConcept reads the codings of a CodeableConcept.
func parseConcept(value jsontext.Value) ([]coding, error) {
	var list []coding
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
			c, err := parseCoding(raw.Clone(), fmt.Sprintf("CodeableConcept.coding[%d]", len(list)))
			list = append(list, c)
			return err
		})
	})
	if err != nil {
		return nil, badRequest("structure", "CodeableConcept cannot be read: %v", err)
	}
	return list, nil
}
