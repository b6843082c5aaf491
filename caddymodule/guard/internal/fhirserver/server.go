// Package fhirserver sends requests to the FHIR server, the next handler, in JSON without compression, as far as limits and
// the memory that all requests share allow. Its redirects and requests for credentials are rejected.
package fhirserver

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"compress/zlib"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/fairmemory"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
)

// Server asks the FHIR server what one client's request needs.
type Server struct {
	base   string              // path of the FHIR API
	Limits Limits              // bound what the request may cost
	Next   message.NextHandler // leads to the FHIR server
	r      *http.Request       // the client's
	asked  int                 // requests to the server so far
	Share  *fairmemory.Share   // of the memory for what is judged
	// Observe is called with each response that is judged. Nil: nothing is.
	Observe func(c message.Call, a *message.Answer)
}

// New is what asks the server for one request of a client, r, which has a share of the memory.
func New(base string, l Limits, share *fairmemory.Share, next message.NextHandler, r *http.Request) Server {
	limits := Limits{
		Answer: cmp.Or(max(l.Answer, 0), defaultSize), Body: cmp.Or(max(l.Body, 0), defaultSize),
		Requests: cmp.Or(max(l.Requests, 0), defaultRequests), Entries: cmp.Or(max(l.Entries, 0), defaultEntries),
	}
	return Server{base: base, Limits: limits, Next: backend{next}, r: r, Share: share}
}

// Asked is how many requests the server was sent, since [server.Begin].
func (x *Server) Asked() int { return x.asked }

// Begin begins another entry of a bundle, which has requests of its own.
func (x *Server) Begin() { x.asked = 0 }

// ownHeaders, as net/http spells them, are not passed on from the client's request, because they speak of the request as
// the client made it: its conditions, its body, and how it wants the answer. What of them is to hold, a call says itself.
var ownHeaders = message.SetOf(
	"Accept", "Accept-Encoding", "Connection", "Content-Encoding", "Content-Length", "Content-Type", "Expect",
	"If-Match", "If-Modified-Since", "If-None-Exist", "If-None-Match", "If-Range", "If-Unmodified-Since", "Prefer",
	"Range", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
	"X-Cascade", "X-Provenance", "X-Rewrite-History", "X-Security-Context", "X-Upsert-Extistence-Check", // so it is spelt
)

// Ask has the next handler answer a call, in JSON without compression, so that the answer can be judged.
func (x *Server) Ask(ctx context.Context, c message.Call) (*message.Answer, error) {
	held, err := x.Hold(ctx, c)
	defer held.Release()
	if err != nil {
		return nil, err
	}
	a := held.Answer
	a.Body = bytes.Clone(a.Body)
	return &a, nil
}

// Hold is Ask for an answer that is of use only until it is released. Each part of it is admitted up to the limit, and if
// there is memory.
func (x *Server) Hold(ctx context.Context, c message.Call) (*message.Held, error) {
	if x.asked++; x.asked > x.Limits.Requests {
		return nil, message.TooCostly("The request needs more than %d requests to the FHIR server: ask for less at once.", x.Limits.Requests)
	}
	left := x.Limits.Answer
	held, err := message.Hold(x.Next, x.request(ctx, c), func(bytes int) error {
		if int64(bytes) > left {
			return message.TooLong(x.Limits.Answer)
		}
		defer func() { left -= int64(bytes) }()
		return x.Reserve(ctx, bytes, left)
	})
	if err == nil && x.Observe != nil {
		x.Observe(c, &held.Answer)
	}
	return held, err
}

// Pass has the next handler answer a call to w as it comes, in the media types of accept.
func (x *Server) Pass(ctx context.Context, c message.Call, accept []string, w http.ResponseWriter) error {
	r := x.request(ctx, c)
	r.Header["Accept"] = accept
	return x.Next.ServeHTTP(w, r)
}

// request makes a call of the client's request. The two share nothing that a handler may change.
func (x *Server) request(ctx context.Context, c message.Call) *http.Request {
	r := x.r.WithContext(ctx)
	r.Method = c.Method
	r.URL = &url.URL{Path: x.base, RawQuery: c.Query}
	if c.Path != "" {
		r.URL.Path += "/" + c.Path
	}
	r.RequestURI = r.URL.RequestURI()
	r.Header = x.r.Header.Clone() // as far as they speak of who the client is; what else is to hold, the call says
	maps.DeleteFunc(r.Header, func(name string, _ []string) bool { return ownHeaders[name] })
	maps.Copy(r.Header, c.Header)
	r.Header["Accept"], r.Header["Accept-Encoding"] = []string{message.TypeJSON}, []string{"identity"}
	r.TransferEncoding, r.Trailer, r.Form, r.PostForm, r.MultipartForm = nil, nil, nil, nil, nil
	r.Body, r.ContentLength = http.NoBody, 0
	if len(c.Body) > 0 {
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(c.Body)), int64(len(c.Body))
	}
	return r
}

// Patience is how long a request waits for memory.
const Patience = 10 * time.Second

// timesHeld is how many bytes one byte counts for that is judged: it is held as it came, and as it is written anew.
const timesHeld = 2

// Reserve has the request hold bytes more that are to be judged, the first of so many at most. It waits for them if need be.
func (x *Server) Reserve(ctx context.Context, bytes int, most int64) error {
	err := x.Share.Grow(ctx, timesHeld*int64(bytes), timesHeld*most)
	if errors.Is(err, fairmemory.ErrTooMuch) {
		return message.TooCostly("The FHIR server's response needs more memory than max_memory allows: request less at once with _count or _elements.")
	}
	if err != nil {
		return &guard.Error{
			Status: http.StatusServiceUnavailable, Description: "Too much is being judged at once: try again later.",
			Wait: Patience, Err: fmt.Errorf("%w: %w", message.ErrBusy, err),
		}
	}
	return nil
}

// Held is how much memory the request holds.
func (x *Server) Held() int64 { return x.Share.Held() }

// Keep says that of all that was held since a moment, nothing is in use but an answer.
func (x *Server) Keep(since int64, a *message.Answer) {
	if a != nil {
		since += timesHeld * int64(len(a.Body))
	}
	x.Share.ShrinkTo(since)
}

// Reading reads the client's body up to a byte more than its limit, and reserves memory for it as it comes.
func (x *Server) Reading(ctx context.Context, body io.Reader) io.Reader {
	left := x.Limits.Body
	return &reservingReader{io.LimitReader(body, left+1), func(bytes int) error {
		defer func() { left -= int64(bytes) }()
		return x.Reserve(ctx, bytes, left)
	}}
}

// reservingReader reads a body, for which memory is reserved as it comes.
type reservingReader struct {
	io.Reader
	reserve func(bytes int) error
}

// Read implements io.Reader.
func (r *reservingReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if refused := r.reserve(n); refused != nil {
		return 0, refused
	}
	return n, err
}

// Limits bound what one request may cost. The zero value means the defaults.
type Limits struct {
	// Answer is the size up to which an answer is judged, in bytes. A longer one is withheld. Default: 16 MiB.
	Answer int64
	// Body is the size up to which a body is judged, in bytes. A longer one is refused. Default: 16 MiB.
	Body int64
	// Requests is how many requests to the FHIR server one request may cause, each entry of a bundle apart. Default:
	// 64.
	Requests int
	// Entries is how many entries a batch or transaction may have. Default: 500.
	Entries int
}

const (
	defaultSize     = 16 << 20
	defaultRequests = 64
	defaultEntries  = 500
)

// AnswerOf is how long an answer may be that is judged in memory of a size: a sixteenth of it, and at least the default.
func AnswerOf(memory int64) int64 { return max(defaultSize, memory/16) }

// smallestMemory is how many answers of the greatest length the memory takes at least: one counts twice, and so does the
// body that is judged by it.
const smallestMemory = 2 * timesHeld

const defaultMemory = 256 << 20

var errMemory = errors.New("max_memory is too small: it must be at least")

// NewMemory returns memory of a size in bytes, for answers up to the limit. Size 0: 256 MiB, or as much as the limit takes.
func NewMemory(size int64, l Limits) (*fairmemory.Memory, error) {
	smallest := smallestMemory * cmp.Or(max(l.Answer, 0), defaultSize)
	if size <= 0 {
		size = max(defaultMemory, smallest)
	}
	if size < smallest {
		return nil, fmt.Errorf("%w %d bytes", errMemory, smallest)
	}
	return fairmemory.New(size, Patience), nil
}

// backend is the FHIR server behind the next handler. Responses that concern only the gateway and the FHIR server are
// rejected with 502, and compressed FHIR resources are decompressed.
type backend struct{ next message.NextHandler }

// ServeHTTP implements message.NextHandler. A rejected response leaves w untouched.
func (b backend) ServeHTTP(w http.ResponseWriter, r *http.Request) (err error) {
	response := &response{ResponseWriter: w, isHead: r.Method == http.MethodHead}
	for i, name := range gatewayHeaders {
		response.before[i] = w.Header()[name]
	}
	defer func() {
		cause := recover()
		if failed := response.close(); response.rejected == nil {
			response.rejected = failed
		}
		if message.ForgiveAbort(cause, response.rejected); response.rejected != nil {
			err = response.rejected
		}
	}()
	return b.next.ServeHTTP(response, r)
}

// gatewayHeaders are response headers that the FHIR server may not set for clients: credentials and sessions between
// gateway and FHIR server, software versions, and addresses that nothing rewrites.
var gatewayHeaders = [...]string{
	"Alt-Svc", "Authentication-Info", "Clear-Site-Data", "Link", "Proxy-Authenticate", "Proxy-Authentication-Info", "Refresh",
	"Server", "Set-Cookie", "Trailer", "Www-Authenticate", "X-Powered-By",
}

// response is the FHIR server's response on its way to the writer that judges or rewrites it.
type response struct {
	http.ResponseWriter
	isHead   bool
	before   [len(gatewayHeaders)][]string // values that other handlers of the gateway have set
	began    bool
	rejected error // why nothing of the response may reach the client
	inflater *inflater
}

// WriteHeader implements http.ResponseWriter. Informational responses are dropped: their headers are the FHIR server's.
// The switch to WebSocket is a final response.
func (x *response) WriteHeader(status int) {
	if x.began || status < http.StatusOK && status != http.StatusSwitchingProtocols {
		return
	}
	x.began = true
	header := x.Header()
	if x.rejected = checkStatus(status, header); x.rejected != nil {
		return
	}
	for i, name := range gatewayHeaders {
		if delete(header, name); x.before[i] != nil {
			header[name] = x.before[i]
		}
	}
	if x.rejected = x.decompress(status, header); x.rejected == nil {
		x.ResponseWriter.WriteHeader(status)
	}
}

// ErrBackend is the cause of a 502 for a response that concerns only the gateway and the FHIR server.
var ErrBackend = errors.New("response of the FHIR server rejected")

// checkStatus rejects requests for credentials and redirects, which only the gateway's administrator can act on.
func checkStatus(status int, header http.Header) error {
	rejection := &guard.Error{Status: http.StatusBadGateway}
	switch {
	case status == http.StatusUnauthorized || status == http.StatusProxyAuthRequired:
		rejection.Description = "The FHIR server requires credentials from the gateway."
		rejection.Err = fmt.Errorf("%w: status %d: the FHIR server requires credentials; add them in the reverse_proxy block, for example: header_up Authorization \"Basic …\"", ErrBackend, status)
	case status/100 == 3 && status != http.StatusNotModified:
		host := "another address"
		if u, err := url.Parse(header.Get("Location")); err == nil && u.Host != "" {
			host = u.Host // without path and query, which may hold a signature
		}
		rejection.Description = "The FHIR server redirects to an address that clients may not use."
		rejection.Err = fmt.Errorf("%w: status %d: the FHIR server redirects to %s; set the final address in reverse_proxy, or switch off redirects to file storage", ErrBackend, status, host)
	default:
		return nil
	}
	return rejection
}

// decompress decompresses FHIR resources on their way, although the gateway asks for none to be compressed. Other
// content, such as files, stays as it is.
func (x *response) decompress(status int, header http.Header) error {
	encoding := strings.ToLower(strings.TrimSpace(strings.Join(header["Content-Encoding"], ",")))
	if encoding == "" || message.FormatOfMedia(header.Get("Content-Type")) == message.NoFormat {
		return nil
	}
	if header.Del("Content-Encoding"); encoding == "identity" {
		return nil
	}
	open, ok := decompressors[encoding]
	if !ok {
		return &guard.Error{
			Status: http.StatusBadGateway, Description: "The FHIR server's response is compressed in a way that the gateway cannot read.",
			Err: fmt.Errorf("%w: Content-Encoding %q although identity was requested; switch off compression in the FHIR server", ErrBackend, encoding),
		}
	}
	message.DropBodyHeaders(header)
	if !x.isHead && !message.HasNoContent(status) {
		x.inflater = newInflater(open, x.ResponseWriter)
	}
	return nil
}

var decompressors = map[string]func(io.Reader) (io.ReadCloser, error){
	"gzip":    func(r io.Reader) (io.ReadCloser, error) { return gzip.NewReader(r) },
	"x-gzip":  func(r io.Reader) (io.ReadCloser, error) { return gzip.NewReader(r) },
	"deflate": zlib.NewReader,
}

// Write implements http.ResponseWriter. Its error makes the next handler stop reading from the FHIR server.
func (x *response) Write(p []byte) (int, error) {
	x.WriteHeader(http.StatusOK)
	switch {
	case x.rejected != nil:
		return 0, x.rejected
	case x.inflater != nil:
		return x.inflater.to.Write(p)
	}
	return x.ResponseWriter.Write(p)
}

// Header implements http.ResponseWriter. While another goroutine decompresses, the client's headers are out of reach.
func (x *response) Header() http.Header {
	if x.inflater != nil {
		return http.Header{}
	}
	return x.ResponseWriter.Header()
}

// close waits for the rest of a compressed response.
func (x *response) close() error {
	if x.inflater == nil {
		return nil
	}
	_ = x.inflater.to.Close() // it never fails
	err := <-x.inflater.done
	if err == nil {
		return nil
	}
	if refusal, ok := errors.AsType[*guard.Error](err); ok {
		return refusal
	}
	return &guard.Error{
		Status: http.StatusBadGateway, Description: "The FHIR server's response cannot be decompressed.",
		Err: fmt.Errorf("%w: decompressing: %w", ErrBackend, err),
	}
}

// FlushError flushes what was written so far.
func (x *response) FlushError() error {
	if x.rejected != nil || x.inflater != nil {
		return nil
	}
	return http.NewResponseController(x.ResponseWriter).Flush()
}

// Unwrap lets http.ResponseController find what else the writer can do.
func (x *response) Unwrap() http.ResponseWriter { return x.ResponseWriter }

// inflater decompresses what is written to it.
type inflater struct {
	to   *io.PipeWriter
	done chan error
}

// newInflater returns an inflater that writes to w. While a Write to the inflater runs, nothing else may use w.
func newInflater(open func(io.Reader) (io.ReadCloser, error), w io.Writer) *inflater {
	from, to := io.Pipe()
	x := &inflater{to, make(chan error, 1)}
	go func() {
		err := inflate(open, from, w)
		_ = from.CloseWithError(err) // later writes fail with it
		x.done <- err
	}()
	return x
}

func inflate(open func(io.Reader) (io.ReadCloser, error), from io.Reader, w io.Writer) error {
	r, err := open(from)
	if errors.Is(err, io.EOF) {
		return nil // no body at all
	}
	if err != nil {
		return err
	}
	if _, err = io.Copy(w, r); err == nil {
		_, err = io.Copy(io.Discard, from) // the checksum is read; nothing may follow that blocks the writer
	}
	return err
}
