package codesystem

import (
	"bytes"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
)

// ConceptReader reads the designations and extensions of concepts in code systems and value sets. It stores texts in an arena,
// and languages and uses in tables.
type ConceptReader struct {
	// Languages are the languages of designations. The first one is empty.
	Languages []string

	// Uses are the uses of designations. The first one is empty.
	Uses []Use

	// Designations are the designations read so far, in source order.
	Designations []DesignationRow

	// Extensions are the extensions read so far, in source order.
	Extensions []ExtensionRow

	scratch []byte
}

// Reset prepares the reader for the next resource. The tables of the previous resource stay valid.
func (c *ConceptReader) Reset() {
	c.Languages, c.Uses = make([]string, 1), make([]Use, 1)
	c.Designations, c.Extensions = c.Designations[:0], c.Extensions[:0]
}

// ReadDesignation reads an entry of concept.designation and skips it if its value is missing or empty.
func (c *ConceptReader) ReadDesignation(r *fhirjson.Reader, t *Texts, owner uint32) error {
	row := DesignationRow{Owner: owner}
	err := r.Object(func(name []byte) error {
		switch string(name) {
		case "language":
			s, err := r.Text()
			row.Language = c.languageIndex(s)
			return err
		case "use":
			return c.readUse(r, &row.Use)
		case "value":
			return t.Read(r, &row.Value)
		case "extension":
			return c.readDesignationExtensions(r, t, &row.Extension)
		default:
			return r.Skip()
		}
	})
	if len(t.At(row.Value)) > 0 {
		c.Designations = append(c.Designations, row)
	}
	return err
}

// languageIndex returns the index of a language in Languages and adds the language if necessary. Resources have few languages
// and usually repeat the last one.
func (c *ConceptReader) languageIndex(tag []byte) uint16 {
	for i, v := range slices.Backward(c.Languages) {
		if v == string(tag) {
			return uint16(i)
		}
	}
	if len(c.Languages) > 1<<15 {
		return 0 // too many languages, which is not expected in practice; the designation is still displayed without a language
	}
	c.Languages = append(c.Languages, string(tag))
	return uint16(len(c.Languages) - 1)
}

// AddDesignation adds a designation that is not read from JSON.
func (c *ConceptReader) AddDesignation(owner uint32, language string, use Use, value TextRef) {
	c.Designations = append(c.Designations, DesignationRow{Owner: owner, Language: c.languageIndex([]byte(language)), Use: c.useIndex(use), Value: value})
}

func (c *ConceptReader) readUse(r *fhirjson.Reader, index *uint16) error {
	var use Use
	err := r.Strings(
		fhirjson.String{Name: "system", Destination: &use.System},
		fhirjson.String{Name: "code", Destination: &use.Code},
		fhirjson.String{Name: "display", Destination: &use.Display},
	)
	*index = c.useIndex(use)
	return err
}

// useIndex returns the index of a use in Uses and adds the use if necessary.
func (c *ConceptReader) useIndex(use Use) uint16 {
	for i, v := range slices.Backward(c.Uses) {
		if v == use {
			return uint16(i)
		}
	}
	if len(c.Uses) > 1<<15 {
		return 0 // too many uses, like languages
	}
	c.Uses = append(c.Uses, use)
	return uint16(len(c.Uses) - 1)
}

// readDesignationExtensions stores the supported extensions of a designation as JSON.
func (c *ConceptReader) readDesignationExtensions(r *fhirjson.Reader, t *Texts, ref *TextRef) error {
	c.scratch = append(c.scratch[:0], '[')
	err := c.eachExtension(r, func(kind ExtensionKind, extension, _ []byte) error {
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

// ReadExtensions reads the supported extensions of a concept.
func (c *ConceptReader) ReadExtensions(r *fhirjson.Reader, t *Texts, owner uint32) error {
	return c.eachExtension(r, func(kind ExtensionKind, _, value []byte) error {
		if value != nil {
			c.Extensions = append(c.Extensions, ExtensionRow{Owner: owner, Kind: kind, Value: t.Append(value)})
		}
		return nil
	})
}

// eachExtension calls visit with each supported extension in an array: the entire extension, and its value[x] as a JSON member.
func (c *ConceptReader) eachExtension(r *fhirjson.Reader, visit func(kind ExtensionKind, extension, value []byte) error) error {
	return r.Array(func() error {
		raw, err := r.CompactValue('{')
		if err != nil {
			return err
		}
		kind, value, err := parseExtension(raw)
		if err != nil || kind == 0 {
			return err
		}
		return visit(kind, raw, value)
	})
}

// parseExtension returns the kind of an extension and its value[x] as a JSON member. kind is 0 if the extension is not
// supported. For codesystem-alternate, which has no value, value contains the nested extensions.
func parseExtension(extension jsontext.Value) (kind ExtensionKind, value []byte, err error) {
	var parts []byte
	inner := fhirjson.NewValueReader(extension)
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

// DesignationRow is a designation in source order.
type DesignationRow struct {
	// Owner is the number of the concept.
	Owner uint32

	// Language and Use are indexes in [ConceptReader.Languages] and [ConceptReader.Uses].
	Language, Use uint16

	// Value is the text of the designation. Extension is a JSON array of its extensions, or 0 if there are none.
	Value, Extension TextRef
}

// ExtensionRow is an extension in source order.
type ExtensionRow struct {
	// Owner is the number of the concept.
	Owner uint32

	// Kind identifies the extension.
	Kind ExtensionKind

	// Value is value[x] as a JSON member; see [Extension].
	Value TextRef
}

// Extension is an extension of a concept.
type Extension struct {
	// Kind identifies the extension.
	Kind ExtensionKind

	// Value is value[x] as a JSON member ("valueString":"x"). For ExtensionAlternate, it contains the nested extensions.
	Value []byte
}

// ExtensionKind identifies an extension that operations use or return.
type ExtensionKind uint8

// Supported extensions. The names are derived from their URLs.
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

// extensionURLs maps URLs below [fhirjson.ExtensionBase] to extensions. Order and label have different URLs in code systems and
// in value sets, but the same meaning.
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
