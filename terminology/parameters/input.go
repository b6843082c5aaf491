package parameters

import (
	"bytes"
	"errors"
	"mime"
	"net/http"
	"net/url"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
	"github.com/caddy-fhir/caddy-fhir/terminology/negotiation"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

// Input is one parameter of an operation, from the query string or a Parameters resource.
type Input struct {
	Name     string         // of the parameter
	Value    string         // a primitive value[x], or from the query string
	Complex  jsontext.Value // any other value[x]
	Resource jsontext.Value // of a parameter that is one
	Parts    []Input        // of a parameter that has some
}

// maxInputs bounds the parameters of one request, and maxPartDepth their nesting.
const maxInputs, maxPartDepth = 1000, 4

// QueryInputs reads the parameters of a query string in order. Beside an error, it returns those that it understands.
func QueryInputs(query string) (inputs []Input, err error) {
	if query == "" {
		return nil, nil
	}
	inputs = make([]Input, 0, min(maxInputs, 1+strings.Count(query, "&")))
	for pair := range strings.SplitSeq(query, "&") {
		if pair == "" {
			continue
		}
		if len(inputs) == maxInputs {
			return inputs, outcome.BadRequest("too-long", "there may be at most %d parameters", maxInputs)
		}
		in, wrong := pairInput(pair)
		switch {
		case wrong == nil:
			inputs = append(inputs, in)
		case err == nil:
			err = outcome.BadRequest("invalid", "the query string is malformed: %v", wrong)
		}
	}
	return inputs, err
}

func pairInput(pair string) (in Input, err error) {
	if strings.Contains(pair, ";") {
		return in, errors.New("invalid semicolon separator in query")
	}
	name, value, _ := strings.Cut(pair, "=")
	if in.Name, err = url.QueryUnescape(name); err == nil {
		in.Value, err = url.QueryUnescape(value)
	}
	return in, err
}

// AddBody adds the parameters of a body to those of a query string: a form, or what [BodyInputs] reads, in JSON or XML.
func AddBody(inputs []Input, contentType string, body []byte, bare string) ([]Input, error) {
	kind, _, err := mime.ParseMediaType(contentType)
	if kind == "application/x-www-form-urlencoded" && err == nil {
		form, err := QueryInputs(string(body))
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
	return BodyInputs(inputs, body, bare)
}

// BodyInputs reads the parameters of a body: a Parameters resource, or another that is the value of the parameter called bare.
func BodyInputs(inputs []Input, body []byte, bare string) ([]Input, error) {
	kind, err := fhirjson.ResourceType(body)
	if err != nil {
		return inputs, &outcome.Error{Status: http.StatusBadRequest, Code: "structure", Err: err, Text: "the body is not a FHIR resource in JSON: " + err.Error()}
	}
	if kind != "Parameters" {
		if bare == "" {
			return inputs, outcome.BadRequest("structure", "the body must be a Parameters resource, not %s", kind)
		}
		return append(inputs, Input{Name: bare, Resource: body}), nil
	}
	r := fhirjson.ReaderOf(body)
	err = r.Object(func(name []byte) error {
		if string(name) == "parameter" {
			return appendInputs(&inputs, r, 0)
		}
		return r.Skip()
	})
	if err == nil && !r.AtEnd() {
		err = errors.New("there is more after the resource")
	}
	if err != nil {
		return inputs, &outcome.Error{Status: http.StatusBadRequest, Code: "structure", Err: err, Text: "the Parameters resource cannot be read: " + err.Error()}
	}
	return inputs, nil
}

var errTooManyInputs = errors.New("too many parameters, or nested too deep")

// appendInputs reads Parameters.parameter or parameter.part.
func appendInputs(list *[]Input, r *fhirjson.Reader, depth int) error {
	return r.Array(func() error {
		if len(*list) >= maxInputs || depth > maxPartDepth {
			return errTooManyInputs
		}
		var in Input
		err := r.Object(func(name []byte) error { return in.Member(r, name, depth) })
		*list = append(*list, in)
		return err
	})
}

// Member reads one member of a parameter that lies so many parts deep.
func (in *Input) Member(r *fhirjson.Reader, name []byte, depth int) error {
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

// Find returns the first parameter with a name, or nil.
func Find(inputs []Input, name string) *Input {
	for i := range inputs {
		if inputs[i].Name == name {
			return &inputs[i]
		}
	}
	return nil
}
