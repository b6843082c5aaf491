package message

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
)

// Response is a response that is buffered until it is judged.
type Response struct {
	Status    int           // HTTP status code
	Header    http.Header   // the FHIR server's headers until they are localized
	Body      []byte        // complete body
	IsOutcome bool          // the body is the outcome of a write, not a resource
	Buffer    *bytes.Buffer // buffer that contains Body, returned to the pool after the response is sent; may be nil
}

// TypeJSON is the media type of every judged response.
const TypeJSON = "application/fhir+json"

// NewResponse returns a response that the gateway generates.
func NewResponse(status int, body []byte) *Response {
	return &Response{Status: status, Header: http.Header{"Content-Type": {TypeJSON + "; charset=utf-8"}}, Body: body}
}

// WithBody returns a copy of the response with a different body.
func (a *Response) WithBody(body []byte) *Response {
	return &Response{Status: a.Status, Header: a.Header, Body: body}
}

// IsSuccess reports whether the status is 2xx.
func (a *Response) IsSuccess() bool { return a.Status/100 == 2 }

// Format is a format of FHIR resources.
type Format byte

// Formats in which addresses can be rewritten. Only JSON can be judged.
const (
	NoFormat Format = iota
	JSON
	XML
)

// FormatOfMediaType returns the format of a Content-Type, or NoFormat if it is neither JSON nor XML.
func FormatOfMediaType(contentType string) Format {
	media, _, _ := strings.Cut(contentType, ";")
	switch media = strings.ToLower(strings.TrimSpace(media)); {
	case media == TypeJSON, media == "application/json", media == "text/json", media == "application/json+fhir", strings.HasSuffix(media, "+json"):
		return JSON
	case media == typeXML, media == "application/xml", media == "text/xml", media == "application/xml+fhir":
		return XML
	}
	return NoFormat
}

// IsJSON reports whether the Content-Type is FHIR JSON.
func (a *Response) IsJSON() bool { return FormatOfMediaType(a.Header.Get("Content-Type")) == JSON }

// droppedHeaders describe the connection or the original body of a response. The gateway may change both.
var droppedHeaders = []string{
	"Accept-Ranges", "Connection", "Content-Digest", "Content-Encoding", "Content-Length", "Content-Md5", "Content-Range",
	"Digest", "Keep-Alive", "Repr-Digest", "Trailer", "Transfer-Encoding",
}

// DropBodyHeaders removes the headers that describe a body, because the gateway may change it.
func DropBodyHeaders(header http.Header) {
	for _, name := range droppedHeaders {
		delete(header, name)
	}
}

// Write sends the response. For GET, it evaluates If-None-Match and If-Modified-Since itself and may send 304. The FHIR server
// gets the request without these headers, because its 304 would not depend on whether the client may read the resource (RFC
// 9110 §13.1.2).
func (a *Response) Write(w http.ResponseWriter, r *http.Request) error {
	for name, values := range a.Header {
		if !slices.Contains(droppedHeaders, name) {
			w.Header()[name] = values
		}
	}
	read := r.Method == http.MethodGet || r.Method == http.MethodHead
	if read && a.Status == http.StatusOK && (IsNotModified(r.Header, a.Header.Get("Etag")) || a.isUnmodifiedSince(r.Header)) {
		w.Header().Del("Content-Type")
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	body := a.Body
	if HasNoContent(a.Status) {
		body = nil
	}
	if len(body) == 0 {
		w.Header().Del("Content-Type")
	}
	if a.Status != http.StatusNoContent && a.Status != http.StatusNotModified {
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	}
	w.WriteHeader(a.Status)
	if r.Method == http.MethodHead || len(body) == 0 {
		return nil
	}
	_, err := w.Write(body)
	return err
}

// isUnmodifiedSince evaluates If-Modified-Since, which If-None-Match overrides (RFC 9110 §13.1.3). If there is no
// Last-Modified, it uses meta.lastUpdated of the resource.
func (a *Response) isUnmodifiedSince(header http.Header) bool {
	since, err := http.ParseTime(header.Get("If-Modified-Since"))
	if err != nil || len(header["If-Modified-Since"]) > 1 || header["If-None-Match"] != nil {
		return false
	}
	if modified, err := http.ParseTime(a.Header.Get("Last-Modified")); err == nil {
		return !modified.After(since)
	}
	var res struct {
		Meta struct{ LastUpdated time.Time }
	}
	if err := json.Unmarshal(a.Body, &res); err != nil || res.Meta.LastUpdated.IsZero() {
		return false
	}
	return !res.Meta.LastUpdated.Truncate(time.Second).After(since)
}

// HasNoContent reports whether responses with the status never have content (RFC 9110 §15.2, §15.3.5, §15.3.6, §15.4.5).
func HasNoContent(status int) bool {
	return status/100 == 1 || status == http.StatusNoContent || status == http.StatusResetContent || status == http.StatusNotModified
}

// IsNotModified reports whether If-None-Match contains the ETag, by weak comparison (RFC 9110 §13.1.2).
func IsNotModified(header http.Header, etag string) bool {
	if etag == "" {
		return false
	}
	for _, value := range header["If-None-Match"] {
		for tag := range strings.SplitSeq(value, ",") {
			if strings.TrimPrefix(strings.TrimSpace(tag), "W/") == strings.TrimPrefix(etag, "W/") {
				return true
			}
		}
	}
	return false
}

// ResponseBuffer is a ResponseWriter that buffers a response as long as its function admit permits.
type ResponseBuffer struct {
	// Response is the buffered response; it is valid until Release.
	Response Response

	body     *bytes.Buffer
	admit    func(bytes int) error
	admitErr error // error of admit
	isDone   bool
}

// BufferResponse calls the next handler and buffers its response. admit is called before each part is buffered. The result must
// be released, even after an error. If admit refuses a part, the resulting abort of a proxy is not reported as another failure.
func BufferResponse(next NextHandler, r *http.Request, admit func(bytes int) error) (h *ResponseBuffer, err error) {
	h = &ResponseBuffer{Response: Response{Header: http.Header{}}, body: Buffers.Get().(*bytes.Buffer), admit: admit}
	defer func() {
		if RepanicUnlessAborted(recover(), h.admitErr); h.admitErr != nil {
			err = h.admitErr
		}
	}()
	err = next.ServeHTTP(h, r)
	h.isDone, h.Response.Body = true, h.body.Bytes()
	if err == nil && h.Response.Status == 0 {
		err = NewWithheldError(ErrNoResponse)
	}
	return h, err
}

// Buffers is a pool of buffers for responses of unknown length. Large buffers are not returned to it.
var Buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// maxBuffer is the maximum capacity of a pooled buffer in bytes.
const maxBuffer = 1 << 20

// Release returns the buffer to the pool, unless the next handler may still write to it after a panic.
func (h *ResponseBuffer) Release() {
	if h != nil && h.isDone {
		h.isDone = false
		ReleaseBuffer(h.body)
	}
}

// Detach returns the buffer for a response that has not been sent yet; the caller must release it by [ReleaseBuffer]. It
// returns nil if the next handler may still write to the buffer.
func (h *ResponseBuffer) Detach() *bytes.Buffer {
	if !h.isDone {
		return nil
	}
	h.isDone = false
	return h.body
}

// ReleaseBuffer returns a buffer to the pool. Its content may no longer be used.
func ReleaseBuffer(b *bytes.Buffer) {
	if b.Cap() <= maxBuffer {
		b.Reset()
		Buffers.Put(b)
	}
}

// Header implements http.ResponseWriter.
func (h *ResponseBuffer) Header() http.Header { return h.Response.Header }

// WriteHeader implements http.ResponseWriter. Informational responses are dropped.
func (h *ResponseBuffer) WriteHeader(status int) {
	if a := &h.Response; a.Status == 0 && status >= http.StatusOK {
		a.Status, a.Header = status, a.Header.Clone()
	}
}

// Write implements http.ResponseWriter. Its error makes the next handler stop reading from the FHIR server.
func (h *ResponseBuffer) Write(p []byte) (int, error) {
	h.WriteHeader(http.StatusOK)
	if h.admitErr == nil {
		h.admitErr = h.admit(len(p))
	}
	if h.admitErr != nil {
		return 0, h.admitErr
	}
	return h.body.Write(p)
}

// Causes for withholding a response from the FHIR server.
var (
	// ErrResponseWithheld: the response cannot be judged.
	ErrResponseWithheld = errors.New("the FHIR server's response cannot be checked")
	ErrResponseTooLong  = errors.New("the FHIR server's response is too large to check")
	ErrNoResponse       = errors.New("the next handler wrote no response")
)

// RepanicUnlessAborted panics again, unless a proxy aborted because the gateway refused to read more of its response.
func RepanicUnlessAborted(cause any, rejection error) {
	if aborted, _ := cause.(error); cause != nil && (rejection == nil || !errors.Is(aborted, http.ErrAbortHandler)) {
		panic(cause)
	}
}

// NextHandler forwards requests to the FHIR server. It equals caddyhttp.Handler, without a dependency on Caddy.
type NextHandler interface {
	// ServeHTTP handles a request. If it returns an error, it has not written a response.
	ServeHTTP(w http.ResponseWriter, r *http.Request) error
}

// NewWithheldError returns the error for a response from the FHIR server that is withheld.
func NewWithheldError(err error) *guard.Error {
	return &guard.Error{
		Status: http.StatusBadGateway, Description: "The FHIR server's response cannot be checked against the access token.",
		Err: fmt.Errorf("%w: %w", ErrResponseWithheld, err),
	}
}

// NewRewriteError returns the error for links or addresses that cannot be rewritten. It returns a *guard.Error unchanged.
func NewRewriteError(err error) error {
	if rejection, ok := errors.AsType[*guard.Error](err); ok {
		return rejection
	}
	return &guard.Error{
		Status: http.StatusBadGateway, Err: err,
		Description: "The FHIR server's response has links or addresses that cannot be rewritten for clients.",
	}
}

// NewTooLongError returns the error for a response from the FHIR server that exceeds the limit in bytes.
func NewTooLongError(limit int64) *guard.Error {
	return &guard.Error{
		Status:      http.StatusBadGateway,
		Description: fmt.Sprintf("The FHIR server's response exceeds %d bytes, the limit for checked responses: request less data at once with _count or _elements.", limit),
		Err:         fmt.Errorf("%w: %w: more than %d bytes; increase max_memory of fhir_bearer to raise the limit", ErrResponseWithheld, ErrResponseTooLong, limit),
	}
}

// RequireJSON returns an error if the response is not JSON.
func (a *Response) RequireJSON() error {
	if !a.IsJSON() {
		return NewWithheldError(fmt.Errorf("response has Content-Type %q, not JSON", a.Header.Get("Content-Type")))
	}
	return nil
}
