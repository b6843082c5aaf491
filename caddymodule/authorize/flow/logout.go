package flow

import (
	"cmp"
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
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/signin"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/token"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// logoutRequest is a validated logout request (OpenID Connect RP-Initiated Logout 1.0 §2).
type logoutRequest struct {
	client      *client.Client // nil if the request does not identify a client
	subject     string         // from id_token_hint, or ""
	sid         string         // session id from id_token_hint, or ""
	redirectURI string
	state       string
	locales     string
	query       string
}

// destination returns the URL of the final redirect, or "".
func (l *logoutRequest) destination() string {
	if l.redirectURI == "" || l.state == "" {
		return l.redirectURI
	}
	return appendQuery(l.redirectURI, responseParameters{{"state", l.state}})
}

// logoutEndpoint implements the end_session_endpoint.
type logoutEndpoint struct {
	renderer *signin.Renderer
	issuer   string
	clients  *client.Registry
	accounts *people.Accounts
	sessions *session.Sessions
	verifier *token.Verifier
	logger   *slog.Logger
}

// serve ends the session immediately if the request has an ID token of the session's user. Other requests need confirmation,
// because they may come from a link on another site.
//
// A request without a session cookie, e.g. from a client's server, ends the session that id_token_hint identifies. A stolen ID
// token permits nothing else.
func (e *logoutEndpoint) serve(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		e.servePOST(w, r)
		return
	}
	req, err := e.check(r, r.URL.RawQuery)
	var confirmed bool
	if err == nil {
		confirmed, err = e.skipsConfirmation(r, req)
	}
	switch {
	case err != nil:
		e.renderer.ShowError(w, r, err)
	case confirmed:
		e.signOut(w, r, req)
	default:
		e.confirm(w, r, req)
	}
}

// skipsConfirmation reports whether the request needs no confirmation. This is the case if there is no session and no open
// redirect, or if the hint belongs to the session's user. If the session cannot be read, the hint must identify that session.
func (e *logoutEndpoint) skipsConfirmation(r *http.Request, req *logoutRequest) (bool, error) {
	own, err := e.sessions.FindEndable(r)
	isSafe := req.redirectURI == "" || !isOpenRedirect(r, req.client)
	if own == nil || err != nil {
		return isSafe, err
	}
	if own.IsUnreadable() {
		return req.sid == own.SID, nil
	}
	user, err := e.sessions.User(r.Context(), own)
	if user == nil || err != nil {
		return isSafe, err
	}
	audit.RecordAuthenticated(r.Context())
	return req.subject == user.ID, nil
}

// servePOST handles the page's form. A client's POST is redirected to GET, as at the authorization
// endpoint, so that the browser sends the session cookie.
func (e *logoutEndpoint) servePOST(w http.ResponseWriter, r *http.Request) {
	p, err := oauth2.ReadForm(w, r)
	if err == nil && p.Get("request") == "" {
		endpoint.Redirect(w, http.StatusSeeOther, endpoint.Logout+"?"+url.Values(p).Encode())
		return
	}
	var text string
	if err == nil {
		text, err = e.renderer.Unseal(r, "logout", p.Get("request"))
	}
	sid, query, _ := strings.Cut(text, " ")
	var req *logoutRequest
	if err == nil {
		req, err = e.check(r, query)
	}
	var own *session.Session
	if err == nil {
		own, err = e.sessions.FindEndable(r)
	}
	switch {
	case err != nil:
		e.renderer.ShowError(w, r, err)
	case own != nil && own.SID != sid: // another person has signed in since the page was shown
		e.confirm(w, r, req)
	default:
		e.signOut(w, r, req)
	}
}

func (e *logoutEndpoint) check(r *http.Request, query string) (*logoutRequest, error) {
	p, err := oauth2.ReadCheckedQuery(query)
	e.clients.RecordClient(r.Context(), p.Get("client_id"))
	if err != nil {
		return nil, err
	}
	l := &logoutRequest{query: query, state: p.Get("state"), locales: p.Get("ui_locales")}
	if l.client, err = e.clients.Find(r.Context(), p.Get("client_id")); err != nil {
		return nil, err
	}
	if err := e.readHint(r, l, p); err != nil {
		return nil, err
	}
	l.redirectURI = p.Get("post_logout_redirect_uri")
	if l.redirectURI != "" && (l.client == nil || !slices.Contains(l.client.PostLogoutRedirectURIs, l.redirectURI)) {
		if l.client != nil {
			audit.RecordUnregisteredRedirect(r.Context(), l.redirectURI, l.client.PostLogoutRedirectURIs)
		}
		return nil, oauth2.InvalidRequest("The post_logout_redirect_uri does not match a registered URI of the client.")
	}
	return l, nil
}

// readHint reads client, subject and session from an ID token of this issuer, even if the token has expired (RP-Initiated
// Logout §4).
func (e *logoutEndpoint) readHint(r *http.Request, l *logoutRequest, p oauth2.Parameters) error {
	raw := p.Get("id_token_hint")
	if raw == "" {
		return nil
	}
	claims, err := e.verifier.VerifyIDTokenHint(r.Context(), raw)
	requested := p.Get("client_id")
	switch {
	case errors.Is(err, keyring.ErrUnknownKey): // the key may be retired, so confirmation is required as without a hint
		return nil
	case errors.Is(err, token.ErrInvalidHint), err == nil && requested != "" && requested != claims.Audience:
		return oauth2.InvalidRequest("The id_token_hint is not an ID token issued by this server to this client.")
	case err != nil:
		return err
	}
	l.subject = claims.Subject
	e.clients.RecordClient(r.Context(), claims.Audience)
	l.client, err = e.clients.Find(r.Context(), claims.Audience)
	if l.client != nil { // a hint issued to a deleted client does not end a session
		l.sid = claims.Session
	}
	return err
}

// hintedSession returns the session that the hint identifies, or nil.
func (e *logoutEndpoint) hintedSession(ctx context.Context, l *logoutRequest) (*session.Session, error) {
	if l.sid == "" {
		return nil, nil
	}
	return e.sessions.FindByIDToken(ctx, l.sid, l.subject)
}

// signOut ends the browser's session and the hinted session. If the browser's session, or the session that it replaced, started
// at a provider with an end_session_endpoint, the browser is redirected there. A browser without the session is not redirected,
// because the URL contains the provider's ID token.
func (e *logoutEndpoint) signOut(w http.ResponseWriter, r *http.Request, req *logoutRequest) {
	stored, err := e.sessions.FindEndable(r)
	var target string
	if err == nil && stored != nil {
		target, err = e.endSessionURL(w, r, stored, req.destination())
	}
	if err == nil {
		err = e.endSessions(r.Context(), stored, req)
	}
	if err != nil {
		e.renderer.ShowError(w, r, err)
		return
	}
	browser.RemoveSession(w, r)
	e.finish(w, r, cmp.Or(target, req.destination()), req.locales)
}

// endSessions ends the browser's session and the hinted session. They may be the same session or nil. The browser's session
// ends last, so that the browser can retry after an error.
func (e *logoutEndpoint) endSessions(ctx context.Context, own *session.Session, req *logoutRequest) error {
	var hinted *session.Session
	var err error
	switch {
	case own == nil || own.SID != req.sid:
		hinted, err = e.hintedSession(ctx, req)
	case own.IsUnreadable():
		own.User = req.subject
	}
	if err == nil && hinted != nil {
		audit.RecordSessionEndReason(ctx, "signed out by a logout request with id_token_hint")
		err = e.sessions.End(ctx, hinted)
	}
	if err != nil || own == nil {
		return err
	}
	audit.RecordSessionEndReason(ctx, "signed out in the browser")
	return e.sessions.End(ctx, own)
}

// endSessionURL returns the provider's logout URL, or "". Logout at the gateway works even if the
// provider is unreachable.
func (e *logoutEndpoint) endSessionURL(w http.ResponseWriter, r *http.Request, stored *session.Session, destination string) (string, error) {
	p := e.accounts.Providers[stored.LogoutProvider()]
	if p == nil {
		return "", nil
	}
	state, err := e.renderer.SealSignOut(w, r, p, destination)
	if err != nil {
		return "", err
	}
	target, err := p.Client.EndSessionURL(r.Context(), stored.UpstreamIDToken, e.issuer+endpoint.Logout+"/"+p.Key, state)
	if err != nil {
		e.logger.WarnContext(r.Context(), "provider logout skipped: logout URL unavailable", "idp", p.Key, "error", err)
	}
	return target, nil
}

// callback receives the browser after logout at the provider. If the request is repeated after another sign-in, it shows the
// confirmation page, because the page "signed out" would be false.
func (e *logoutEndpoint) callback(w http.ResponseWriter, r *http.Request, p *people.Provider) {
	destination, mark, _ := e.renderer.UnsealSignOut(r, r.URL.Query().Get("state")) // on error, the session has ended regardless
	own, err := e.sessions.FindEndable(r)
	if own == nil && err == nil {
		forgetVisit(w, r, p, mark)
	}
	if destination == "" && (own != nil || err != nil) {
		e.confirm(w, r, new(logoutRequest))
		return
	}
	e.finish(w, r, destination, "")
}

// forgetVisit deletes the record that the browser may be signed in at a provider, after the sign-out from the sign-in with a mark. If
// the provider reports auth_time, the record is kept, because the person may have declined to sign out there: a later sign-in then
// has a later auth_time.
func forgetVisit(w http.ResponseWriter, r *http.Request, p *people.Provider, mark string) {
	visit := browser.FindProviderVisit(r, p.Issuer)
	if visit != nil && mark != "" && visit.Mark == mark && visit.Stage == browser.VisitSignedOut && visit.SignedInAt.IsZero() {
		browser.RemoveProviderVisit(w, p.Issuer)
	}
}

func (e *logoutEndpoint) finish(w http.ResponseWriter, r *http.Request, destination, locales string) {
	if destination == "" {
		e.renderer.Site.Show(w, r, page.View{Template: "message", Locales: locales, Data: page.Message{
			Title: page.T("You’re signed out"), Text: page.T("You can close this page."),
			Next: &page.Link{Address: "/", Text: page.T("Go to %s", e.renderer.Site.Name())},
		}})
		return
	}
	endpoint.Redirect(w, http.StatusFound, destination)
}

// confirm shows the page that asks whether to sign out. The page is bound to the session.
func (e *logoutEndpoint) confirm(w http.ResponseWriter, r *http.Request, req *logoutRequest) {
	sid := ""
	own, err := e.sessions.FindEndable(r)
	if own != nil {
		sid = own.SID
	}
	var sealed string
	if err == nil {
		sealed, err = e.renderer.Sealer.Seal(w, r, "logout", sid+" "+req.query)
	}
	if err != nil {
		e.renderer.ShowError(w, r, err)
		return
	}
	data := page.SignOut{Request: sealed}
	if req.client != nil {
		data.Client = req.client.DisplayName()
	}
	e.renderer.Site.Show(w, r, page.View{
		SignedIn: e.renderer.Header.Current(w, r, signin.PageQuery(nil)),
		Template: "signout", Locales: req.locales, Policy: page.Policy{FormAction: e.renderer.FormAction(req.redirectURI)}, Data: data,
	})
}
