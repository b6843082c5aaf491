package api

import (
	"net/http"
	"strings"
	"sync"

	"github.com/caddy-fhir/caddy-fhir/terminology/expansion"
)

// buffers holds the buffers that answers are made in.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 8<<10); return &b }}

// putBuffer returns a buffer to the pool unless it is too large to keep.
func putBuffer(buffer *[]byte) {
	if cap(*buffer) <= 1<<20 {
		buffers.Put(buffer)
	}
}

// respond writes the expansion, or 304 Not Modified.
func respond(w *expansion.Writer, large bool, rw http.ResponseWriter, r *http.Request, f format) error {
	header := rw.Header()
	if header["Vary"] == nil {
		header["Vary"] = varying
	} else {
		header.Add("Vary", varying[0])
	}
	if r.Method != http.MethodPost {
		tag := w.Tag(f.xml, f.pretty)
		header["Etag"] = []string{tag}
		if matchesTag(r.Header.Get("If-None-Match"), tag) {
			rw.WriteHeader(http.StatusNotModified)
			return nil
		}
	}
	buffer := buffers.Get().(*[]byte)
	defer putBuffer(buffer)
	if large && f == (format{}) && r.Method != http.MethodHead {
		header["Content-Type"] = fhirJSON
		return w.WriteTo(rw, buffer)
	}
	*buffer = w.Append((*buffer)[:0])
	return f.write(rw, r, *buffer)
}

// streamed is from how many entries on an answer is written while it is made.
const streamed = 4096

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
