package terminology

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
)

// buffers holds the byte slices that answers are made in.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 8<<10); return &b }}

// putBuffer gives a buffer back, unless it is so large that it had better not be kept.
func putBuffer(buffer *[]byte) {
	if cap(*buffer) <= 1<<20 {
		buffers.Put(buffer)
	}
}

// write writes an expansion.
func (a *answer) write(w http.ResponseWriter, r *http.Request, inputs []input) error {
	f, err := negotiate(r, inputs)
	if err != nil {
		return err
	}
	buffer := buffers.Get().(*[]byte)
	defer putBuffer(buffer)
	*buffer = a.append((*buffer)[:0])
	return f.write(w, r, http.StatusOK, *buffer)
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
	accept := r.Header.Get("Accept")
	at := strings.Index(accept, "xml")
	f.xml = at >= 0 && !strings.Contains(accept[:at], "json") && !strings.Contains(accept[:at], "html") && !strings.Contains(accept[:at], "*/*")
	return f, nil
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
func (f format) write(w http.ResponseWriter, r *http.Request, status int, body []byte) error {
	header := w.Header()
	header.Set("Content-Type", "application/fhir+json")
	if f.pretty {
		value := jsontext.Value(body)
		if err := value.Indent(); err != nil {
			return fmt.Errorf("indenting the answer: %w", err)
		}
		body = value
	}
	header.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	if r.Method == http.MethodHead {
		return nil
	}
	if _, err := w.Write(body); err != nil {
		return fmt.Errorf("writing the answer: %w", err)
	}
	return nil
}
