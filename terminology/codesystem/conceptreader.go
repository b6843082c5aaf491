package codesystem

import (
	"bytes"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
)

// ConceptReader reads what concepts of code systems and value sets share: designations and extensions. It puts text
// into an arena, and languages and uses into tables.
type ConceptReader struct {
	// Languages are those of designations; the first is empty.
	Languages []string

	// Uses are those of designations; the first is empty.
	Uses []Use

	// Designations are the designations read, in the order of the source.
	Designations []DesignationRow

	// Extensions are the extensions read, in the order of the source.
	Extensions []ExtensionRow

	scratch []byte
}

// Reset prepares the reader for the next resource. What was read owns the tables, so new ones begin.
func (c *ConceptReader) Reset() {
	c.Languages, c.Uses = make([]string, 1), make([]Use, 1)
	c.Designations, c.Extensions = c.Designations[:0], c.Extensions[:0]
}

// Designation reads one of concept.designation. One without a value, or with an empty one, is skipped.
func (c *ConceptReader) Designation(r *fhirjson.Reader, t *Texts, owner uint32) error {
	row := DesignationRow{Owner: owner}
	err := r.Object(func(name []byte) error {
		switch string(name) {
		case "language":
			s, err := r.Text()
			row.Language = c.language(s)
			return err
		case "use":
			return c.use(r, &row.Use)
		case "value":
			return t.Read(r, &row.Value)
		case "extension":
			return c.designationExtensions(r, t, &row.Extension)
		default:
			return r.Skip()
		}
	})
	if len(t.At(row.Value)) > 0 {
		c.Designations = append(c.Designations, row)
	}
	return err
}

// language returns the index of a language. There are few, and it is mostly the last one.
func (c *ConceptReader) language(tag []byte) uint16 {
	for i, v := range slices.Backward(c.Languages) {
		if v == string(tag) {
			return uint16(i)
		}
	}
	if len(c.Languages) > 1<<15 {
		return 0 // no such resource exists; without a language, the designation is at least shown
	}
	c.Languages = append(c.Languages, string(tag))
	return uint16(len(c.Languages) - 1)
}

func (c *ConceptReader) use(r *fhirjson.Reader, index *uint16) error {
	var use Use
	err := r.Strings(
		fhirjson.String{Name: "system", Into: &use.System},
		fhirjson.String{Name: "code", Into: &use.Code},
		fhirjson.String{Name: "display", Into: &use.Display},
	)
	for i, v := range slices.Backward(c.Uses) {
		if v == use {
			*index = uint16(i)
			return err
		}
	}
	if len(c.Uses) <= 1<<15 {
		c.Uses = append(c.Uses, use)
		*index = uint16(len(c.Uses) - 1)
	}
	return err
}

// designationExtensions keeps the known extensions of a designation as JSON.
func (c *ConceptReader) designationExtensions(r *fhirjson.Reader, t *Texts, ref *TextRef) error {
	c.scratch = append(c.scratch[:0], '[')
	err := c.each(r, func(kind ExtensionKind, extension, _ []byte) error {
		if len(c.scratch) > 1 {
			c.scratch = append(c.scratch, ',')
		}
		c.scratch = append(c.scratch, extension...)
		return nil
	})
	if err == nil && len(c.scratch) > 1 {
		*ref = t.Append(append(c.scratch, ']'))
	}
	return err
}

// Extension reads the extensions of a concept.
func (c *ConceptReader) Extension(r *fhirjson.Reader, t *Texts, owner uint32) error {
	return c.each(r, func(kind ExtensionKind, _, value []byte) error {
		if value != nil {
			c.Extensions = append(c.Extensions, ExtensionRow{Owner: owner, Kind: kind, Value: t.Append(value)})
		}
		return nil
	})
}

// each calls known with each known extension of an array: all of it, and its value[x] as a member.
func (c *ConceptReader) each(r *fhirjson.Reader, known func(kind ExtensionKind, extension, value []byte) error) error {
	return r.Array(func() error {
		whole, err := r.CompactValue('{')
		if err != nil {
			return err
		}
		kind, value, err := parseExtension(whole)
		if err != nil || kind == 0 {
			return err
		}
		return known(kind, whole, value)
	})
}

// parseExtension returns the kind of an extension, or 0, and its value[x] as a JSON member; for codesystem-alternate,
// which has none, the extensions in it.
func parseExtension(extension jsontext.Value) (kind ExtensionKind, value []byte, err error) {
	var parts []byte
	inner := fhirjson.ReaderOf(extension)
	err = inner.Object(func(name []byte) error {
		if string(name) == "url" {
			var url string
			err := inner.ReadString(&url)
			if name, ok := strings.CutPrefix(url, fhirjson.ExtensionBase); ok {
				kind = extensionURLs[name]
			}
			return err
		}
		isPart := string(name) == "extension"
		if !isPart && !bytes.HasPrefix(name, []byte("value")) {
			return inner.Skip()
		}
		member := append(fhirjson.AppendString([]byte(nil), name), ':')
		raw, err := inner.Value(0)
		if member = append(member, raw...); isPart {
			parts = member
		} else {
			value = member
		}
		return err
	})
	if kind == ExtensionAlternate {
		value = parts
	}
	return kind, value, err
}

// Use is Designation.use, a Coding.
type Use struct {
	// System, Code and Display are the members of the Coding.
	System, Code, Display string
}

// DesignationRow is a designation as it is read.
type DesignationRow struct {
	// Owner is the number of the concept.
	Owner uint32

	// Language and Use are indexes in [ConceptReader.Languages] and [ConceptReader.Uses].
	Language, Use uint16

	// Value is the designation, and Extension its extensions as a JSON array, or 0.
	Value, Extension TextRef
}

// ExtensionRow is an extension as it is read.
type ExtensionRow struct {
	// Owner is the number of the concept.
	Owner uint32

	// Kind says which extension it is.
	Kind ExtensionKind

	// Value is its value[x] as a JSON member; see [Extension].
	Value TextRef
}

// Extension is an extension of a concept.
type Extension struct {
	// Kind says which extension it is.
	Kind ExtensionKind

	// Value is its value[x] as a JSON member, "valueString":"x"; of ExtensionAlternate, the extensions in it.
	Value []byte
}

// ExtensionKind is an extension that answers use or repeat.
type ExtensionKind uint8

// The kinds of extensions, named as in their urls.
const (
	ExtensionAlternate ExtensionKind = iota + 1
	ExtensionOrder
	ExtensionLabel
	ExtensionWeight
	ExtensionStyle
	ExtensionXHTML
	ExtensionStandardsStatus
	ExtensionDescriptionID
	ExtensionConceptDefinition
	ExtensionDeprecated
	ExtensionReplacedBy
)

// extensionURLs are the extensions by url below [fhirjson.ExtensionBase]. Order and label have one url in code systems
// and another in value sets, with the same meaning.
var extensionURLs = map[string]ExtensionKind{
	"codesystem-alternate":                 ExtensionAlternate,
	"codesystem-conceptOrder":              ExtensionOrder,
	"valueset-conceptOrder":                ExtensionOrder,
	"codesystem-label":                     ExtensionLabel,
	"valueset-label":                       ExtensionLabel,
	"itemWeight":                           ExtensionWeight,
	"rendering-style":                      ExtensionStyle,
	"rendering-xhtml":                      ExtensionXHTML,
	"structuredefinition-standards-status": ExtensionStandardsStatus,
	"coding-sctdescid":                     ExtensionDescriptionID,
	"valueset-concept-definition":          ExtensionConceptDefinition,
	"valueset-deprecated":                  ExtensionDeprecated,
	"codesystem-replacedby":                ExtensionReplacedBy,
}
