package fhirserver

import (
	"compress/gzip"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
)

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
