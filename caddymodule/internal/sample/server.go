package sample

import (
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// MaxBody is how large the body of a request may be.
const MaxBody = 1 << 20

// Server answers requests of FHIR's REST API from a store.
type Server struct {
	// Store holds the resources. Required.
	Store *Store
	// Base is the path of the FHIR API, such as /fhir/R4. Required.
	Base string
	// BaseURL is the address of the FHIR API in links. Default: the address that was asked for.
	BaseURL string
}

// ServeHTTP answers a request below the base.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer, err := s.answer(w, r)
	if err != nil {
		answer = outcome(err)
	}
	answer.write(w, r)
}

func (s *Server) answer(w http.ResponseWriter, r *http.Request) (reply, error) {
	if job, ok := strings.CutPrefix(r.URL.Path, s.Base+"/"+exportPath); ok {
		return s.Store.exports.serve(r.Method, s.address(r), job)
	}
	q, err := s.read(w, r)
	if err != nil {
		return reply{}, err
	}
	if q.changes() {
		s.Store.mu.Lock()
		defer s.Store.mu.Unlock()
	} else {
		s.Store.mu.RLock()
		defer s.Store.mu.RUnlock()
	}
	if q.Kind == interaction.Bundle {
		return submit(s.Store, q)
	}
	return perform(s.Store, q)
}

// read reads a request to its end.
func (s *Server) read(w http.ResponseWriter, r *http.Request) (request, error) {
	path := strings.TrimPrefix(r.URL.Path[min(len(s.Base), len(r.URL.Path)):], "/")
	i, err := interaction.Parse(r.Method, path, r.URL.RawQuery, r.Header)
	if err != nil {
		return request{}, err
	}
	q := request{Interaction: i, ctx: r.Context(), method: r.Method, header: r.Header, base: s.address(r)}
	if r.Body != nil {
		if q.body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody)); err != nil {
			return q, unread(err)
		}
	}
	if err := q.checkFormat(r.Header.Get("Content-Type")); err != nil {
		return q, err
	}
	if r.Method == http.MethodPost && strings.HasSuffix(path, "_search") {
		q.Interaction, err = i.WithForm(string(q.body))
	}
	return q, err
}

// unread is why a body could not be read.
func unread(err error) error {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return failure{http.StatusRequestEntityTooLarge, "too-long", "The body is larger than 1 MiB."}
	}
	return invalid("The body ended early.")
}

// address is the address of the FHIR API as the client knows it.
func (s *Server) address(r *http.Request) string {
	switch {
	case s.BaseURL != "":
		return s.BaseURL
	case r.TLS != nil:
		return "https://" + r.Host + s.Base
	}
	return "http://" + r.Host + s.Base
}
