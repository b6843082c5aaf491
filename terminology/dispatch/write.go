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

// writeRequest is a request that may change definitions on the backend.
type writeRequest struct {
	dispatcher *Dispatcher
	reference  string // type and ID; empty if the path contains no ID
	isComplete bool   // whether the body is the complete new definition
	isBatch    bool   // whether the body contains several requests
	body       *bodyInspector
}

// readOnlyOperations never change definitions. Any other operation, such as $import, may change them.
var readOnlyOperations = []string{
	"$expand", "$validate-code", "$batch-validate-code", "$lookup", "$subsumes", "$find-matches", "$translate", "$closure",
	"$related", "$compare", "$validate", "$meta", "$versions", "$convert", "$export", "$everything", "$diff",
}

// parseWrite returns the write that a request performs, or nil. It cleans the path and ignores case, as some servers do.
func (f *Dispatcher) parseWrite(r *http.Request) *writeRequest {
	if r.Method != http.MethodPost && r.Method != http.MethodPut && r.Method != http.MethodPatch && r.Method != http.MethodDelete {
		return nil
	}
	relativePath, within := cutPrefixFold(path.Clean(r.URL.Path)+"/", f.options.Base+"/")
	parts := strings.Split(strings.TrimSuffix(relativePath, "/"), "/")
	last := parts[len(parts)-1]
	kind := slices.IndexFunc(definitionTypes, func(name string) bool { return strings.EqualFold(name, parts[0]) })
	switch {
	case !within, last == "_search":
		return nil
	case parts[0] == "", parts[0] == "$graphql": // the body determines what changes
		return &writeRequest{dispatcher: f, isBatch: true, body: newBodyInspector(r, parts[0] == "")}
	case kind < 0 && parts[0] != last, kind < 0 && last[0] != '$', slices.Contains(readOnlyOperations, last):
		return nil
	case last[0] == '$':
		return &writeRequest{dispatcher: f}
	}
	w := &writeRequest{dispatcher: f, body: newBodyInspector(r, false)}
	if len(parts) > 1 {
		w.reference = definitionTypes[kind] + "/" + parts[1]
	}
	w.isComplete = r.Method == http.MethodPost || r.Method == http.MethodPut && w.reference != ""
	return w
}

func cutPrefixFold(s, prefix string) (after string, found bool) {
	if len(s) < len(prefix) || !strings.EqualFold(s[:len(prefix)], prefix) {
		return s, false
	}
	return s[len(prefix):], true
}

// forward passes a write to the next handler. It invalidates the dependent responses before the client gets the response, and
// once more afterwards, because outdated responses may have been stored in between.
func (c *writeRequest) forward(w http.ResponseWriter, r *http.Request, next NextHandler) error {
	writer := &responseWriter{ResponseWriter: w, beforeFinal: func(status int) {
		if mayHaveSucceeded(status) {
			c.invalidate()
		}
	}}
	err := next.ServeHTTP(writer, r)
	status := 0
	switch {
	case err == nil && writer.finalStarted:
		status = writer.status
	case err != nil && !writer.finalStarted:
		status = c.dispatcher.host.Server.Status(err)
	}
	if status == 0 || mayHaveSucceeded(status) {
		c.invalidate()
	}
	return err
}

func mayHaveSucceeded(status int) bool { return status < 400 || status >= 500 }

// invalidate invalidates everything that depends on the written definitions. If they are unknown, it invalidates all responses.
func (c *writeRequest) invalidate() {
	if c.isBatch && !c.body.mayContainDefinition() {
		return
	}
	c.dispatcher.host.Invalidate(Invalidation{Definitions: c.definitionNames()})
}

// definitionNames returns the canonical and type/ID of the written definition, or nil if the canonical is unknown.
func (c *writeRequest) definitionNames() (names []string) {
	if c.reference != "" {
		names = append(names, c.reference)
	}
	if !c.isComplete {
		return names
	}
	head, ok := c.body.summary()
	if !ok || head.URL == "" {
		return nil
	}
	return append(names, head.URL)
}

const maxInspectedSize = 1 << 20

// bodyInspector inspects a request body while the next handler reads it.
type bodyInspector struct {
	io.ReadCloser

	mu                sync.Mutex   // the response may start before the body is fully read
	beginning         bytes.Buffer // beginning of the body
	tail              []byte       // last bytes read, which may be the start of a type name
	hasDefinitionType bool         // whether the name of a definition type has been read
	isOpaque          bool         // whether the body cannot be inspected
	xml               bool
	bundle            *bundleInspector // nil unless the body is a JSON Bundle
}

func newBodyInspector(r *http.Request, batch bool) *bodyInspector {
	kind, params, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	charset := params["charset"]
	b := &bodyInspector{
		ReadCloser: r.Body, xml: strings.Contains(kind, "xml"),
		isOpaque: r.Header.Get("Content-Encoding") != "" || charset != "" && !strings.EqualFold(charset, "utf-8"),
	}
	if batch && strings.HasSuffix(kind, "json") {
		b.bundle = new(bundleInspector)
	}
	if r.Body == nil {
		b.ReadCloser = http.NoBody
	}
	r.Body = b
	return b
}

func (b *bodyInspector) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.mu.Lock()
	defer b.mu.Unlock()
	if capacity := maxInspectedSize + 1 - b.beginning.Len(); capacity > 0 {
		b.beginning.Write(p[:min(n, capacity)])
	}
	if b.bundle != nil {
		_, _ = b.bundle.Write(p[:n]) // Write never fails
	} else if !b.hasDefinitionType {
		b.tail = append(b.tail, p[:n]...)
		b.hasDefinitionType = slices.ContainsFunc(definitionTypes, func(name string) bool { return bytes.Contains(b.tail, []byte(name)) })
		b.tail = append(b.tail[:0], b.tail[max(0, len(b.tail)-len("CodeSystem")):]...)
	}
	return n, err
}

func (b *bodyInspector) mayContainDefinition() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.hasDefinitionType || b.isOpaque || b.bundle != nil && b.bundle.mayChangeDefinitions()
}

func (b *bodyInspector) summary() (resourceSummary, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.xml || b.isOpaque || b.beginning.Len() > maxInspectedSize {
		return resourceSummary{}, false
	}
	return readSummary(b.beginning.Bytes())
}

// bundleInspector scans a JSON Bundle for writes of definitions. A write of a definition requires a resourceType or url with
// the name of a definition type, and a request that is not a read. The type name alone is not sufficient, because nearly every
// clinical resource has a code from http://terminology.hl7.org/CodeSystem/….
type bundleInspector struct {
	hasDefinitionType bool // a definition type has been found
	hasRequests       bool // the method of a request has been found
	hasWrites         bool // a method that is not a read has been found

	inString       bool   // inside a string
	afterBackslash bool   // after a backslash within a string
	text           []byte // last string, up to maxMemberLength bytes
	member         member // member that the next value belongs to
}

type member uint8

const (
	otherMember member = iota
	namingMember
	methodMember
)

// maxMemberLength is the maximum length of a buffered string in bytes. A longer URL is treated like a definition type.
const maxMemberLength = 4 << 10

// Write implements [io.Writer]. It never fails: the backend rejects invalid JSON.
func (b *bundleInspector) Write(p []byte) (int, error) {
	whole := len(p)
	for len(p) > 0 {
		if b.inString && !b.afterBackslash {
			p = b.addText(p)
		}
		if len(p) == 0 {
			break
		}
		c := p[0]
		p = p[1:]
		switch {
		case b.afterBackslash:
			b.afterBackslash = false
			b.add('\\', c)
		case b.inString && c == '\\':
			b.afterBackslash = true
		case b.inString:
			b.inString = false
			b.inspectValue()
		case c == '"':
			b.inString, b.text = true, b.text[:0]
		case c == ':':
			b.member = memberKindOf(b.text)
		case c == ',' || c == '{':
			b.member = otherMember
		}
	}
	return whole, nil
}

func (b *bundleInspector) addText(p []byte) (rest []byte) {
	n := bytes.IndexAny(p, "\"\\")
	if n < 0 {
		n = len(p)
	}
	b.add(p[:n]...)
	return p[n:]
}

func (b *bundleInspector) add(c ...byte) {
	b.text = append(b.text, c[:min(len(c), maxMemberLength-len(b.text))]...)
}

func memberKindOf(name []byte) member {
	switch string(name) {
	case "resourceType", "url":
		return namingMember
	case "method":
		return methodMember
	}
	return otherMember
}

// inspectValue inspects a string that may be a value. Unnecessary escapes are treated like a write of a definition.
func (b *bundleInspector) inspectValue() {
	switch {
	case isEscaped(b.text):
		b.hasDefinitionType, b.hasWrites = true, true
	case b.member == methodMember:
		b.hasRequests = true
		b.hasWrites = b.hasWrites || string(b.text) != http.MethodGet && string(b.text) != http.MethodHead
	case b.member == namingMember:
		b.hasDefinitionType = b.hasDefinitionType || len(b.text) >= maxMemberLength || namesDefinitions(b.text)
	}
}

// mayChangeDefinitions reports whether the Bundle may change definitions. A Bundle without requests may if it contains any.
func (b *bundleInspector) mayChangeDefinitions() bool {
	return b.hasDefinitionType && (b.hasWrites || !b.hasRequests)
}

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

// namesDefinitions reports whether a text contains the name of a definition type or refers to a system-level operation.
func namesDefinitions(text []byte) bool {
	return bytes.HasPrefix(bytes.TrimLeft(text, `\/`), []byte("$")) ||
		slices.ContainsFunc(definitionTypes, func(name string) bool { return bytes.Contains(text, []byte(name)) })
}

// responseWriter passes a response to the client and records its status.
type responseWriter struct {
	http.ResponseWriter
	status       int  // last status, including informational ones (1xx); 0 before the first
	finalStarted bool // whether the final response has started
	isDropped    bool // whether the response is discarded

	beforeFinal func(status int)      // called before the final response starts; may be nil
	shouldDrop  func(status int) bool // whether to discard a response; nil discards none
}

func (w *responseWriter) WriteHeader(status int) {
	if w.finalStarted {
		return
	}
	w.status, w.finalStarted = status, status >= http.StatusOK
	if w.finalStarted && w.beforeFinal != nil {
		w.beforeFinal(status)
	}
	w.isDropped = w.shouldDrop != nil && w.shouldDrop(status)
	if !w.isDropped {
		w.ResponseWriter.WriteHeader(status)
	}
}

func (w *responseWriter) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	if w.isDropped {
		return len(b), nil
	}
	return w.ResponseWriter.Write(b)
}

// ReadFrom implements [io.ReaderFrom], so that files are sent without copying.
func (w *responseWriter) ReadFrom(r io.Reader) (int64, error) {
	w.WriteHeader(http.StatusOK)
	if w.isDropped {
		return io.Copy(io.Discard, r)
	}
	if to, ok := w.ResponseWriter.(io.ReaderFrom); ok {
		return to.ReadFrom(r)
	}
	return io.Copy(w.ResponseWriter, r)
}

// FlushError implements the method that [http.ResponseController] calls. It does not start the response.
func (w *responseWriter) FlushError() error {
	if w.status == 0 || w.isDropped {
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
