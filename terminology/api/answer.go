package api

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/terminology/expansion"
	"github.com/caddy-fhir/caddy-fhir/terminology/negotiation"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/parameters"
)

var bufferPool = sync.Pool{New: func() any { b := make([]byte, 0, 8<<10); return &b }}

// putBuffer returns a buffer of at most 1 MiB to the pool; larger buffers are left to the garbage collector.
func putBuffer(buffer *[]byte) {
	if cap(*buffer) <= 1<<20 {
		bufferPool.Put(buffer)
	}
}

// writeExpansion writes an expansion, or 304 Not Modified if its entity tag matches If-None-Match. large enables streaming.
func writeExpansion(w *expansion.Writer, large bool, rw http.ResponseWriter, r *http.Request, f format) error {
	header := rw.Header()
	if header["Vary"] == nil {
		header["Vary"] = varyAccept
	} else {
		header.Add("Vary", varyAccept[0])
	}
	if r.Method != http.MethodPost {
		tag := w.Tag(f.xml, f.pretty)
		header["Etag"] = []string{tag}
		if matchesTag(r.Header.Get("If-None-Match"), tag) {
			rw.WriteHeader(http.StatusNotModified)
			return nil
		}
	}
	buffer := bufferPool.Get().(*[]byte)
	defer putBuffer(buffer)
	if large && f == (format{}) && r.Method != http.MethodHead {
		header["Content-Type"] = contentTypeJSON
		return w.WriteTo(rw, buffer)
	}
	*buffer = w.Append((*buffer)[:0])
	return f.write(rw, r, *buffer)
}

// minStreamedEntries is the number of entries above which a response is streamed.
const minStreamedEntries = 4096

// matchesTag reports whether header, an If-None-Match value, contains tag or is * (RFC 9110 §13.1.2).
func matchesTag(header, tag string) bool {
	for candidate := range strings.SplitSeq(header, ",") {
		candidate = strings.TrimSpace(candidate)
		if candidate == "*" || strings.TrimPrefix(candidate, "W/") == tag {
			return true
		}
	}
	return false
}

// format is the format of a response.
type format struct{ xml, pretty bool }

// negotiate returns the format of a response. It returns an error for XML if the build does not include XML support.
func negotiate(r *http.Request, inputs []parameters.Input) (format, error) {
	f, err := requestedFormat(r, inputs)
	if err == nil && f.xml && !negotiation.HasXML() {
		err = &outcome.Error{Status: http.StatusNotAcceptable, Code: "not-supported", Text: "This server writes only JSON: request application/fhir+json."}
	}
	return f, err
}

// requestedFormat returns the format in _format or, if absent, in Accept. Unknown media types in Accept mean JSON.
func requestedFormat(r *http.Request, inputs []parameters.Input) (f format, err error) {
	for i := range inputs {
		switch in := &inputs[i]; in.Name {
		case "_format":
			kind := negotiation.FormatName(in.Value)
			isFHIR, known := negotiation.FormatOf(kind)
			switch f.xml = isFHIR == negotiation.XML; {
			case kind == "":
				continue // an empty value is treated as absent
			case known && !f.xml:
				f.pretty = f.pretty || slices.ContainsFunc(inputs, func(in parameters.Input) bool { return in.Name == "_pretty" && in.Value == "true" })
			case !known:
				err = &outcome.Error{Status: http.StatusNotAcceptable, Code: "not-supported", Text: "_format must be json or xml"}
			}
			return f, err
		case "_pretty":
			f.pretty = in.Value == "true"
		}
	}
	f.xml = negotiation.AcceptsXML(r.Header["Accept"])
	return f, nil
}

// write writes body, a resource in JSON, in the format f.
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
		return fmt.Errorf("writing the response: %w", err)
	}
	return nil
}

// encode converts body, a resource in JSON, to the format f and returns its Content-Type.
func (f format) encode(body []byte) (kind []string, _ []byte, err error) {
	switch {
	case f.xml:
		if body, err = negotiation.AppendXML(nil, body); err != nil {
			err = fmt.Errorf("converting the response to XML: %w", err)
		}
		return contentTypeXML, body, err
	case f.pretty:
		value := jsontext.Value(body)
		if err = value.Indent(); err != nil {
			err = fmt.Errorf("indenting the response: %w", err)
		}
		return contentTypeJSON, value, err
	}
	return contentTypeJSON, body, nil
}

// encodeProvisional converts the error's provisional response, if there is one, from JSON to the format f.
func (f format) encodeProvisional(err error) error {
	e, ok := errors.AsType[*outcome.Error](err)
	if !ok || e.Provisional == nil {
		return err
	}
	kind, body, failed := f.encode(e.Provisional.Body)
	if failed != nil {
		return failed
	}
	e.Provisional = &outcome.Provisional{ContentType: kind[0], Body: body}
	return err
}

// Header values shared by many responses; must not be modified.
var (
	varyAccept      = []string{"Accept, Accept-Language"}
	contentTypeJSON = []string{"application/fhir+json"}
	contentTypeXML  = []string{"application/fhir+xml"}
)
