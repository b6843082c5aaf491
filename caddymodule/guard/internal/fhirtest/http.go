package fhirtest

import (
	"io"
	"net/http"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// ServeHTTP answers a request of FHIR's REST API. It never returns an error.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) error {
	if s.Seen != nil {
		s.Seen(r)
	}
	base := s.Base
	if base == "" {
		base = "/fhir/R4"
	}
	path := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, base), "/")
	if answer := s.Answers[path]; answer != nil {
		answer(w, r)
		return nil
	}
	i, err := interaction.Parse(r.Method, path, r.URL.RawQuery, r.Header)
	var body []byte
	if err == nil && r.Body != nil {
		body, err = io.ReadAll(r.Body)
	}
	if err == nil && strings.HasSuffix(path, "_search") {
		i, err = i.WithForm(string(body))
	}
	if err != nil {
		outcome(w, interaction.Status(err), err.Error())
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i.Kind == interaction.Bundle {
		s.bundle(w, body)
	} else {
		s.serve(w, r, i, body)
	}
	return nil
}
