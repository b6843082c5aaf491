package terminology

import (
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/terminology/fhirxml"
)

// buffers holds the byte slices that answers are made in.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 8<<10); return &b }}

// putBuffer gives a buffer back, unless it is so large that it had better not be kept.
func putBuffer(buffer *[]byte) {
	if cap(*buffer) <= 1<<20 {
		buffers.Put(buffer)
	}
}

// writeExpansion writes an expansion, or says that the one which the client has is still good.
func writeExpansion(rw http.ResponseWriter, r *http.Request, x *Expansion, p *parameters) error {
	f, err := negotiate(r, p.given)
	if err != nil {
		return err
	}
	w := newExpansionWriter(x, p.plain)
	header := rw.Header()
	if header["Vary"] == nil {
		header["Vary"] = varying
	} else {
		header.Add("Vary", varying[0])
	}
	if r.Method != http.MethodPost {
		tag := w.tag(f)
		header["Etag"] = []string{tag}
		if matchesTag(r.Header.Get("If-None-Match"), tag) {
			rw.WriteHeader(http.StatusNotModified)
			return nil
		}
	}
	buffer := buffers.Get().(*[]byte)
	defer putBuffer(buffer)
	if len(x.page) > streamed && f == (format{}) && r.Method != http.MethodHead {
		header["Content-Type"] = fhirJSON
		return w.writeTo(rw, buffer)
	}
	*buffer = w.append((*buffer)[:0])
	return f.write(rw, r, *buffer)
}

// Values of headers that are the same for many answers. They are not changed by anyone: what appends to them
// makes a copy.
var (
	varying  = []string{"Accept, Accept-Language"}
	fhirJSON = []string{"application/fhir+json"}
	fhirXML  = []string{"application/fhir+xml"}
)

// streamed is from how many entries on an answer is written while it is made.
const streamed = 4096

// chunk is how much of an answer is made, in bytes, before it is written.
const chunk = 64 << 10

// stream is where an answer goes while it is made.
type stream struct {
	out    io.Writer // nil: it is made whole
	failed error     // of writing
}

// write writes a part of the answer, unless an earlier one could not be written.
func (s *stream) write(part []byte) {
	if s.failed == nil {
		_, s.failed = s.out.Write(part)
	}
}

// writeTo writes an answer while it is made.
func (w *expansionWriter) writeTo(out io.Writer, buffer *[]byte) error {
	w.stream.out = out
	*buffer = w.append((*buffer)[:0])
	w.stream.write(*buffer)
	if w.stream.failed != nil {
		return fmt.Errorf("writing the answer: %w", w.stream.failed)
	}
	return nil
}

// flush writes what has been made of an answer, if it is streamed and there is enough of it.
func (w *expansionWriter) flush(dst []byte) []byte {
	if w.stream.out == nil || len(dst) < chunk {
		return dst
	}
	w.stream.write(dst)
	w.lastSystem.to = 0
	return dst[:0]
}

// tag returns the entity tag of an answer. The identifier tells what it was made of; beside that it depends
// on the format and, by its timestamp, on when the library was loaded.
func (w *expansionWriter) tag(f format) string {
	tag := append(append(make([]byte, 0, 64), '"'), w.identifier[len("urn:uuid:"):]...)
	tag = strconv.AppendInt(append(tag, '-'), w.library.loaded.Unix(), 36)
	if f.xml {
		tag = append(tag, 'x')
	}
	if f.pretty {
		tag = append(tag, 'p')
	}
	if w.plain {
		tag = append(tag, 'l')
	}
	return string(append(w.query.subset.appendTag(tag), '"'))
}

// matchesTag reports whether If-None-Match names a tag (RFC 9110 §13.1.2).
func matchesTag(header, tag string) bool {
	for candidate := range strings.SplitSeq(header, ",") {
		candidate = strings.TrimSpace(candidate)
		if candidate == "*" || strings.TrimPrefix(candidate, "W/") == tag {
			return true
		}
	}
	return false
}

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
