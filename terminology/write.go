package terminology

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

// buffers holds the byte slices that answers are made in.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 8<<10); return &b }}

// putBuffer gives a buffer back, unless it is so large that it had better not be kept.
func putBuffer(buffer *[]byte) {
	if cap(*buffer) <= 1<<20 {
		buffers.Put(buffer)
	}
}

// respond writes the expansion, or says that the one which the client has is still good.
func (w *expansionWriter) respond(rw http.ResponseWriter, r *http.Request, f format) error {
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
	if len(w.page) > streamed && f == (format{}) && r.Method != http.MethodHead {
		header["Content-Type"] = fhirJSON
		return w.writeTo(rw, buffer)
	}
	*buffer = w.append((*buffer)[:0])
	return f.write(rw, r, *buffer)
}

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
	if w.get {
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
