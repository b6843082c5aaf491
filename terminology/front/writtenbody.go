package front

import (
	"bytes"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// maxWritten is how much of a definition is looked at for its URL.
const maxWritten = 1 << 20

// writtenBody looks at a request's body while it is read.
type writtenBody struct {
	io.ReadCloser

	mu      sync.Mutex   // the answer may come before all of it was read
	held    bytes.Buffer // the beginning
	tail    []byte       // the end of what was read, where a name may begin
	named   bool         // a type of definitions occurred
	encoded bool         // it cannot be looked at
	xml     bool
	bundle  *writtenBundle // nil: it is none in JSON
}

func newWrittenBody(r *http.Request, batch bool) *writtenBody {
	kind, params, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	charset := params["charset"]
	b := &writtenBody{
		ReadCloser: r.Body, xml: strings.Contains(kind, "xml"),
		encoded: r.Header.Get("Content-Encoding") != "" || charset != "" && !strings.EqualFold(charset, "utf-8"),
	}
	if batch && strings.HasSuffix(kind, "json") {
		b.bundle = new(writtenBundle)
	}
	if r.Body == nil {
		b.ReadCloser = http.NoBody
	}
	r.Body = b
	return b
}

// Read implements io.Reader.
func (b *writtenBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.mu.Lock()
	defer b.mu.Unlock()
	if room := maxWritten + 1 - b.held.Len(); room > 0 {
		b.held.Write(p[:min(n, room)])
	}
	if b.bundle != nil {
		_, _ = b.bundle.Write(p[:n]) // it never fails
	} else if !b.named {
		b.tail = append(b.tail, p[:n]...)
		b.named = slices.ContainsFunc(definitionTypes, func(name string) bool { return bytes.Contains(b.tail, []byte(name)) })
		b.tail = append(b.tail[:0], b.tail[max(0, len(b.tail)-len("CodeSystem")):]...)
	}
	return n, err
}

// mentions reports whether the body may have to do with definitions.
func (b *writtenBody) mentions() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.named || b.encoded || b.bundle != nil && b.bundle.changes()
}

// head reads what names the definition that the body is.
func (b *writtenBody) head() (resourceHead, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.xml || b.encoded || b.held.Len() > maxWritten {
		return resourceHead{}, false
	}
	return readHead(b.held.Bytes())
}
