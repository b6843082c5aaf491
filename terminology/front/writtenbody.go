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

// maxWritten bounds the body, in bytes, that is searched for a definition's URL.
const maxWritten = 1 << 20

// writtenBody inspects a request's body while the next handler reads it.
type writtenBody struct {
	io.ReadCloser

	mu      sync.Mutex   // the response may begin while the body is still being read
	held    bytes.Buffer // the beginning of the body
	tail    []byte       // the end of what was read so far, where a name may begin
	named   bool         // the name of a type of definitions occurred
	encoded bool         // the body cannot be inspected
	xml     bool
	bundle  *writtenBundle // nil: the body is no Bundle in JSON
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

// mentions reports whether the body may write definitions.
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
