package flow

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/browser"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/token"
)

// logoutRequest is a checked request to sign out (OpenID Connect RP-Initiated
// Logout 1.0 §2).
type logoutRequest struct {
	client      *client.Client // nil where the request names none
	subject     string         // of the hint; "" without one
	sid         string         // of the hint's session; "" without one
	redirectURI string
	state       string
	query       string
}

// destination is where the browser goes in the end, or "".
func (l *logoutRequest) destination() string {
	if l.redirectURI == "" || l.state == "" {
		return l.redirectURI
	}
	separator := "?"
	if strings.Contains(l.redirectURI, "?") {
		separator = "&"
	}
	return l.redirectURI + separator + answerParameters{{"state", l.state}}.encode()
}

// logoutEndpoint is where people sign out.
type logoutEndpoint struct {
	*step
	issuer   string
	clients  *client.Registry
	accounts *people.Accounts
	sessions *session.Sessions
	verifier *token.Verifier
	logger   *slog.Logger
}

// logout is the end session endpoint. Whoever has an ID token of the person that is
// signed in signs them out at once; from anybody else it is a link that any site
// can set, so the person is asked.
//
// A request without a session cookie, such as a client's server sends, ends the
// session that its hint names. A stolen ID token can do that too, and no more: it
// ends that one session, and gives nothing.
func (e *logoutEndpoint) logout(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		e.logoutPosted(w, r)
		return
	}
	req, err := e.logoutRequest(r, r.URL.RawQuery)
	var signedIn *session.SignedIn
	if err == nil {
		signedIn, err = e.sessions.Current(r)
	}
	switch {
	case err != nil:
		e.responses.refuse(w, r, err)
	case signedIn == nil || req.subject == signedIn.User.ID:
		e.signOut(w, r, req)
	default:
		e.askToSignOut(w, r, req)
	}
}

// logoutPosted takes the page's answer. A client's own POST becomes a GET, as
// at the authorization endpoint, so that the browser sends our cookies.
func (e *logoutEndpoint) logoutPosted(w http.ResponseWriter, r *http.Request) {
	p, err := oauth2.ReadForm(w, r)
	if err != nil {
		e.responses.refuse(w, r, err)
		return
	}
	if p.Get("request") == "" {
		w.Header().Set("Location", endpoint.Logout+"?"+url.Values(p).Encode())
		w.WriteHeader(http.StatusSeeOther)
		return
	}
	query, err := e.openForBrowser(r, "logout", p.Get("request"))
	var req *logoutRequest
	if err == nil {
		req, err = e.logoutRequest(r, query)
	}
	if err != nil {
		e.responses.refuse(w, r, err)
		return
	}
	e.signOut(w, r, req)
}

func (e *logoutEndpoint) logoutRequest(r *http.Request, query string) (*logoutRequest, error) {
	p, err := oauth2.QueryParameters(query)
	if err != nil {
		return nil, err
	}
	l := &logoutRequest{query: query, state: p.Get("state")}
	if l.client, err = e.clients.Find(r.Context(), p.Get("client_id")); err != nil {
		return nil, err
	}
	if err := e.readHint(r, l, p); err != nil {
		return nil, err
	}
	l.redirectURI = p.Get("post_logout_redirect_uri")
	if l.redirectURI != "" && (l.client == nil || !slices.Contains(l.client.PostLogoutRedirectURIs, l.redirectURI)) {
		return nil, oauth2.InvalidRequest("The post_logout_redirect_uri is not exactly one that is registered for the client.")
	}
	return l, nil
}

// readHint takes client, subject and session from an ID token of ours, expired or not
// (RP-Initiated Logout §4). It names the client and the session that the client knows;
// the cookie says who is signed in at this browser.
func (e *logoutEndpoint) readHint(r *http.Request, l *logoutRequest, p oauth2.Parameters) error {
	raw := p.Get("id_token_hint")
	if raw == "" {
		return nil
	}
	claims, err := e.verifier.Hint(r.Context(), raw)
	asked := p.Get("client_id")
	switch {
	case errors.Is(err, token.ErrInvalidHint), errors.Is(err, keyring.ErrUnknownKey), err == nil && asked != "" && asked != claims.Audience:
		return oauth2.InvalidRequest("The id_token_hint is not an ID token of this server for this client.")
	case err != nil:
		return err
	}
	l.subject = claims.Subject
	l.client, err = e.clients.Find(r.Context(), claims.Audience)
	if l.client != nil { // one that is gone signs nobody out
		l.sid = claims.Session
	}
	return err
}

// hintedSession returns the session that the hint names, or nil.
func (e *logoutEndpoint) hintedSession(ctx context.Context, l *logoutRequest) (*session.Session, error) {
	if l.sid == "" {
		return nil, nil
	}
	stored, err := e.sessions.Read(ctx, l.sid)
	if stored == nil || stored.User != l.subject {
		return nil, err
	}
	return stored, nil
}

// signOut ends the browser's session, and that of the hint. Where the provider that
// the browser's began with has an end_session endpoint, the browser goes there next;
// nobody else does, because the way there shows the provider's ID token.
func (e *logoutEndpoint) signOut(w http.ResponseWriter, r *http.Request, req *logoutRequest) {
	if req.client != nil {
		audit.FromContext(r.Context()).ClientID = req.client.ID
	}
	stored, err := e.sessions.Stored(r)
	var target string
	if err == nil && stored != nil {
		target, err = e.upstreamLogout(w, r, stored, req.destination())
	}
	if err == nil {
		err = e.endBoth(r.Context(), stored, req)
	}
	if err != nil {
		e.responses.refuse(w, r, err)
		return
	}
	browser.RemoveCookie(w, browser.SessionCookie)
	if target != "" {
		w.Header().Set("Location", target)
		w.WriteHeader(http.StatusFound)
		return
	}
	e.signedOut(w, r, req.destination())
}

// endBoth ends the browser's session and that of the hint: there may be both, one or
// none, and the two may be the same. The browser's is last: while it is there, the
// browser can try again.
func (e *logoutEndpoint) endBoth(ctx context.Context, own *session.Session, req *logoutRequest) error {
	hinted, err := e.hintedSession(ctx, req)
	if err == nil && hinted != nil && (own == nil || own.SID != hinted.SID) {
		audit.NoteSessionEndReason(ctx, "signed out by an ID token of it, from elsewhere")
		err = e.sessions.End(ctx, hinted)
	}
	if err != nil || own == nil {
		return err
	}
	audit.NoteSessionEndReason(ctx, "signed out in its browser")
	return e.sessions.End(ctx, own)
}

// upstreamLogout is where to sign out at the provider, or "". That the provider
// cannot be asked keeps nobody signed in here.
func (e *logoutEndpoint) upstreamLogout(w http.ResponseWriter, r *http.Request, stored *session.Session, destination string) (string, error) {
	p := e.accounts.Providers[stored.Provider]
	if p == nil {
		return "", nil
	}
	state, err := e.browsers.Keys.Seal(r.Context(), destination, "signed out "+e.browsers.ID(w, r))
	if err != nil {
		return "", err
	}
	target, ok, err := p.Client.EndSessionURL(r.Context(), stored.UpstreamIDToken, e.issuer+endpoint.Logout+"/"+p.Key, state)
	if err != nil {
		e.logger.WarnContext(r.Context(), "not signed out at the identity provider", "idp", p.Key, "error", err)
	}
	if !ok {
		return "", nil
	}
	return target, nil
}

// signedOutUpstream is where a provider sends the browser after signing out.
func (e *logoutEndpoint) signedOutUpstream(w http.ResponseWriter, r *http.Request) {
	destination, err := e.openForBrowser(r, "signed out", r.URL.Query().Get("state"))
	if err != nil {
		destination = "" // signed out all the same
	}
	e.signedOut(w, r, destination)
}

func (e *logoutEndpoint) signedOut(w http.ResponseWriter, r *http.Request, destination string) {
	if destination == "" {
		e.pages.showMessage(w, r, http.StatusOK, messagePage{Title: "You are signed out", Text: "You can close this page."})
		return
	}
	w.Header().Set("Location", destination)
	w.WriteHeader(http.StatusFound)
}

func (e *logoutEndpoint) askToSignOut(w http.ResponseWriter, r *http.Request, req *logoutRequest) {
	sealed, err := e.browsers.Keys.Seal(r.Context(), req.query, "logout "+e.browsers.ID(w, r))
	if err != nil {
		e.responses.refuse(w, r, err)
		return
	}
	page := signOutPage{Request: sealed}
	if req.client != nil {
		page.Client = req.client.Title()
	}
	e.pages.showSignOut(w, r, req, page)
}
