package fhirerror

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// OrNotFound answers 404 in place of a next handler that does not answer. Caddy would answer 200 with an empty body, which
// a client takes for the success of what never happened.
type OrNotFound struct {
	// Next is the handler that may not answer.
	Next caddyhttp.Handler
}

var errNobodyAnswers = errors.New("no handler answers this request")

// ServeHTTP implements caddyhttp.Handler.
func (h OrNotFound) ServeHTTP(w http.ResponseWriter, r *http.Request) error {
	answer := &noticedAnswer{ResponseWriterWrapper: caddyhttp.ResponseWriterWrapper{ResponseWriter: w}}
	if err := h.Next.ServeHTTP(answer, r); err != nil || answer.begun {
		return err
	}
	return caddyhttp.Error(http.StatusNotFound, errNobodyAnswers)
}

// noticedAnswer notices that an answer was begun.
type noticedAnswer struct {
	caddyhttp.ResponseWriterWrapper
	begun bool
}

func (a *noticedAnswer) WriteHeader(status int) {
	a.begun = a.begun || status >= http.StatusOK || status == http.StatusSwitchingProtocols
	a.ResponseWriterWrapper.WriteHeader(status)
}

func (a *noticedAnswer) Write(b []byte) (int, error) {
	a.begun = true
	return a.ResponseWriterWrapper.Write(b)
}

// ReadFrom implements io.ReaderFrom.
func (a *noticedAnswer) ReadFrom(r io.Reader) (int64, error) {
	a.begun = true
	return a.ResponseWriterWrapper.ReadFrom(r)
}

// FlushError sends the header.
func (a *noticedAnswer) FlushError() error {
	a.begun = true
	return http.NewResponseController(a.ResponseWriter).Flush()
}

// Hijack hands the connection over.
func (a *noticedAnswer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	a.begun = true
	return http.NewResponseController(a.ResponseWriter).Hijack()
}
