package caddymodule

import (
	"bytes"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// definitionTypes are the types of resources that expansions are made of.
var definitionTypes = []string{"ValueSet", "CodeSystem", "ConceptMap"}

// resourceHead is what names a definition.
type resourceHead struct {
	Type string `json:"resourceType"`
	ID   string `json:"id"`
	URL  string `json:"url"`
}

func (h resourceHead) reference() string { return h.Type + "/" + h.ID }

// readHead reads what names a definition, if it is one.
func readHead(resource []byte) (h resourceHead, ok bool) {
	err := json.Unmarshal(resource, &h, jsontext.AllowDuplicateNames(true))
	return h, err == nil && slices.Contains(definitionTypes, h.Type)
}

// write is a request that may change definitions at the FHIR server behind.
type write struct {
	reference string // type and id, where the path has them
	whole     bool   // the body is the definition
	batch     bool   // the body is a Bundle
	body      *writtenBody
}

// writeOf returns the write that a request is, or nil.
func (h *Expand) writeOf(r *http.Request) *write {
	if r.Method != http.MethodPost && r.Method != http.MethodPut && r.Method != http.MethodPatch && r.Method != http.MethodDelete {
		return nil
	}
	path, within := strings.CutPrefix(r.URL.Path, h.FHIRBase)
	parts := strings.Split(strings.Trim(path, "/"), "/")
	last := parts[len(parts)-1]
	switch {
	case !within || path != "" && path[0] != '/', strings.HasPrefix(last, "$"), last == "_search":
		return nil
	case parts[0] == "":
		return &write{batch: true, body: newWrittenBody(r)}
	case !slices.Contains(definitionTypes, parts[0]):
		return nil
	}
	w := &write{body: newWrittenBody(r)}
	if len(parts) > 1 {
		w.reference = parts[0] + "/" + parts[1]
	}
	w.whole = r.Method == http.MethodPost || r.Method == http.MethodPut && w.reference != ""
	return w
}

// pass has the next handler do a write. What it changes is forgotten before the
// client hears that it was done, and again after, since answers may have been made
// in between.
func (c *write) pass(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	done := &writtenAnswer{ResponseWriterWrapper: &caddyhttp.ResponseWriterWrapper{ResponseWriter: w}, write: c}
	err := next.ServeHTTP(done, r)
	if err != nil || done.status == 0 || changes(done.status) {
		c.forget()
	}
	return err
}

// changes reports whether a write with this status may have been done.
func changes(status int) bool { return status < 400 || status >= 500 }

// forget ends the answers that depend on what was written, in all caches: they may
// be in front of the same server.
func (c *write) forget() {
	names, sure := c.names()
	expansionCaches.Range(func(_, value any) bool {
		if x, ok := value.(*expansions); ok {
			x.written(names, sure)
		}
		return true
	})
}

// names returns the canonical and the reference of what was written, and whether
// that is all.
func (c *write) names() (names []string, sure bool) {
	if c.batch {
		return nil, !c.body.mentions()
	}
	if c.reference != "" {
		names = append(names, c.reference)
	}
	if !c.whole {
		return names, c.reference != ""
	}
	head, ok := c.body.head()
	return append(names, head.URL), ok && head.URL != ""
}

// written forgets what is named, and what depends on it; all where that is not
// sure.
func (x *expansions) written(names []string, sure bool) {
	x.use()
	for _, name := range names {
		if name == "" {
			continue
		}
		before, known := x.backend.forget(name)
		sure = sure && known
		for _, canonical := range []string{name, before} {
			x.forgetCanonical(canonical)
		}
	}
	if !sure {
		x.Purge("", "")
	}
}

func (x *expansions) forgetCanonical(canonical string) {
	if canonical == "" {
		return
	}
	x.forgetWhole(canonical)
	if x.cache != nil {
		x.cache.InvalidateSystem(canonical)
	}
}

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
}

func newWrittenBody(r *http.Request) *writtenBody {
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	b := &writtenBody{ReadCloser: r.Body, encoded: r.Header.Get("Content-Encoding") != "", xml: strings.Contains(kind, "xml")}
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
	if !b.named {
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
	return b.named || b.encoded
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

// writtenAnswer is told when a write was done.
type writtenAnswer struct {
	*caddyhttp.ResponseWriterWrapper
	write  *write
	status int
}

// WriteHeader implements http.ResponseWriter.
func (w *writtenAnswer) WriteHeader(status int) {
	if status >= http.StatusOK && w.status == 0 {
		w.status = status
		if changes(status) {
			w.write.forget()
		}
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *writtenAnswer) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	return w.ResponseWriter.Write(b)
}

// ReadFrom implements io.ReaderFrom.
func (w *writtenAnswer) ReadFrom(r io.Reader) (int64, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	return w.ResponseWriterWrapper.ReadFrom(r)
}
