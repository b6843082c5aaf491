// Package fhirserver sends requests for uncompressed JSON to the FHIR server through the next handler, within the limits per
// request and the shared memory. If the FHIR server redirects or requests credentials, its response is rejected.
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

// Server sends requests to the FHIR server on behalf of one client request.
type Server struct {
	base          string              // path of the FHIR API
	Limits        Limits              // limits per client request
	Next          message.NextHandler // forwards requests to the FHIR server
	clientRequest *http.Request       // request from the client; its headers are forwarded
	requestCount  int                 // number of requests sent so far
	Share         *fairmemory.Share   // share of the memory for judged bodies and responses
	// Observe is called with each response that is judged. Optional.
	Observe func(c message.Call, a *message.Response)
}

// New returns the Server for a client's request r, with memory taken from share.
func New(base string, l Limits, share *fairmemory.Share, next message.NextHandler, r *http.Request) Server {
	limits := Limits{
		ResponseBytes: cmp.Or(max(l.ResponseBytes, 0), defaultMaxBytes), BodyBytes: cmp.Or(max(l.BodyBytes, 0), defaultMaxBytes),
		Requests: cmp.Or(max(l.Requests, 0), defaultRequests), Entries: cmp.Or(max(l.Entries, 0), defaultEntries),
	}
	return Server{base: base, Limits: limits, Next: backend{next}, clientRequest: r, Share: share}
}

// RequestCount returns the number of requests sent since [Server.ResetRequestCount].
func (x *Server) RequestCount() int { return x.requestCount }

// ResetRequestCount resets the counter for the next entry of a bundle: the limit applies per entry.
func (x *Server) ResetRequestCount() { x.requestCount = 0 }

// nonForwardedHeaders are headers of the client's request that are not forwarded, in the canonical form of net/http. They
// describe the conditions, body and preferences of the client's request; calls set their own.
var nonForwardedHeaders = message.NewSet(
	"Accept", "Accept-Encoding", "Connection", "Content-Encoding", "Content-Length", "Content-Type", "Expect",
	"If-Match", "If-Modified-Since", "If-None-Exist", "If-None-Match", "If-Range", "If-Unmodified-Since", "Prefer",
	"Range", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
	"X-Cascade", "X-Provenance", "X-Rewrite-History", "X-Security-Context", "X-Upsert-Extistence-Check", // HAPI uses this spelling
)

// Do sends a call to the next handler and returns the response as uncompressed JSON, so that it can be judged.
func (x *Server) Do(ctx context.Context, c message.Call) (*message.Response, error) {
	buffered, err := x.DoBuffered(ctx, c)
	defer buffered.Release()
	if err != nil {
		return nil, err
	}
	a := buffered.Response
	a.Body = bytes.Clone(a.Body)
	return &a, nil
}

// DoBuffered is like Do, but the response is valid only until it is released. Each part is read only within the size limit and
// the available memory.
func (x *Server) DoBuffered(ctx context.Context, c message.Call) (*message.ResponseBuffer, error) {
	if x.requestCount++; x.requestCount > x.Limits.Requests {
		return nil, message.TooCostly("The request needs more than %d requests to the FHIR server: request less data at once.", x.Limits.Requests)
	}
	remaining := x.Limits.ResponseBytes
	buffered, err := message.BufferResponse(x.Next, x.newRequest(ctx, c), func(bytes int) error {
		if int64(bytes) > remaining {
			return message.NewTooLongError(x.Limits.ResponseBytes)
		}
		defer func() { remaining -= int64(bytes) }()
		return x.Reserve(ctx, bytes, remaining)
	})
	if err == nil && x.Observe != nil {
		x.Observe(c, &buffered.Response)
	}
	return buffered, err
}

// Stream sends a call to the next handler, which streams the response to w. accept contains the acceptable media types.
func (x *Server) Stream(ctx context.Context, c message.Call, accept []string, w http.ResponseWriter) error {
	r := x.newRequest(ctx, c)
	r.Header["Accept"] = accept
	return x.Next.ServeHTTP(w, r)
}

// newRequest derives the request for a call from the client's request. The two requests share no mutable state.
func (x *Server) newRequest(ctx context.Context, c message.Call) *http.Request {
	r := x.clientRequest.WithContext(ctx)
	r.Method = c.Method
	r.URL = &url.URL{Path: x.base, RawQuery: c.Query}
	if c.Path != "" {
		r.URL.Path += "/" + c.Path
	}
	r.RequestURI = r.URL.RequestURI()
	r.Header = x.clientRequest.Header.Clone() // headers that describe the client; those that describe its request are removed below
	maps.DeleteFunc(r.Header, func(name string, _ []string) bool { return nonForwardedHeaders[name] })
	maps.Copy(r.Header, c.Header)
	r.Header["Accept"], r.Header["Accept-Encoding"] = []string{message.TypeJSON}, []string{"identity"}
	r.TransferEncoding, r.Trailer, r.Form, r.PostForm, r.MultipartForm = nil, nil, nil, nil, nil
	r.Body, r.ContentLength = http.NoBody, 0
	if len(c.Body) > 0 {
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(c.Body)), int64(len(c.Body))
	}
	return r
}

// MaxMemoryWait is the maximum total time that a client request waits for memory.
const MaxMemoryWait = 10 * time.Second

// copiesPerByte is the memory reserved per judged byte: for the original and the rewritten copy.
const copiesPerByte = 2

// Reserve reserves memory for bytes to be judged and waits if necessary. maxBytes is the maximum, including later bytes.
func (x *Server) Reserve(ctx context.Context, bytes int, maxBytes int64) error {
	err := x.Share.Grow(ctx, copiesPerByte*int64(bytes), copiesPerByte*maxBytes)
	if errors.Is(err, fairmemory.ErrExceedsMemory) {
		return message.TooCostly("Checking the FHIR server's response needs more memory than max_memory allows: request less data at once with _count or _elements.")
	}
	if err != nil {
		return &guard.Error{
			Status: http.StatusServiceUnavailable, Description: "The server is checking too many responses at once: try again later.",
			Wait: MaxMemoryWait, Err: fmt.Errorf("%w: %w", message.ErrBusy, err),
		}
	}
	return nil
}

// MemoryInUse returns the number of bytes that the client request uses.
func (x *Server) MemoryInUse() int64 { return x.Share.InUse() }

// ReleaseExcept releases the memory beyond since (see [Server.MemoryInUse]), except for response a, which is still in use.
func (x *Server) ReleaseExcept(since int64, a *message.Response) {
	if a != nil {
		since += copiesPerByte * int64(len(a.Body))
	}
	x.Share.ShrinkTo(since)
}

// LimitBody returns a reader that limits the client's body to one byte more than the limit and reserves memory while reading.
func (x *Server) LimitBody(ctx context.Context, body io.Reader) io.Reader {
	remaining := x.Limits.BodyBytes
	return &reservingReader{io.LimitReader(body, remaining+1), func(bytes int) error {
		defer func() { remaining -= int64(bytes) }()
		return x.Reserve(ctx, bytes, remaining)
	}}
}

// reservingReader reserves memory for a body while reading it.
type reservingReader struct {
	io.Reader
	reserve func(bytes int) error
}

// Read implements io.Reader.
func (r *reservingReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if reserveErr := r.reserve(n); reserveErr != nil {
		return 0, reserveErr
	}
	return n, err
}

// Limits are the limits per client request. The zero value means the defaults.
type Limits struct {
	// ResponseBytes is the maximum size of a judged response in bytes; larger ones are withheld. Default: 16 MiB.
	ResponseBytes int64
	// BodyBytes is the maximum size of a judged request body in bytes; larger ones are rejected. Default: 16 MiB.
	BodyBytes int64
	// Requests is the maximum number of requests to the FHIR server per client request or entry of a bundle. Default: 64.
	Requests int
	// Entries is the maximum number of entries in a batch or transaction. Default: 500.
	Entries int
}

const (
	defaultMaxBytes = 16 << 20
	defaultRequests = 64
	defaultEntries  = 500
)

// MaxResponseSize returns the default maximum size of a judged response: 1/16 of memory (bytes), but at least 16 MiB.
func MaxResponseSize(memory int64) int64 { return max(defaultMaxBytes, memory/16) }

// minMemoryFactor is the minimum size of the memory as a multiple of the maximum response: it must suffice for a response and a
// request body that is judged by it, with two copies each.
const minMemoryFactor = 2 * copiesPerByte

const defaultMemory = 256 << 20

var errMemoryTooSmall = errors.New("max_memory is too small: it must be at least")

// NewMemory returns a memory of size bytes for responses up to the limit in l. If size is 0, it is 256 MiB, or more if the
// limit requires it.
func NewMemory(size int64, l Limits) (*fairmemory.Memory, error) {
	minSize := minMemoryFactor * cmp.Or(max(l.ResponseBytes, 0), defaultMaxBytes)
	if size <= 0 {
		size = max(defaultMemory, minSize)
	}
	if size < minSize {
		return nil, fmt.Errorf("%w %d bytes", errMemoryTooSmall, minSize)
	}
	return fairmemory.New(size, MaxMemoryWait), nil
}

// backend is the FHIR server behind the next handler. It rejects responses that concern only the gateway and the FHIR server
// with 502. It decompresses FHIR resources.
type backend struct{ next message.NextHandler }

// ServeHTTP implements message.NextHandler. It writes nothing to w if the response is rejected.
func (b backend) ServeHTTP(w http.ResponseWriter, r *http.Request) (err error) {
	response := &responseWriter{ResponseWriter: w, isHead: r.Method == http.MethodHead}
	for i, name := range gatewayHeaders {
		response.gatewayValues[i] = w.Header()[name]
	}
	defer func() {
		cause := recover()
		if closeErr := response.close(); response.rejection == nil {
			response.rejection = closeErr
		}
		if message.RepanicUnlessAborted(cause, response.rejection); response.rejection != nil {
			err = response.rejection
		}
	}()
	return b.next.ServeHTTP(response, r)
}

// gatewayHeaders are response headers that the FHIR server may not set for clients: credentials and sessions between the
// gateway and the FHIR server, software versions, and addresses that the gateway does not rewrite.
var gatewayHeaders = [...]string{
	"Alt-Svc", "Authentication-Info", "Clear-Site-Data", "Link", "Proxy-Authenticate", "Proxy-Authentication-Info", "Refresh",
	"Server", "Set-Cookie", "Trailer", "Www-Authenticate", "X-Powered-By",
}

// responseWriter forwards the FHIR server's response to the writer that judges or rewrites it.
type responseWriter struct {
	http.ResponseWriter
	isHead        bool
	gatewayValues [len(gatewayHeaders)][]string // values that other handlers of the gateway set
	headerWritten bool
	rejection     error // why no part of the response may reach the client
	inflater      *inflater
}

// WriteHeader implements http.ResponseWriter. Informational responses are dropped because they contain headers of the FHIR
// server. The switch to WebSocket is treated as a final response.
func (x *responseWriter) WriteHeader(status int) {
	if x.headerWritten || status < http.StatusOK && status != http.StatusSwitchingProtocols {
		return
	}
	x.headerWritten = true
	header := x.Header()
	if x.rejection = checkStatus(status, header); x.rejection != nil {
		return
	}
	for i, name := range gatewayHeaders {
		if delete(header, name); x.gatewayValues[i] != nil {
			header[name] = x.gatewayValues[i]
		}
	}
	if x.rejection = x.decompress(status, header); x.rejection == nil {
		x.ResponseWriter.WriteHeader(status)
	}
}

// ErrBackendResponse is the cause of a 502 for a response that concerns only the gateway and the FHIR server.
var ErrBackendResponse = errors.New("FHIR server response rejected")

// checkStatus rejects redirects and requests for credentials, which only the gateway's administrator can resolve.
func checkStatus(status int, header http.Header) error {
	rejection := &guard.Error{Status: http.StatusBadGateway}
	switch {
	case status == http.StatusUnauthorized || status == http.StatusProxyAuthRequired:
		rejection.Description = "The FHIR server requires credentials from the gateway."
		rejection.Err = fmt.Errorf("%w: status %d: the FHIR server requires credentials; add them in the reverse_proxy block, for example: header_up Authorization \"Basic …\"", ErrBackendResponse, status)
	case status/100 == 3 && status != http.StatusNotModified:
		host := "a different address"
		if u, err := url.Parse(header.Get("Location")); err == nil && u.Host != "" {
			host = u.Host // without path and query, because they may contain a signature
		}
		rejection.Description = "The FHIR server responded with a redirect, which is not forwarded to clients."
		rejection.Err = fmt.Errorf("%w: status %d: the FHIR server redirects to %s; set the final address in reverse_proxy, or switch off redirects to file storage", ErrBackendResponse, status, host)
	default:
		return nil
	}
	return rejection
}

// decompress decompresses FHIR resources; some FHIR servers compress them although the gateway requests identity. Other
// content, such as files, stays unchanged.
func (x *responseWriter) decompress(status int, header http.Header) error {
	encoding := strings.ToLower(strings.TrimSpace(strings.Join(header["Content-Encoding"], ",")))
	if encoding == "" || message.FormatOfMediaType(header.Get("Content-Type")) == message.NoFormat {
		return nil
	}
	if header.Del("Content-Encoding"); encoding == "identity" {
		return nil
	}
	open, ok := decompressors[encoding]
	if !ok {
		return &guard.Error{
			Status: http.StatusBadGateway, Description: "The FHIR server's response uses an unsupported compression.",
			Err: fmt.Errorf("%w: Content-Encoding %q although identity was requested; switch off compression in the FHIR server", ErrBackendResponse, encoding),
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
func (x *responseWriter) Write(p []byte) (int, error) {
	x.WriteHeader(http.StatusOK)
	switch {
	case x.rejection != nil:
		return 0, x.rejection
	case x.inflater != nil:
		return x.inflater.pipe.Write(p)
	}
	return x.ResponseWriter.Write(p)
}

// Header implements http.ResponseWriter. While another goroutine decompresses, it returns an empty header
// instead of the client's.
func (x *responseWriter) Header() http.Header {
	if x.inflater != nil {
		return http.Header{}
	}
	return x.ResponseWriter.Header()
}

// close waits until a compressed response has been decompressed completely.
func (x *responseWriter) close() error {
	if x.inflater == nil {
		return nil
	}
	_ = x.inflater.pipe.Close() // never fails
	err := <-x.inflater.done
	if err == nil {
		return nil
	}
	if rejection, ok := errors.AsType[*guard.Error](err); ok {
		return rejection
	}
	return &guard.Error{
		Status: http.StatusBadGateway, Description: "The FHIR server's response cannot be decompressed.",
		Err: fmt.Errorf("%w: decompressing response: %w", ErrBackendResponse, err),
	}
}

// FlushError flushes the part written so far.
func (x *responseWriter) FlushError() error {
	if x.rejection != nil || x.inflater != nil {
		return nil
	}
	return http.NewResponseController(x.ResponseWriter).Flush()
}

// Unwrap returns the underlying writer, for http.ResponseController.
func (x *responseWriter) Unwrap() http.ResponseWriter { return x.ResponseWriter }

// inflater decompresses the bytes written to it.
type inflater struct {
	pipe *io.PipeWriter
	done chan error
}

// newInflater returns an inflater that writes to w. w must not be used elsewhere during a Write to the inflater.
func newInflater(open func(io.Reader) (io.ReadCloser, error), w io.Writer) *inflater {
	from, to := io.Pipe()
	x := &inflater{to, make(chan error, 1)}
	go func() {
		err := inflate(open, from, w)
		_ = from.CloseWithError(err) // later writes fail with this error
		x.done <- err
	}()
	return x
}

func inflate(open func(io.Reader) (io.ReadCloser, error), from io.Reader, w io.Writer) error {
	r, err := open(from)
	if errors.Is(err, io.EOF) {
		return nil // empty body
	}
	if err != nil {
		return err
	}
	if _, err = io.Copy(w, r); err == nil {
		_, err = io.Copy(io.Discard, from) // reads the checksum; trailing data must not block the writer
	}
	return err
}
