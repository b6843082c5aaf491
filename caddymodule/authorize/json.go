package authorize

import (
	"encoding/json"
	"fmt"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
	"net/http"
	"strings"
)

type errorResponse struct {
	Code        string `json:"error,omitempty"`
	Description string `json:"error_description,omitempty"`
}

// writeJSON sends what must not be kept by any cache (RFC 6749 §5.1; the second
// header is for caches of HTTP/1.0).
func (s *Server) writeJSON(w http.ResponseWriter, status int, body any) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("Pragma", "no-cache")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(body); err != nil {
		s.logger.Debug("answer not written", "error", err)
	}
}

// writeError sends an error of the token endpoint (RFC 6749 §5.2) or of one that
// takes access tokens (RFC 6750 §3).
func (s *Server) writeError(w http.ResponseWriter, r *http.Request, err error) {
	e := oauth2.AsError(err)
	s.logRefusal(r, e)
	if e.HTTPStatus() >= http.StatusInternalServerError {
		s.releaseAssertion(r.Context())
	}
	if challenge := s.challenge(r, e); challenge != "" {
		w.Header().Set("WWW-Authenticate", challenge)
	}
	if wait := waitOf(err); wait > 0 {
		retryAfter(w, wait)
	}
	s.writeJSON(w, e.HTTPStatus(), errorResponse{e.Code, e.Description})
}

// logRefusal logs what is not on the audit trail.
func (s *Server) logRefusal(r *http.Request, e *oauth2.Error) {
	switch {
	case trailOf(r.Context()).refused:
	case e.Code == "server_error":
		s.logger.ErrorContext(r.Context(), "request failed", "path", r.URL.Path, "error", e)
	default:
		s.logger.InfoContext(r.Context(), "request refused", "path", r.URL.Path, "error", e)
	}
}

// challenge is the WWW-Authenticate header of a refusal. A client that did not
// try HTTP Basic gets no challenge for it, as RFC 6749 §5.2 has it and RFC 9110
// §15.5.2 has not: browsers would ask the person for a password, and widespread
// OAuth libraries would report the challenge and not the error beside it.
func (s *Server) challenge(r *http.Request, e *oauth2.Error) string {
	switch {
	case e.Code == "invalid_client":
		if r.Header.Get("Authorization") == "" {
			return ""
		}
		return fmt.Sprintf("Basic realm=%q", s.issuer)
	case r.URL.Path != pathUserinfo && e.Code != "invalid_token":
		return ""
	}
	parts := []string{fmt.Sprintf("Bearer realm=%q", s.issuer)}
	if e.Code != "" {
		parts = append(parts, fmt.Sprintf("error=%q", e.Code), fmt.Sprintf("error_description=%q", e.Description))
	}
	if e.Code == "insufficient_scope" {
		parts = append(parts, `scope="openid"`)
	}
	return strings.Join(parts, ", ")
}
