// Package parameters reads and writes the parameters of operations (R4 §2.30) in query strings and Parameters resources.
package parameters

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
	"github.com/caddy-fhir/caddy-fhir/terminology/negotiation"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

// Input is a parameter of an operation, from the query string or a Parameters resource.
type Input struct {
	Name     string         // name of the parameter
	Value    string         // primitive value[x], or the value in a query string
	Complex  jsontext.Value // value[x] that is not primitive
	Resource jsontext.Value // resource of the parameter, if any
	Parts    []Input        // parts of the parameter, if any
}

// Maximum number of parameters per request, and maximum nesting depth of parts.
const maxInputs, maxPartDepth = 1000, 4

// ParseQuery returns the parameters of a query string in order. If there is an error, it still returns the valid parameters.
func ParseQuery(query string) (inputs []Input, err error) {
	if query == "" {
		return nil, nil
	}
	inputs = make([]Input, 0, min(maxInputs, 1+strings.Count(query, "&")))
	for pair := range strings.SplitSeq(query, "&") {
		if pair == "" {
			continue
		}
		if len(inputs) == maxInputs {
			return inputs, outcome.BadRequest("too-long", "at most %d parameters are allowed", maxInputs)
		}
		in, wrong := parsePair(pair)
		switch {
		case wrong == nil:
			inputs = append(inputs, in)
		case err == nil:
			err = outcome.BadRequest("invalid", "malformed query string: %v", wrong)
		}
	}
	return inputs, err
}

func parsePair(pair string) (in Input, err error) {
	if strings.Contains(pair, ";") {
		return in, errors.New("invalid semicolon separator in query")
	}
	name, value, _ := strings.Cut(pair, "=")
	if in.Name, err = url.QueryUnescape(name); err == nil {
		in.Value, err = url.QueryUnescape(value)
	}
	return in, err
}

// AppendBody appends the parameters in a body to inputs. The body is a form, or JSON or XML as in [ParseBody].
func AppendBody(inputs []Input, contentType string, body []byte, resourceParameter string) ([]Input, error) {
	kind, _, err := mime.ParseMediaType(contentType)
	if kind == "application/x-www-form-urlencoded" && err == nil {
		form, err := ParseQuery(string(body))
		return append(inputs, form...), err
	}
	if strings.Contains(kind, "xml") {
		if !negotiation.HasXML() {
			return inputs, &outcome.Error{Status: http.StatusUnsupportedMediaType, Code: "not-supported", Text: "This server reads only JSON: send application/fhir+json."}
		}
		if body, err = negotiation.AppendJSON(nil, body); err != nil {
			return inputs, &outcome.Error{Status: http.StatusBadRequest, Code: "structure", Err: err, Text: "the body is not a FHIR resource in XML: " + err.Error()}
		}
	}
	return ParseBody(inputs, body, resourceParameter)
}

// ParseBody appends the parameters in a body to inputs. The body is a Parameters resource, or another resource that becomes the
// parameter resourceParameter.
func ParseBody(inputs []Input, body []byte, resourceParameter string) ([]Input, error) {
	kind, err := fhirjson.ResourceType(body)
	if err != nil {
		return inputs, &outcome.Error{Status: http.StatusBadRequest, Code: "structure", Err: err, Text: "the body is not a FHIR resource in JSON: " + err.Error()}
	}
	if kind != "Parameters" {
		if resourceParameter == "" {
			return inputs, outcome.BadRequest("structure", "the body must be a Parameters resource, not %s", kind)
		}
		return append(inputs, Input{Name: resourceParameter, Resource: body}), nil
	}
	r := fhirjson.NewValueReader(body)
	err = r.Object(func(name []byte) error {
		if string(name) == "parameter" {
			return appendInputs(&inputs, r, 0)
		}
		return r.Skip()
	})
	if err == nil && !r.AtEnd() {
		err = errors.New("unexpected content after the resource")
	}
	if err != nil {
		return inputs, &outcome.Error{Status: http.StatusBadRequest, Code: "structure", Err: err, Text: "invalid Parameters resource: " + err.Error()}
	}
	return inputs, nil
}

var errTooManyInputs = errors.New("too many parameters, or parts nested too deeply")

// appendInputs reads Parameters.parameter or parameter.part and appends the parameters to list.
func appendInputs(list *[]Input, r *fhirjson.Reader, depth int) error {
	return r.Array(func() error {
		if len(*list) >= maxInputs || depth > maxPartDepth {
			return errTooManyInputs
		}
		var in Input
		err := r.Object(func(name []byte) error { return in.ReadMember(r, name, depth) })
		*list = append(*list, in)
		return err
	})
}

// ReadMember reads a member of a parameter at the given nesting depth.
func (in *Input) ReadMember(r *fhirjson.Reader, name []byte, depth int) error {
	switch {
	case string(name) == "name":
		return r.ReadString(&in.Name)
	case string(name) == "resource":
		return copyObject(r, &in.Resource)
	case string(name) == "part":
		return appendInputs(&in.Parts, r, depth+1)
	case !bytes.HasPrefix(name, []byte("value")):
		return r.Skip()
	case r.IsPrimitive():
		s, err := r.Primitive()
		in.Value = string(s)
		return err
	default:
		return copyObject(r, &in.Complex)
	}
}

func copyObject(r *fhirjson.Reader, into *jsontext.Value) error {
	value, err := r.Value('{')
	*into = value.Clone()
	return err
}

// Find returns the first parameter with the given name, or nil.
func Find(inputs []Input, name string) *Input {
	for i := range inputs {
		if inputs[i].Name == name {
			return &inputs[i]
		}
	}
	return nil
}

// ParseNumber returns the value of a parameter that must be a nonnegative integer.
func ParseNumber(in *Input) (*int, error) {
	// 31 bits, like FHIR's integer, so that offset + count cannot overflow.
	n, err := strconv.ParseUint(in.Value, 10, 31)
	if errors.Is(err, strconv.ErrRange) {
		return nil, outcome.BadRequest("invalid", "the parameter %s is too large", in.Name)
	}
	if err != nil {
		return nil, outcome.BadRequest("invalid", "the parameter %s must be a nonnegative integer", in.Name)
	}
	result := int(n)
	return &result, nil
}

// Choice is an optional boolean parameter.
type Choice uint8

// Values of a [Choice].
const (
	// Unset means that the parameter is absent.
	Unset Choice = iota

	// No means false.
	No

	// Yes means true.
	Yes
)

// Set sets the choice to the value of a parameter, which must be true or false.
func (c *Choice) Set(in *Input) error {
	switch in.Value {
	case "true":
		*c = Yes
	case "false":
		*c = No
	default:
		return outcome.BadRequest("invalid", "the parameter %s must be true or false", in.Name)
	}
	return nil
}

// Coding is a code in a code system.
type Coding struct {
	// System is the URL of the code system, or "" if unknown. Version is its version, or "".
	System, Version string

	// Code is the code. Display is its display, or "".
	Code, Display string

	path string // FHIRPath of the Coding in the request; "" if its members are separate parameters
}

// Path returns the FHIRPath of a part of the coding, or of the coding itself if part is empty.
func (c *Coding) Path(part string) string {
	if c.path != "" && part != "" {
		return c.path + "." + part
	}
	return cmp.Or(c.path, part, "code")
}

// String returns the coding as it appears in messages: system|version#code ('display').
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
	dst[start] = '{' // replaces the leading comma
	return dst
}

// ParseCoding reads a Coding. at is its FHIRPath in the request.
func ParseCoding(value jsontext.Value, at string) (Coding, error) {
	c := Coding{path: at}
	err := fhirjson.NewValueReader(value).Strings(
		fhirjson.String{Name: "system", Destination: &c.System}, fhirjson.String{Name: "version", Destination: &c.Version},
		fhirjson.String{Name: "code", Destination: &c.Code}, fhirjson.String{Name: "display", Destination: &c.Display},
	)
	if err != nil {
		return c, outcome.BadRequest("structure", "invalid %s: %v", at, err)
	}
	return c, nil
}

// maxCodings is the maximum number of codings in a CodeableConcept. Any others are ignored.
const maxCodings = 1000

// ParseConcept returns the codings of a CodeableConcept.
func ParseConcept(value jsontext.Value) ([]Coding, error) {
	var list []Coding
	r := fhirjson.NewValueReader(value)
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
		return nil, outcome.BadRequest("structure", "invalid CodeableConcept: %v", err)
	}
	return list, nil
}

// Designation is a designation of a concept.
type Designation struct {
	// Language is the language of the text, or "" if unknown.
	Language string

	// Use is the purpose of the text. Its Code is empty if unknown.
	Use Coding

	// Value is the text of the designation.
	Value string

	// Source is the canonical of the supplement that contains the designation, or "" if it is from the code system.
	Source string
}

// WriteDesignation writes the designation parameter of $lookup.
func WriteDesignation(w *Writer, d *Designation) {
	use := OutPart{}
	if d.Use.Code != "" {
		use = OutPart{Name: "use", Kind: "valueCoding", Value: d.Use.Append(nil)}
	}
	w.Parts("designation", TextPart("language", "valueCode", d.Language), use,
		TextPart("value", "valueString", d.Value), TextPart("source", "valueCanonical", d.Source))
}

// Writer writes a Parameters resource.
type Writer struct {
	Dst  []byte // JSON written so far
	list fhirjson.Array
}

// NewWriter returns a writer that starts a Parameters resource at the end of dst.
func NewWriter(dst []byte) *Writer {
	return &Writer{Dst: append(dst, `{"resourceType":"Parameters"`...), list: fhirjson.Array{Name: "parameter"}}
}

// End completes the resource and returns Dst with the resource appended.
func (w *Writer) End() []byte { return append(w.list.End(w.Dst), '}') }

// Raw writes a parameter with a JSON value. kind is the name of value[x], or "resource".
func (w *Writer) Raw(name, kind string, value []byte) {
	w.Dst = AppendPart(w.list.Next(w.Dst), name, kind, value)
}

// Text writes a parameter of a string-like type. kind is the name of value[x].
func (w *Writer) Text(name, kind, value string) {
	w.Raw(name, kind, fhirjson.AppendString(nil, value))
}

// Optional is like Text, but writes nothing if the value is empty.
func (w *Writer) Optional(name, kind, value string) {
	if value != "" {
		w.Text(name, kind, value)
	}
}

// Boolean writes a boolean parameter.
func (w *Writer) Boolean(name string, value bool) {
	w.Raw(name, "valueBoolean", strconv.AppendBool(nil, value))
}

// Parts writes a parameter with parts.
func (w *Writer) Parts(name string, parts ...OutPart) {
	w.Dst = append(append(w.list.Next(w.Dst), `{"name":`...), fhirjson.AppendString(nil, name)...)
	list := fhirjson.Array{Name: "part"}
	for _, p := range parts {
		if p.Value != nil {
			w.Dst = AppendPart(list.Next(w.Dst), p.Name, p.Kind, p.Value)
		}
	}
	w.Dst = append(list.End(w.Dst), '}')
}

// OutPart is a part of a parameter. It is omitted if Value is nil.
type OutPart struct {
	Name, Kind string // name of the part; name of value[x], "part" or "resource"
	Value      []byte // value in JSON
}

// TextPart returns a part of a string-like type. It is omitted if value is empty.
func TextPart(name, kind, value string) OutPart {
	if value == "" {
		return OutPart{}
	}
	return OutPart{Name: name, Kind: kind, Value: fhirjson.AppendString(nil, value)}
}

// AppendPart appends a part with a JSON value.
func AppendPart(dst []byte, name, kind string, value []byte) []byte {
	dst = fhirjson.AppendString(append(dst, `{"name":`...), name)
	dst = append(append(append(dst, ',', '"'), kind...), '"', ':')
	return append(append(dst, value...), '}')
}
