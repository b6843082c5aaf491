package endpoint

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/lockout"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
)

type errorResponse struct {
	Code        string `json:"error,omitempty"`
	Description string `json:"error_description,omitempty"`
}

// Responder answers what programs ask, in JSON.
type Responder struct {
	Issuer  string                   // the realm of challenges
	IsHTTPS func(*http.Request) bool // says whether a request came over TLS
	Logger  *slog.Logger             // of refusals that are on no audit trail
	Trail   *audit.Recorder          // of what requests come to
}

// WriteJSON sends what must not be kept by any cache (RFC 6749 §5.1; the second
// header is for caches of HTTP/1.0).
func (a *Responder) WriteJSON(w http.ResponseWriter, status int, body any) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("Pragma", "no-cache")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(body); err != nil {
		a.Logger.Debug("answer not written", "error", err)
	}
}

// WriteError sends an error of the token endpoint (RFC 6749 §5.2) or of one that
// takes access tokens (RFC 6750 §3).
func (a *Responder) WriteError(w http.ResponseWriter, r *http.Request, err error) {
	e := oauth2.AsError(err)
	a.logRefusal(r, e)
	if release := audit.FromContext(r.Context()).Release; release != nil && e.HTTPStatus() >= http.StatusInternalServerError {
		release(r.Context())
	}
	if challenge := a.challenge(r, e); challenge != "" {
		w.Header().Set("WWW-Authenticate", challenge)
	}
	if wait := lockout.WaitOf(err); wait > 0 {
		lockout.SetRetryAfter(w, wait)
	}
	a.WriteJSON(w, e.HTTPStatus(), errorResponse{e.Code, e.Description})
}

// logRefusal logs what is not on the audit trail.
func (a *Responder) logRefusal(r *http.Request, e *oauth2.Error) {
	switch {
	case audit.FromContext(r.Context()).Refused:
	case e.Code == "server_error":
		a.Logger.ErrorContext(r.Context(), "request failed", "path", r.URL.Path, "error", e)
	default:
		a.Logger.InfoContext(r.Context(), "request refused", "path", r.URL.Path, "error", e)
	}
}

// challenge is the WWW-Authenticate header of a refusal. A client that did not
// try HTTP Basic gets no challenge for it, as RFC 6749 §5.2 has it and RFC 9110
// §15.5.2 has not: browsers would ask the person for a password, and widespread
// OAuth libraries would report the challenge and not the error beside it.
func (a *Responder) challenge(r *http.Request, e *oauth2.Error) string {
	switch {
	case e.Code == "invalid_client":
		if r.Header.Get("Authorization") == "" {
			return ""
		}
		return fmt.Sprintf("Basic realm=%q", a.Issuer)
	case r.URL.Path != Userinfo && e.Code != "invalid_token":
		return ""
	}
	parts := []string{fmt.Sprintf("Bearer realm=%q", a.Issuer)}
	if e.Code != "" {
		parts = append(parts, fmt.Sprintf("error=%q", e.Code), fmt.Sprintf("error_description=%q", e.Description))
	}
	if e.Code == "insufficient_scope" {
		parts = append(parts, `scope="openid"`)
	}
	return strings.Join(parts, ", ")
}

// plainHTTP says why a request does not count as one over https. A header says nothing
// that anybody might not have written, but who runs the proxy will want to know why it
// was not believed.
func plainHTTP(r *http.Request) string {
	const refusal = "this endpoint is for https alone"
	if r.Header.Get("X-Forwarded-Proto") == "" && r.Header.Get("Forwarded") == "" {
		return refusal
	}
	return refusal + "; a proxy in front says whether the browser used it by X-Forwarded-Proto, and is believed if the gateway's trusted_proxies name it"
}

// Handler lets the named methods through, over HTTPS (RFC 6749 §3.1, §3.2).
// Nothing that passes here is kept by caches unless the endpoint says so.
func (a *Responder) Handler(serve http.HandlerFunc, methods ...string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r = a.Trail.Begin(r)
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("Referrer-Policy", "no-referrer")
		switch {
		case !a.IsHTTPS(r):
			a.WriteError(w, r, oauth2.InvalidRequest(plainHTTP(r)))
		case !slices.Contains(methods, r.Method):
			w.Header().Set("Allow", strings.Join(methods, ", "))
			a.WriteError(w, r, &oauth2.Error{
				Code: "invalid_request", Status: http.StatusMethodNotAllowed,
				Description: "use " + strings.Join(methods, " or "),
			})
		default:
			serve(w, r)
		}
	})
}
