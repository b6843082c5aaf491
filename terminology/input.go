package terminology

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/terminology/fhirjson"
	"github.com/caddy-fhir/caddy-fhir/terminology/fhirxml"
)

// input is one parameter of an operation, from the query string or a Parameters resource.
type input struct {
	name     string
	value    string         // a primitive value[x], or from the query string
	complex  jsontext.Value // any other value[x]
	resource jsontext.Value
	parts    []input
}

// maxInputs bounds the parameters of one request, and maxPartDepth their nesting.
const maxInputs, maxPartDepth = 1000, 4

// readInputs reads the parameters of the query string and, in a POST, of the body: a form, a Parameters resource in JSON or
// XML, or another resource, which is the value of the parameter called bare.
func (o *operation) readInputs(w http.ResponseWriter, bare string) ([]input, error) {
	r := o.Request
	inputs, err := queryInputs(r.URL.RawQuery)
	if err != nil || r.Method != http.MethodPost {
		return inputs, err
	}
	body, err := o.readBody(w, r)
	if err != nil || len(body) == 0 {
		return inputs, err
	}
	if err := o.budget.read(len(body)); err != nil {
		return nil, err
	}
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if kind == "application/x-www-form-urlencoded" && err == nil {
		form, err := queryInputs(string(body))
		return append(inputs, form...), err
	}
	if strings.Contains(kind, "xml") {
		if body, err = fhirxml.AppendJSON(nil, body); err != nil {
			return nil, &Error{Status: http.StatusBadRequest, Code: "structure", Err: err, Text: "the body is not a FHIR resource in XML: " + err.Error()}
		}
	}
	return bodyInputs(inputs, body, bare)
}

// maxTrusted bounds the memory allocated for a Content-Length before its body has come.
const maxTrusted = 256 << 10

// readBody reads the body of a POST, and puts it back for another server that may be asked.
func (o *operation) readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	limit := cmp.Or(o.handler.MaxBody, defaultMaxBody)
	var body bytes.Buffer
	if n := r.ContentLength; n > 0 && n <= limit {
		body.Grow(min(int(n), maxTrusted) + bytes.MinRead)
	}
	_, err := body.ReadFrom(http.MaxBytesReader(w, r.Body, limit))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, &Error{Status: http.StatusRequestEntityTooLarge, Code: "too-long", Err: err, Text: "the body is larger than the limit of " + fhirjson.SizeText(limit)}
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, &Error{Status: http.StatusRequestTimeout, Code: "timeout", Err: err, Text: "the body came too slowly"}
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, &Error{Status: http.StatusBadRequest, Code: "incomplete", Err: err, Text: "the body could not be read whole"}
	}
	r.Body = io.NopCloser(bytes.NewReader(body.Bytes()))
	return body.Bytes(), nil
}

// queryInputs reads the parameters of a query string in order.
func queryInputs(query string) ([]input, error) {
	if query == "" {
		return nil, nil
	}
	inputs := make([]input, 0, min(maxInputs, 1+strings.Count(query, "&")))
	for pair := range strings.SplitSeq(query, "&") {
		if pair == "" {
			continue
		}
		if len(inputs) == maxInputs {
			return nil, badRequest("too-long", "there may be at most %d parameters", maxInputs)
		}
		key, value, _ := strings.Cut(pair, "=")
		name, err := url.QueryUnescape(key)
		if err == nil && strings.Contains(pair, ";") {
			err = errors.New("invalid semicolon separator in query")
		}
		if err == nil {
			value, err = url.QueryUnescape(value)
		}
		if err != nil {
			return nil, badRequest("invalid", "the query string is malformed: %v", err)
		}
		inputs = append(inputs, input{name: name, value: value})
	}
	return inputs, nil
}

func bodyInputs(inputs []input, body []byte, bare string) ([]input, error) {
	kind, err := fhirjson.ResourceType(body)
	if err != nil {
		return nil, &Error{Status: http.StatusBadRequest, Code: "structure", Err: err, Text: "the body is not a FHIR resource in JSON: " + err.Error()}
	}
	if kind != "Parameters" {
		if bare == "" {
			return nil, badRequest("structure", "the body must be a Parameters resource, not %s", kind)
		}
		return append(inputs, input{name: bare, resource: body}), nil
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
		return nil, &Error{Status: http.StatusBadRequest, Code: "structure", Err: err, Text: "the Parameters resource cannot be read: " + err.Error()}
	}
	return inputs, nil
}

var errTooManyInputs = errors.New("too many parameters, or nested too deep")

// appendInputs reads Parameters.parameter or parameter.part.
func appendInputs(list *[]input, r *fhirjson.Reader, depth int) error {
	return r.Array(func() error {
		if len(*list) >= maxInputs || depth > maxPartDepth {
			return errTooManyInputs
		}
		var in input
		err := r.Object(func(name []byte) error { return in.member(r, name, depth) })
		*list = append(*list, in)
		return err
	})
}

func (in *input) member(r *fhirjson.Reader, name []byte, depth int) error {
	switch {
	case string(name) == "name":
		return r.ReadString(&in.name)
	case string(name) == "resource":
		return copyObject(r, &in.resource)
	case string(name) == "part":
		return appendInputs(&in.parts, r, depth+1)
	case !bytes.HasPrefix(name, []byte("value")):
		return r.Skip()
	case r.IsPrimitive():
		s, err := r.Primitive()
		in.value = string(s)
		return err
	default:
		return copyObject(r, &in.complex)
	}
}

func copyObject(r *fhirjson.Reader, into *jsontext.Value) error {
	value, err := r.Value('{')
	*into = value.Clone()
	return err
}
