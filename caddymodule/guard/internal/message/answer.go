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

// Answer is a response that is held until it is judged.
type Answer struct {
	Status int           // the HTTP status
	Header http.Header   // the headers, as the server sent them until they are localized
	Body   []byte        // all of it
	Said   bool          // the body is not what is there, but what a write came to
	Buffer *bytes.Buffer // that holds the body and is given back when the client has it; nil if there is none
}

// TypeJSON is the media type of every answer that was judged.
const TypeJSON = "application/fhir+json"

// NewAnswer is an answer of our own.
func NewAnswer(status int, body []byte) *Answer {
	return &Answer{Status: status, Header: http.Header{"Content-Type": {TypeJSON + "; charset=utf-8"}}, Body: body}
}

// With is the answer with another body.
func (a *Answer) With(body []byte) *Answer {
	return &Answer{Status: a.Status, Header: a.Header, Body: body}
}

// Succeeded reports whether the status is 2xx.
func (a *Answer) Succeeded() bool { return a.Status/100 == 2 }

// Format is a format of FHIR resources.
type Format byte

// The formats whose addresses can be rewritten. Of these, only JSON can be judged.
const (
	NoFormat Format = iota
	JSON
	XML
)

// FormatOfMedia returns the format of a Content-Type; NoFormat for all that are neither JSON nor XML.
func FormatOfMedia(contentType string) Format {
	media, _, _ := strings.Cut(contentType, ";")
	switch media = strings.ToLower(strings.TrimSpace(media)); {
	case media == TypeJSON, media == "application/json", media == "text/json", media == "application/json+fhir", strings.HasSuffix(media, "+json"):
		return JSON
	case media == typeXML, media == "application/xml", media == "text/xml", media == "application/xml+fhir":
		return XML
	}
	return NoFormat
}

// IsJSON reports whether the body says that it is FHIR JSON.
func (a *Answer) IsJSON() bool { return FormatOfMedia(a.Header.Get("Content-Type")) == JSON }

// droppedHeaders describe a body that may have become another, or a connection.
var droppedHeaders = []string{
	"Accept-Ranges", "Connection", "Content-Digest", "Content-Encoding", "Content-Length", "Content-Md5", "Content-Range",
	"Digest", "Keep-Alive", "Repr-Digest", "Trailer", "Transfer-Encoding",
}

// DropBodyHeaders removes the headers of a body that may become another.
func DropBodyHeaders(header http.Header) {
	for _, name := range droppedHeaders {
		delete(header, name)
	}
}

// Write sends the answer. A GET that names its ETag in If-None-Match, or its time in If-Modified-Since, is answered with 304 here, because the server was
// asked without (RFC 9110 §13.1.2): it would have answered so whether the resource may be seen or not.
func (a *Answer) Write(w http.ResponseWriter, r *http.Request) error {
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

// isUnmodifiedSince reports whether the resource is not newer than If-Modified-Since, which If-None-Match overrides (RFC 9110
// §13.1.3). Servers that send no Last-Modified have the time in the resource.
func (a *Answer) isUnmodifiedSince(header http.Header) bool {
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

// HasNoContent reports whether responses of a status have no content whatever the method (RFC 9110 §15.2, §15.3.5, §15.3.6,
// §15.4.5).
func HasNoContent(status int) bool {
	return status/100 == 1 || status == http.StatusNoContent || status == http.StatusResetContent || status == http.StatusNotModified
}

// IsNotModified reports whether If-None-Match names the ETag. Weak comparison, as RFC 9110 §13.1.2 has it.
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

// Held is a ResponseWriter that holds an answer, as far as it is admitted.
type Held struct {
	// Answer is what is held, until it is released.
	Answer Answer

	body    *bytes.Buffer
	admit   func(bytes int) error
	refused error // by admit
	done    bool
}

// Hold has the next handler answer a request. Each part of the answer is admitted before it is held. What is returned
// is to be released, with an error too. A proxy that aborts because writing failed has not failed itself.
func Hold(next NextHandler, r *http.Request, admit func(bytes int) error) (h *Held, err error) {
	h = &Held{Answer: Answer{Header: http.Header{}}, body: Buffers.Get().(*bytes.Buffer), admit: admit}
	defer func() {
		if ForgiveAbort(recover(), h.refused); h.refused != nil {
			err = h.refused
		}
	}()
	err = next.ServeHTTP(h, r)
	h.done, h.Answer.Body = true, h.body.Bytes()
	if err == nil && h.Answer.Status == 0 {
		err = Withheld(ErrNoAnswer)
	}
	return h, err
}

// Buffers are those in which answers arrive, whose lengths are not known before. A few are kept, and no large ones.
var Buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// maxBuffer is how large a buffer may be that is kept.
const maxBuffer = 1 << 20

// Release gives the buffer back, unless the next handler goes on with it: a panic may have left it writing.
func (h *Held) Release() {
	if h != nil && h.done {
		h.done = false
		GiveBack(h.body)
	}
}

// Kept is the buffer for an answer that is still to be written, to be given back then; nil where the next handler goes
// on with it.
func (h *Held) Kept() *bytes.Buffer {
	if !h.done {
		return nil
	}
	h.done = false
	return h.body
}

// GiveBack keeps a buffer for another answer. Nothing of what is in it may be in use any more.
func GiveBack(b *bytes.Buffer) {
	if b.Cap() <= maxBuffer {
		b.Reset()
		Buffers.Put(b)
	}
}

// Header implements http.ResponseWriter.
func (h *Held) Header() http.Header { return h.Answer.Header }

// WriteHeader implements http.ResponseWriter. Informational responses are dropped.
func (h *Held) WriteHeader(status int) {
	if a := &h.Answer; a.Status == 0 && status >= http.StatusOK {
		a.Status, a.Header = status, a.Header.Clone()
	}
}

// Write implements http.ResponseWriter. Its error makes the next handler stop reading from the server.
func (h *Held) Write(p []byte) (int, error) {
	h.WriteHeader(http.StatusOK)
	if h.refused == nil {
		h.refused = h.admit(len(p))
	}
	if h.refused != nil {
		return 0, h.refused
	}
	return h.body.Write(p)
}

// What an answer of the FHIR server may be withheld for.
var (
	// ErrWithheld: the answer cannot be judged.
	ErrWithheld = errors.New("answer cannot be judged")
	ErrTooLong  = errors.New("answer of the FHIR server is too long to judge")
	ErrNoAnswer = errors.New("the next handler gave no answer")
)

// ForgiveAbort goes on with a panic, unless a proxy aborts because we have refused to take more of an answer.
func ForgiveAbort(cause any, refused error) {
	if aborted, _ := cause.(error); cause != nil && (refused == nil || !errors.Is(aborted, http.ErrAbortHandler)) {
		panic(cause)
	}
}

// NextHandler leads to the FHIR server. It is caddyhttp.Handler without Caddy.
type NextHandler interface {
	// ServeHTTP answers a request. An error says that it did not.
	ServeHTTP(w http.ResponseWriter, r *http.Request) error
}

// Withheld keeps back an answer of the FHIR server's.
func Withheld(err error) *guard.Error {
	return &guard.Error{
		Status: http.StatusBadGateway, Description: "The FHIR server's answer cannot be checked against the access token.",
		Err: fmt.Errorf("%w: %w", ErrWithheld, err),
	}
}

// NotRewritten rejects a response whose links or addresses cannot be rewritten. A refusal of ours stays.
func NotRewritten(err error) error {
	if refusal, ok := errors.AsType[*guard.Error](err); ok {
		return refusal
	}
	return &guard.Error{
		Status: http.StatusBadGateway, Err: err,
		Description: "The FHIR server's response has links or addresses that cannot be rewritten for clients.",
	}
}

// TooLong rejects a response of the FHIR server that is larger than the limit in bytes.
func TooLong(limit int64) *guard.Error {
	return &guard.Error{
		Status:      http.StatusBadGateway,
		Description: fmt.Sprintf("The FHIR server's response is larger than %d bytes, the limit for responses that are checked: request less at once with _count or _elements.", limit),
		Err:         fmt.Errorf("%w: %w: more than %d bytes; max_memory of fhir_bearer raises the limit", ErrWithheld, ErrTooLong, limit),
	}
}

// RequireJSON withholds an answer that cannot be read.
func (a *Answer) RequireJSON() error {
	if !a.IsJSON() {
		return Withheld(fmt.Errorf("the answer is %q, no JSON", a.Header.Get("Content-Type")))
	}
	return nil
}
