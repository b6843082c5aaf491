// Package endpoint is what all endpoints have in common: they require https and the right
// method, and answer clients in JSON. It knows their paths and their names in metrics.
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

// names are those of the core and, by [Register], of features.
var names = []string{
	"authorize", "login", "callback", "select_account", "select_patient", "select_encounter", "consent", "account",
	"launch", "style.json", "par", "client_logo",
	"token", "revoke", "introspect", "userinfo", "logout", "backchannel_logout",
	"jwks.json", "openid-configuration", "oauth-authorization-server", "smart-configuration", "oauth-protected-resource",
}

// Register adds the name of a feature's endpoint to [Names]. It must be called from init.
func Register(name string) { names = append(names, name) }

// Names returns all that [Name] returns.
func Names() []string { return names }

// Name is the name of a path's endpoint in metrics: the word after /oauth2/, or a document's
// name.
func Name(path string) string {
	if below, ok := strings.CutPrefix(path, "/oauth2/"); ok {
		name, _, _ := strings.Cut(below, "/") // the key of an identity provider follows
		return name
	}
	if strings.HasPrefix(path, oauth2.ProtectedResourcePath) {
		return "oauth-protected-resource"
	}
	return path[strings.LastIndexByte(path, '/')+1:]
}

// The endpoints below the issuer.
const (
	Authorize  = "/oauth2/authorize"
	Login      = "/oauth2/login"
	Token      = "/oauth2/token"
	Revoke     = "/oauth2/revoke"
	Introspect = "/oauth2/introspect"
	Userinfo   = "/oauth2/userinfo"
	Callback   = "/oauth2/callback/" // and the provider's key
	Logout     = "/oauth2/logout"
	JWKS       = "/.well-known/jwks.json"

	BackchannelLogout = "/oauth2/backchannel_logout/" // and the provider's key

	SelectAccount       = "/oauth2/select_account"
	SelectPatient       = "/oauth2/select_patient"
	SelectEncounter     = "/oauth2/select_encounter"
	Consent             = "/oauth2/consent"
	Logo                = "/oauth2/logo"
	ClientLogo          = "/oauth2/client_logo" // ?client_id=
	Launch              = "/oauth2/launch"
	SMARTStyle          = "/oauth2/style.json"
	Account             = "/oauth2/account"
	PushedAuthorization = "/oauth2/par"
)

type errorResponse struct {
	Code        string `json:"error,omitempty"`
	Description string `json:"error_description,omitempty"`
}

// Responder answers clients in JSON.
type Responder struct {
	Issuer  string                   // the realm of challenges
	IsHTTPS func(*http.Request) bool // reports whether a request came over TLS
	Logger  *slog.Logger             // gets refusals that are not on the audit trail
	Trail   *audit.Recorder          // records the outcome of requests

	// Kinds are the kinds of audit events for refusals by the path of an endpoint. Default: [audit.Token].
	Kinds map[string]string
}

// WriteJSON sends a body that no cache may keep (RFC 6749 §5.1; Pragma is for HTTP/1.0).
func (rs *Responder) WriteJSON(w http.ResponseWriter, status int, body any) {
	rs.WriteAs(w, "application/json", status, body)
}

// WriteAs is [Responder.WriteJSON] with another media type.
func (rs *Responder) WriteAs(w http.ResponseWriter, kind string, status int, body any) {
	setKind(w.Header(), kind)
	w.WriteHeader(status)
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false) // an address stays one
	if err := encoder.Encode(body); err != nil {
		rs.Logger.Debug("answer not written", "error", err)
	}
}

// WriteJWT sends a JWT that no cache may keep.
func (rs *Responder) WriteJWT(w http.ResponseWriter, token string) {
	setKind(w.Header(), "application/jwt")
	if _, err := io.WriteString(w, token); err != nil {
		rs.Logger.Debug("answer not written", "error", err)
	}
}

// setKind sets the media type of a response that no cache may keep (RFC 6749 §5.1).
func setKind(h http.Header, kind string) {
	h.Set("Content-Type", kind)
	h.Set("Cache-Control", "no-store")
	h.Set("Pragma", "no-cache")
}

// WriteError sends an error to a client (RFC 6749 §5.2, RFC 6750 §3), and records a refusal of a known client unless the
// endpoint has recorded it.
func (rs *Responder) WriteError(w http.ResponseWriter, r *http.Request, err error) {
	e := oauth2.AsError(err)
	rs.recordRefusal(r, err)
	rs.logRefusal(r, e)
	if release := audit.FromContext(r.Context()).Release; release != nil && e.HTTPStatus() >= http.StatusInternalServerError {
		release(r.Context())
	}
	if challenge := rs.challenge(r, e); challenge != "" {
		w.Header().Set("WWW-Authenticate", challenge)
	}
	TellWait(w, err)
	rs.WriteJSON(w, e.HTTPStatus(), errorResponse{e.Code, e.Description})
}

// Redirect sends the browser to another address. Unlike [http.Redirect], it leaves the address as it is and writes no body.
func Redirect(w http.ResponseWriter, status int, target string) {
	w.Header().Set("Location", target)
	w.WriteHeader(status)
}

// TellWait says when to try again, if that is why a request is refused.
func TellWait(w http.ResponseWriter, err error) {
	if wait := lockout.RetryAfter(err); wait > 0 {
		lockout.SetRetryAfter(w, wait)
	}
	oauth2.SetRetryAfter(w.Header(), oauth2.AsError(err).HTTPStatus())
}

// recordRefusal records that a known client was refused, or that a request needed a store that cannot be reached.
func (rs *Responder) recordRefusal(r *http.Request, err error) {
	if audit.FromContext(r.Context()).ClientID == "" && !errors.Is(err, store.ErrUnavailable) {
		return
	}
	kind, ok := rs.Kinds[r.URL.Path]
	if !ok {
		kind = audit.Token
	}
	rs.Trail.RecordRefusal(r, audit.Event{Kind: kind, Err: err})
}

func (rs *Responder) logRefusal(r *http.Request, e *oauth2.Error) {
	switch {
	case audit.FromContext(r.Context()).Refused:
	case e.Code == "server_error" && !errors.Is(r.Context().Err(), context.Canceled): // of who left, nobody sees it
		rs.Logger.ErrorContext(r.Context(), "request failed", "path", r.URL.Path, "error", e)
	default:
		rs.Logger.InfoContext(r.Context(), "request refused", "path", r.URL.Path, "error", e)
	}
}

// challenge returns the WWW-Authenticate header of a refusal. A client that did not try HTTP
// Basic gets none (RFC 6749 §5.2, despite RFC 9110 §15.5.2): browsers would ask for a
// password, and common OAuth libraries would report the challenge in place of the error.
func (rs *Responder) challenge(r *http.Request, e *oauth2.Error) string {
	switch {
	case e.Code == "invalid_client" && r.Header.Get("Authorization") != "":
		return fmt.Sprintf("Basic realm=%q", rs.Issuer)
	case e.Code == "invalid_client", r.URL.Path != Userinfo && e.Code != "invalid_token":
		return ""
	}
	parts := []string{fmt.Sprintf("Bearer realm=%q", rs.Issuer)}
	if e.Code != "" && (rs.Kinds[r.URL.Path] != audit.Registration || r.Header.Get("Authorization") != "") { // no code without a token (RFC 6750 §3.1)
		parts = append(parts, fmt.Sprintf("error=%q", e.Code), fmt.Sprintf("error_description=%q", e.Description))
	}
	if e.Code == "insufficient_scope" {
		parts = append(parts, `scope="openid"`)
	}
	return strings.Join(parts, ", ")
}

// httpsRequired says why a request does not count as https. Anybody can send a proxy's
// headers, but an operator will want to know why theirs was not trusted.
func httpsRequired(r *http.Request) string {
	const refusal = "this endpoint is for https alone"
	if r.Header.Get("X-Forwarded-Proto") == "" && r.Header.Get("Forwarded") == "" {
		return refusal
	}
	return refusal + "; a proxy in front says whether the browser used it by X-Forwarded-Proto, and is believed if the gateway's trusted_proxies name it"
}

// Handler requires https and one of the methods (RFC 6749 §3.1, §3.2). Caches keep
// nothing unless the endpoint allows it.
func (rs *Responder) Handler(serve http.HandlerFunc, methods ...string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r = rs.Trail.Begin(r)
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("Referrer-Policy", "no-referrer")
		switch {
		case !rs.IsHTTPS(r):
			rs.WriteError(w, r, oauth2.InvalidRequest(httpsRequired(r)))
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
