package terminology

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
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

// chunk is how many bytes of an answer are made before they are written.
const chunk = 64 << 10

type stream struct {
	out    io.Writer // nil: the answer is made whole
	failed error     // of writing
}

// write writes part of the answer, unless an earlier write failed.
func (s *stream) write(part []byte) {
	if s.failed == nil {
		_, s.failed = s.out.Write(part)
	}
}

func (w *expansionWriter) writeTo(out io.Writer, buffer *[]byte) error {
	w.stream.out = out
	*buffer = w.append((*buffer)[:0])
	w.stream.write(*buffer)
	if w.stream.failed != nil {
		return fmt.Errorf("writing the answer: %w", w.stream.failed)
	}
	return nil
}

// flush writes what has been made of a streamed answer if it is enough.
func (w *expansionWriter) flush(dst []byte) []byte {
	if w.stream.out == nil || len(dst) < chunk {
		return dst
	}
	w.stream.write(dst)
	w.lastSystem.to = 0
	return dst[:0]
}

// tag returns the entity tag of an answer. The identifier covers what it was made of; the tag adds the format and, by
// its timestamp, when the library was loaded.
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
