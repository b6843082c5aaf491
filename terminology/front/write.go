package front

import (
	"bytes"
	"io"
	"mime"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
)

// write is a request that may change definitions at the FHIR server behind.
type write struct {
	front     *Front
	reference string // type and id, if the path has them
	whole     bool   // the body is the new definition
	batch     bool   // the body says what is written
	body      *writtenBody
}

// readingOperations change nothing. Any other operation, such as $import, may change definitions.
var readingOperations = []string{
	"$expand", "$validate-code", "$batch-validate-code", "$lookup", "$subsumes", "$find-matches", "$translate", "$closure",
	"$validate", "$meta", "$versions", "$convert", "$export", "$everything", "$diff",
}

// writeOf returns the write that a request makes, or nil. It cleans the path and ignores case, as some servers do.
func (f *Front) writeOf(r *http.Request) *write {
	if r.Method != http.MethodPost && r.Method != http.MethodPut && r.Method != http.MethodPatch && r.Method != http.MethodDelete {
		return nil
	}
	below, within := cutPrefixFold(path.Clean(r.URL.Path)+"/", f.options.Base+"/")
	parts := strings.Split(strings.TrimSuffix(below, "/"), "/")
	last := parts[len(parts)-1]
	kind := slices.IndexFunc(definitionTypes, func(name string) bool { return strings.EqualFold(name, parts[0]) })
	switch {
	case !within, last == "_search":
		return nil
	case parts[0] == "", parts[0] == "$graphql": // whose body says what it changes
		return &write{front: f, batch: true, body: newWrittenBody(r, parts[0] == "")}
	case kind < 0 && parts[0] != last, kind < 0 && last[0] != '$', slices.Contains(readingOperations, last):
		return nil
	case last[0] == '$':
		return &write{front: f}
	}
	w := &write{front: f, body: newWrittenBody(r, false)}
	if len(parts) > 1 {
		w.reference = definitionTypes[kind] + "/" + parts[1]
	}
	w.whole = r.Method == http.MethodPost || r.Method == http.MethodPut && w.reference != ""
	return w
}

func cutPrefixFold(s, prefix string) (after string, found bool) {
	if len(s) < len(prefix) || !strings.EqualFold(s[:len(prefix)], prefix) {
		return s, false
	}
	return s[len(prefix):], true
}

// pass passes a write to the next handler. What it changes is forgotten before the client is answered, and again after,
// since responses may have been stored in between.
func (c *write) pass(w http.ResponseWriter, r *http.Request, next NextHandler) error {
	answer := &responseWriter{ResponseWriter: w, begins: func(status int) {
		if mayBeDone(status) {
			c.forget()
		}
	}}
	err := next.ServeHTTP(answer, r)
	status := 0
	switch {
	case err == nil && answer.final:
		status = answer.status
	case err != nil && !answer.final:
		status = c.front.host.Server.Status(err)
	}
	if status == 0 || mayBeDone(status) {
		c.forget()
	}
	return err
}

func mayBeDone(status int) bool { return status < 400 || status >= 500 }

// forget ends what is made of what was written, and all unless that is known.
func (c *write) forget() {
	if c.batch && !c.body.mentions() {
		return
	}
	c.front.host.End(Ending{Written: c.names()})
}

// names returns the canonical and the reference of what was written, if these are sure to be all.
func (c *write) names() (names []string) {
	if c.reference != "" {
		names = append(names, c.reference)
	}
	if !c.whole {
		return names
	}
	head, ok := c.body.head()
	if !ok || head.URL == "" {
		return nil
	}
	return append(names, head.URL)
}

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

func (b *writtenBody) mentions() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.named || b.encoded || b.bundle != nil && b.bundle.changes()
}

func (b *writtenBody) head() (resourceHead, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.xml || b.encoded || b.held.Len() > maxWritten {
		return resourceHead{}, false
	}
	return readHead(b.held.Bytes())
}
