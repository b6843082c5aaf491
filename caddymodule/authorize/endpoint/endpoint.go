// Package endpoint contains the common parts of all endpoints: checks of https and the method, JSON responses for clients, and
// the paths and metric names of the endpoints.
package endpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/lockout"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// names lists the endpoint names of the core, and those that features add with [Register].
var names = []string{
	"authorize", "login", "callback", "select_account", "select_patient", "select_encounter", "consent", "account",
	"launch", "style.json", "par", "client_logo",
	"token", "revoke", "introspect", "userinfo", "logout", "backchannel_logout",
	"jwks.json", "openid-configuration", "oauth-authorization-server", "smart-configuration", "oauth-protected-resource",
}

// Register adds the name of a feature's endpoint to [Names]. It must be called from an init function.
func Register(name string) { names = append(names, name) }

// Names returns all possible results of [Name].
func Names() []string { return names }

// Name returns the metric name of the endpoint at a path: the first segment after /oauth2/, or the name of a metadata document.
func Name(path string) string {
	if segment, ok := strings.CutPrefix(path, "/oauth2/"); ok {
		name, _, _ := strings.Cut(segment, "/") // the key of an identity provider may follow
		return name
	}
	if strings.HasPrefix(path, oauth2.ProtectedResourcePath) {
		return "oauth-protected-resource"
	}
	return path[strings.LastIndexByte(path, '/')+1:]
}

// Paths of the endpoints below the issuer.
const (
	Authorize  = "/oauth2/authorize"
	Login      = "/oauth2/login"
	Token      = "/oauth2/token"
	Revoke     = "/oauth2/revoke"
	Introspect = "/oauth2/introspect"
	Userinfo   = "/oauth2/userinfo"
	Callback   = "/oauth2/callback/" // followed by the key of an identity provider
	Logout     = "/oauth2/logout"
	JWKS       = "/.well-known/jwks.json"

	BackchannelLogout = "/oauth2/backchannel_logout/" // followed by the key of an identity provider

	SelectAccount       = "/oauth2/select_account"
	SelectPatient       = "/oauth2/select_patient"
	SelectEncounter     = "/oauth2/select_encounter"
	Consent             = "/oauth2/consent"
	Logo                = "/oauth2/logo"
	ClientLogo          = "/oauth2/client_logo" // query parameter: client_id
	Launch              = "/oauth2/launch"
	SMARTStyle          = "/oauth2/style.json"
	Account             = "/oauth2/account"
	PushedAuthorization = "/oauth2/par"
)

type errorResponse struct {
	Code        string `json:"error,omitempty"`
	Description string `json:"error_description,omitempty"`
}

// Responder sends JSON responses to clients.
type Responder struct {
	Issuer  string                   // realm in WWW-Authenticate challenges
	IsHTTPS func(*http.Request) bool // reports whether a request was received over TLS
	Logger  *slog.Logger             // log for rejections that are not in the audit log
	Trail   *audit.Recorder          // audit log

	// AuditKinds maps endpoint paths to the kind of audit event for rejections. Default: [audit.KindToken].
	AuditKinds map[string]string
}

// WriteJSON sends a JSON response with Cache-Control: no-store (RFC 6749 §5.1) and, for HTTP/1.0, Pragma: no-cache.
func (rs *Responder) WriteJSON(w http.ResponseWriter, status int, body any) {
	rs.WriteJSONAs(w, "application/json", status, body)
}

// WriteJSONAs is like [Responder.WriteJSON], but with another media type.
func (rs *Responder) WriteJSONAs(w http.ResponseWriter, mediaType string, status int, body any) {
	setMediaType(w.Header(), mediaType)
	w.WriteHeader(status)
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false) // no \u0026 in URLs
	if err := encoder.Encode(body); err != nil {
		rs.Logger.Debug("response not written", "error", err)
	}
}

// WriteJWT sends a JWT with Cache-Control: no-store.
func (rs *Responder) WriteJWT(w http.ResponseWriter, token string) {
	setMediaType(w.Header(), "application/jwt")
	if _, err := io.WriteString(w, token); err != nil {
		rs.Logger.Debug("response not written", "error", err)
	}
}

// setMediaType sets the media type of a response and disables caching (RFC 6749 §5.1).
func setMediaType(h http.Header, mediaType string) {
	h.Set("Content-Type", mediaType)
	h.Set("Cache-Control", "no-store")
	h.Set("Pragma", "no-cache")
}

// WriteError sends an error to a client (RFC 6749 §5.2, RFC 6750 §3). It records the rejection of an identified client, unless
// the endpoint has already done so.
func (rs *Responder) WriteError(w http.ResponseWriter, r *http.Request, err error) {
	e := oauth2.AsError(err)
	rs.recordRejection(r, err)
	rs.logRejection(r, e)
	if release := audit.FromContext(r.Context()).Release; release != nil && e.HTTPStatus() >= http.StatusInternalServerError {
		release(r.Context())
	}
	if challenge := rs.challenge(r, e); challenge != "" {
		w.Header().Set("WWW-Authenticate", challenge)
	}
	SetRetryAfter(w, err)
	rs.WriteJSON(w, e.HTTPStatus(), errorResponse{e.Code, e.Description})
}

// Redirect redirects the browser. Unlike [http.Redirect], it does not modify the URL or write a body.
func Redirect(w http.ResponseWriter, status int, target string) {
	w.Header().Set("Location", target)
	w.WriteHeader(status)
}

// WantsPage reports whether a browser requests a page to show.
func WantsPage(r *http.Request) bool { return strings.Contains(r.Header.Get("Accept"), "text/html") }

// SetRetryAfter sets the Retry-After header if err is temporary.
func SetRetryAfter(w http.ResponseWriter, err error) {
	if wait := lockout.RetryAfter(err); wait > 0 {
		lockout.SetRetryAfter(w, wait)
	}
	oauth2.SetRetryAfter(w.Header(), oauth2.AsError(err).HTTPStatus())
}

// recordRejection records a rejection in the audit log if the client is identified or the store was unreachable.
func (rs *Responder) recordRejection(r *http.Request, err error) {
	if audit.FromContext(r.Context()).ClientID == "" && !errors.Is(err, store.ErrUnavailable) {
		return
	}
	mediaType, ok := rs.AuditKinds[r.URL.Path]
	if !ok {
		mediaType = audit.KindToken
	}
	rs.Trail.RecordRejection(r, audit.Event{Kind: mediaType, Err: err})
}

func (rs *Responder) logRejection(r *http.Request, e *oauth2.Error) {
	switch {
	case audit.FromContext(r.Context()).Rejected:
	case e.Code == "server_error" && !errors.Is(r.Context().Err(), context.Canceled): // after disconnection, errors do not affect the client
		rs.Logger.ErrorContext(r.Context(), "request failed", "path", r.URL.Path, "error", e)
	default:
		rs.Logger.InfoContext(r.Context(), "request rejected", "path", r.URL.Path, "error", e)
	}
}

// challenge returns the WWW-Authenticate header for a rejection. Clients that did not use HTTP Basic get no challenge (RFC 6749
// §5.2, despite RFC 9110 §15.5.2), because browsers would show a password dialog, and common OAuth libraries would report the
// challenge instead of the error.
func (rs *Responder) challenge(r *http.Request, e *oauth2.Error) string {
	switch {
	case e.Code == "invalid_client" && r.Header.Get("Authorization") != "":
		return fmt.Sprintf("Basic realm=%q", rs.Issuer)
	case e.Code == "invalid_client", r.URL.Path != Userinfo && e.Code != "invalid_token":
		return ""
	}
	parts := []string{fmt.Sprintf("Bearer realm=%q", rs.Issuer)}
	if e.Code != "" && (rs.AuditKinds[r.URL.Path] != audit.KindRegistration || r.Header.Get("Authorization") != "") { // no error code if the request contained no token (RFC 6750 §3.1)
		parts = append(parts, fmt.Sprintf("error=%q", e.Code), fmt.Sprintf("error_description=%q", e.Description))
	}
	if e.Code == "insufficient_scope" {
		parts = append(parts, `scope="openid"`)
	}
	return strings.Join(parts, ", ")
}

// explainMissingHTTPS returns why a request is not treated as https. If it contains proxy headers, which anyone can send, the
// text explains how to make the proxy trusted.
func explainMissingHTTPS(r *http.Request) string {
	const explanation = "this endpoint requires https"
	if r.Header.Get("X-Forwarded-Proto") == "" && r.Header.Get("Forwarded") == "" {
		return explanation
	}
	return explanation + "; behind a proxy, the proxy must send X-Forwarded-Proto and be listed in the gateway's trusted_proxies"
}

// Handler returns a handler that requires https and one of the methods (RFC 6749 §3.1, §3.2). Responses are not cacheable
// unless serve overrides Cache-Control.
func (rs *Responder) Handler(serve http.HandlerFunc, methods ...string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r = rs.Trail.WithRequest(r)
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("Referrer-Policy", "no-referrer")
		switch {
		case !rs.IsHTTPS(r):
			rs.WriteError(w, r, oauth2.InvalidRequest(explainMissingHTTPS(r)))
		case !slices.Contains(methods, r.Method):
			w.Header().Set("Allow", strings.Join(methods, ", "))
			rs.WriteError(w, r, &oauth2.Error{
				Code: "invalid_request", Status: http.StatusMethodNotAllowed,
				Description: "use " + strings.Join(methods, " or "),
			})
		default:
			serve(w, r)
		}
	})
}
