package terminology

import (
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/terminology/fhirxml"
)

// format is how an answer is written.
type format struct{ xml, pretty bool }

// negotiate chooses the format that the parameter _format or else the header Accept asks for. What it asks
// for in the header and is not known counts as JSON.
func negotiate(r *http.Request, inputs []input) (f format, err error) {
	for i := range inputs {
		switch in := &inputs[i]; in.name {
		case "_format":
			kind, _, _ := strings.Cut(in.value, ";")
			switch strings.ReplaceAll(strings.TrimSpace(kind), " ", "+") { // a plus sign that was not escaped
			case "":
				continue // as if it were not there
			case "xml", "text/xml", "application/xml", "application/fhir+xml":
				f.xml = true
				return f, nil
			case "json", "application/json", "application/fhir+json", "text/json":
			default:
				return f, &Error{Status: http.StatusNotAcceptable, Code: "not-supported", Text: "_format must be json or xml"}
			}
			f.xml = false
			f.pretty = f.pretty || isPretty(inputs)
			return f, nil
		case "_pretty":
			f.pretty = in.value == "true"
		}
	}
	f.xml = prefersXML(r.Header["Accept"])
	return f, nil
}

// prefersXML reports whether Accept asks for XML more than for JSON, or, where both have the same weight, first
// (RFC 9110 §12.5.1). Wildcards, and the text/html of a browser, stand for JSON.
func prefersXML(accept []string) bool {
	header := strings.Join(accept, ",")
	if !strings.Contains(strings.ToLower(header), "xml") {
		return false
	}
	best, isXML := 0.0, false
	for item := range strings.SplitSeq(header, ",") {
		kind, parameters, err := mime.ParseMediaType(item)
		q := 1.0
		if weight, failed := strconv.ParseFloat(parameters["q"], 64); failed == nil {
			q = weight
		}
		if err != nil || q <= best {
			continue
		}
		switch kind {
		case "text/xml", "application/xml", "application/fhir+xml":
			best, isXML = q, true
		case "text/json", "application/json", "application/fhir+json", "application/*", "*/*", "text/html":
			best, isXML = q, false
		}
	}
	return isXML
}

// AsksForXML reports whether a request is to be answered in XML, by _format in its query or by its header
// Accept; what cannot be told counts as JSON.
func AsksForXML(r *http.Request) bool {
	inputs, err := queryInputs(r.URL.RawQuery)
	if err != nil {
		return false
	}
	f, err := negotiate(r, inputs)
	return err == nil && f.xml
}

// isPretty reports whether the parameter _pretty asks for an answer for human eyes.
func isPretty(inputs []input) bool {
	for i := range inputs {
		if inputs[i].name == "_pretty" && inputs[i].value == "true" {
			return true
		}
	}
	return false
}

// write writes a resource, which is given in JSON.
func (f format) write(w http.ResponseWriter, r *http.Request, body []byte) error {
	header := w.Header()
	kind, body, err := f.encode(body)
	header["Content-Type"] = kind
	if err != nil {
		return err
	}
	header["Content-Length"] = []string{strconv.Itoa(len(body))}
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return nil
	}
	if _, err := w.Write(body); err != nil {
		return fmt.Errorf("writing the answer: %w", err)
	}
	return nil
}

// encode returns a resource, which is given in JSON, in the format, and its Content-Type.
func (f format) encode(body []byte) (kind []string, _ []byte, err error) {
	switch {
	case f.xml:
		if body, err = fhirxml.Append(nil, body); err != nil {
			err = fmt.Errorf("writing the answer as XML: %w", err)
		}
		return fhirXML, body, err
	case f.pretty:
		value := jsontext.Value(body)
		if err = value.Indent(); err != nil {
			err = fmt.Errorf("indenting the answer: %w", err)
		}
		return fhirJSON, value, err
	}
	return fhirJSON, body, nil
}

// provisional puts an error's provisional answer, which is in JSON, into the format.
func (f format) provisional(err error) error {
	var e *Error
	if !errors.As(err, &e) || e.Provisional == nil {
		return err
	}
	kind, body, failed := f.encode(e.Provisional.Body)
	if failed != nil {
		return failed
	}
	e.Provisional = &Provisional{ContentType: kind[0], Body: body}
	return err
}

// Values of headers that are the same for many answers. They are not changed by anyone: what appends to them
// makes a copy.
var (
	varying  = []string{"Accept, Accept-Language"}
	fhirJSON = []string{"application/fhir+json"}
	fhirXML  = []string{"application/fhir+xml"}
)
