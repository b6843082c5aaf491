package dispatch

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

// write is a request that may change definitions at the backend.
type write struct {
	front     *Dispatcher
	reference string // type and ID, if the path contains them
	whole     bool   // the body is the complete new definition
	batch     bool   // the body contains the writes
	body      *writtenBody
}

// readingOperations never change definitions. All other operations, such as $import, may.
var readingOperations = []string{
	"$expand", "$validate-code", "$batch-validate-code", "$lookup", "$subsumes", "$find-matches", "$translate", "$closure",
	"$validate", "$meta", "$versions", "$convert", "$export", "$everything", "$diff",
}

// writeOf returns the write of a request, or nil. It cleans the path and ignores case, as some servers do.
func (f *Dispatcher) writeOf(r *http.Request) *write {
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
	case parts[0] == "", parts[0] == "$graphql": // the body determines the changes
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

// pass passes a write to the next handler. It invalidates the dependent responses before the client gets its response,
// and again afterwards because responses may have been stored in between.
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

// forget invalidates everything that depends on the written definitions, or everything if the definitions are unknown.
func (c *write) forget() {
	if c.batch && !c.body.mentions() {
		return
	}
	c.front.host.End(Invalidation{Written: c.names()})
}

// names returns the canonical and reference of the written definition, or nil if they are uncertain.
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

// writtenBody inspects the body of a request while the next handler reads it.
type writtenBody struct {
	io.ReadCloser

	mu      sync.Mutex   // the response may begin before the body is completely read
	held    bytes.Buffer // beginning of the body
	tail    []byte       // last bytes read, where a type name may begin
	named   bool         // the name of a definition type occurred
	encoded bool         // the body cannot be inspected
	xml     bool
	bundle  *writtenBundle // nil unless the body is a JSON Bundle
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
		_, _ = b.bundle.Write(p[:n]) // never fails
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

// writtenBundle scans a JSON Bundle for writes of definitions: a member resourceType or url that names a definition
// type, and a request that is not a read. The type name alone is not sufficient, because nearly every clinical resource
// has a code from http://terminology.hl7.org/CodeSystem/….
type writtenBundle struct {
	named    bool // a definition type occurred
	requests bool // the method of a request occurred
	writes   bool // a method other than a read occurred

	quoted  bool   // inside a string
	escaped bool   // after a backslash in a string
	text    []byte // the last string, up to maxMember bytes
	member  member // member of the next value
}

type member uint8

const (
	otherMember member = iota
	namingMember
	methodMember
)

// maxMember is the maximum length of a buffered string in bytes. A longer URL counts as a definition type.
const maxMember = 4 << 10

// Write implements io.Writer. It never fails: the backend rejects invalid JSON.
func (b *writtenBundle) Write(p []byte) (int, error) {
	whole := len(p)
	for len(p) > 0 {
		if b.quoted && !b.escaped {
			p = b.addText(p)
		}
		if len(p) == 0 {
			break
		}
		c := p[0]
		p = p[1:]
		switch {
		case b.escaped:
			b.escaped = false
			b.add('\\', c)
		case b.quoted && c == '\\':
			b.escaped = true
		case b.quoted:
			b.quoted = false
			b.value()
		case c == '"':
			b.quoted, b.text = true, b.text[:0]
		case c == ':':
			b.member = memberOf(b.text)
		case c == ',' || c == '{':
			b.member = otherMember
		}
	}
	return whole, nil
}

func (b *writtenBundle) addText(p []byte) (rest []byte) {
	n := bytes.IndexAny(p, "\"\\")
	if n < 0 {
		n = len(p)
	}
	b.add(p[:n]...)
	return p[n:]
}

func (b *writtenBundle) add(c ...byte) {
	b.text = append(b.text, c[:min(len(c), maxMember-len(b.text))]...)
}

func memberOf(name []byte) member {
	switch string(name) {
	case "resourceType", "url":
		return namingMember
	case "method":
		return methodMember
	}
	return otherMember
}

// value inspects a string that may be a value. Unnecessary escapes count as a hidden definition type and write.
func (b *writtenBundle) value() {
	switch {
	case isEscaped(b.text):
		b.named, b.writes = true, true
	case b.member == methodMember:
		b.requests = true
		b.writes = b.writes || string(b.text) != http.MethodGet && string(b.text) != http.MethodHead
	case b.member == namingMember:
		b.named = b.named || len(b.text) >= maxMember || namesDefinitions(b.text)
	}
}

// changes reports whether the Bundle may change definitions. A Bundle without requests may.
func (b *writtenBundle) changes() bool { return b.named && (b.writes || !b.requests) }

// isEscaped reports whether a letter is escaped, such as \u0041.
func isEscaped(text []byte) bool {
	if bytes.IndexByte(text, '\\') < 0 {
		return false
	}
	for _, row := range []string{`\u004`, `\u005`, `\u006`, `\u007`} {
		if bytes.Contains(text, []byte(row)) {
			return true
		}
	}
	return false
}

// namesDefinitions reports whether a text contains a definition type or is a system-level operation.
func namesDefinitions(text []byte) bool {
	return bytes.HasPrefix(bytes.TrimLeft(text, `\/`), []byte("$")) ||
		slices.ContainsFunc(definitionTypes, func(name string) bool { return bytes.Contains(text, []byte(name)) })
}

// responseWriter passes a response to the client and records its status.
type responseWriter struct {
	http.ResponseWriter
	status  int  // last status, including informational ones (1xx); 0 if none
	final   bool // the final response has started
	dropped bool // the response is not sent to the client

	begins  func(status int)      // called before the final response unless nil
	refused func(status int) bool // reports whether to drop a response; nil keeps all
}

func (w *responseWriter) WriteHeader(status int) {
	if w.final {
		return
	}
	w.status, w.final = status, status >= http.StatusOK
	if w.final && w.begins != nil {
		w.begins(status)
	}
	w.dropped = w.refused != nil && w.refused(status)
	if !w.dropped {
		w.ResponseWriter.WriteHeader(status)
	}
}

func (w *responseWriter) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	if w.dropped {
		return len(b), nil
	}
	return w.ResponseWriter.Write(b)
}

// ReadFrom implements io.ReaderFrom, so that files are sent without copying.
func (w *responseWriter) ReadFrom(r io.Reader) (int64, error) {
	w.WriteHeader(http.StatusOK)
	if w.dropped {
		return io.Copy(io.Discard, r)
	}
	if to, ok := w.ResponseWriter.(io.ReaderFrom); ok {
		return to.ReadFrom(r)
	}
	return io.Copy(w.ResponseWriter, r)
}

// FlushError implements the method used by http.ResponseController. It must not start the response.
func (w *responseWriter) FlushError() error {
	if w.status == 0 || w.dropped {
		return nil
	}
	return http.NewResponseController(w.ResponseWriter).Flush()
}

func (w *responseWriter) Push(target string, options *http.PushOptions) error {
	if pusher, ok := w.ResponseWriter.(http.Pusher); ok {
		return pusher.Push(target, options)
	}
	return http.ErrNotSupported
}

// Unwrap returns the underlying writer, for http.ResponseController.
func (w *responseWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

var (
	_ http.ResponseWriter = (*responseWriter)(nil)
	_ io.ReaderFrom       = (*responseWriter)(nil)
	_ http.Pusher         = (*responseWriter)(nil)
)
