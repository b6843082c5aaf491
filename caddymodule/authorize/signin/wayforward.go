package signin

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/browser"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// Sealing purposes of links and buttons that start a request again.
const (
	restartPurpose = "restart" // text: query of the request
	switchPurpose  = "switch"  // text: sid of the session, a space, and the query of the request
)

// restartableError is an error after which the person can start the request with the given query again.
type restartableError struct {
	error
	query string
}

// Unwrap returns the error without the query.
func (e *restartableError) Unwrap() error { return e.error }

// WithRestart adds the query of a request to an error, so that [Renderer.ShowError] can offer to start the request again. The
// error is unchanged if the query is "".
func WithRestart(err error, query string) error {
	if err == nil || query == "" {
		return err
	}
	return &restartableError{err, query}
}

// recoverQuery returns the query in sealed JSON of any age and browser, or "".
func recoverQuery(sealer *browser.Sealer, r *http.Request, purpose, sealed string) string {
	var stale struct {
		Query string `json:"query"`
	}
	if json.Unmarshal([]byte(sealer.Recover(r.Context(), purpose, sealed)), &stale) != nil {
		return ""
	}
	return stale.Query
}

// maxLastRequest is the maximum size of [browser.LastRequestCookie] in bytes, because browsers send it with every request.
const maxLastRequest = 2000

// rememberRequest stores the query of a request that continues at a provider. The provider's response may come twice or after the
// end of the sign-in, when its own cookie is gone.
func rememberRequest(sealer *browser.Sealer, w http.ResponseWriter, r *http.Request, query string) error {
	sealed, err := sealer.Seal(w, r, browser.LastRequestCookie, query)
	if err != nil || len(sealed) > maxLastRequest {
		return err
	}
	c := browser.NewCookie(browser.LastRequestCookie, sealed)
	c.MaxAge = int(PageLifetime.Seconds())
	http.SetCookie(w, c)
	return nil
}

// lastRequest returns the query stored by rememberRequest, or "".
func lastRequest(sealer *browser.Sealer, r *http.Request) string {
	c, err := r.Cookie(browser.LastRequestCookie)
	if err != nil {
		return ""
	}
	return sealer.Recover(r.Context(), browser.LastRequestCookie, c.Value)
}

// SessionHeader shows the signed-in person at the top of pages, with the button "Not you?". The button signs the person out and
// continues with the sign-in of another person.
type SessionHeader struct {
	Sealer   *browser.Sealer   // seals the button for the session
	Sessions *session.Sessions // browser sessions
}

// For returns the header for a session. The sign-in of another person continues the request with the query. If the button cannot
// be sealed, the header has only the name.
func (h *SessionHeader) For(w http.ResponseWriter, r *http.Request, signedIn *session.SignedInPerson, query string) *page.SignedIn {
	sealed, err := h.Sealer.Seal(w, r, switchPurpose, signedIn.SID+" "+query)
	if err != nil {
		sealed = ""
	}
	return &page.SignedIn{Person: page.Person(signedIn.User.Label()), Provider: signedIn.ProviderName, Switch: sealed}
}

// Current is like [SessionHeader.For] for the browser's session. It returns nil if there is none or if it cannot be read.
func (h *SessionHeader) Current(w http.ResponseWriter, r *http.Request, query string) *page.SignedIn {
	signedIn, err := h.Sessions.CurrentPerson(r)
	if signedIn == nil || err != nil {
		return nil
	}
	return h.For(w, r, signedIn, query)
}

// PageQuery returns the query of a sign-in for a page of the gateway, for [SessionHeader]. The parameters are those of the
// sign-in page, such as "to".
func PageQuery(parameters url.Values) string { return pageQueryPrefix + parameters.Encode() }

// ShowError shows an error on a page if no redirect URI can receive it. The page has a link to continue with. It reflects no
// input except a request that the gateway sealed.
func (f *Renderer) ShowError(w http.ResponseWriter, r *http.Request, err error) {
	f.Trail.RecordRejection(r, audit.Event{Kind: auditKind(r.URL.Path), Err: err})
	query := ""
	if restartable, ok := errors.AsType[*restartableError](err); ok {
		query = restartable.query
	}
	message := errorMessage(r, err, query)
	message.Next, message.Back = f.wayForward(w, r, err, query)
	f.Site.Show(w, r, page.View{
		Template: "message", Status: oauth2.AsError(err).HTTPStatus(), Data: message, SignedIn: f.Header.Current(w, r, query),
		Policy: page.Policy{Ancestors: f.Ancestors, FormAction: f.FormAction()},
	})
}

// errorMessage returns the message for an error, without links.
func errorMessage(r *http.Request, err error, query string) page.Message {
	var own *oauth2.Error
	e := oauth2.AsError(err)
	switch {
	case e.IsUserCorrectable && query != "" && !browser.HasID(r):
		return page.Message{Title: page.T("Start again"), Text: page.T("Your browser sent no cookies. Allow cookies for this site, or use the browser in which you opened the app.")}
	case e.IsUserCorrectable:
		return page.Message{Title: page.T("Start again"), Text: page.ErrorText(e)}
	case !errors.As(err, &own):
		return page.Message{Title: page.T("Something went wrong"), Text: page.T("This site has a temporary problem. Try again in a minute.")}
	}
	return page.Message{
		Title: page.T("This link doesn’t work"), Detail: e.Description,
		Text: page.T("The app sent an invalid request. Go back to the app and try again. If you see this page again, send these details to the app’s developer:"),
	}
}

// wayForward returns the links of an error page: the next step and, if an app sent the request, the way back to the app. A
// request is started again through a sealed link, because its parameters may have been pushed or signed by the app.
func (f *Renderer) wayForward(w http.ResponseWriter, r *http.Request, err error, query string) (next, back *page.Link) {
	switch {
	case query != "":
		return f.restartLinks(w, r, query)
	case oauth2.AsError(err).HTTPStatus() >= http.StatusInternalServerError && r.Method == http.MethodGet:
		return &page.Link{Address: r.URL.RequestURI(), Text: page.T("Try again")}, nil
	case strings.HasPrefix(r.URL.Path, endpoint.Logout):
		return &page.Link{Address: endpoint.Logout, Text: page.T("Sign out here")}, nil
	}
	return &page.Link{Address: endpoint.Account, Text: page.T("Open your account")}, nil
}

// restartLinks returns a link that starts a request again and a link that returns to its app with access_denied.
func (f *Renderer) restartLinks(w http.ResponseWriter, r *http.Request, query string) (next, back *page.Link) {
	sealed, err := f.Sealer.Seal(w, r, restartPurpose, query)
	if err != nil {
		return &page.Link{Address: endpoint.Account, Text: page.T("Open your account")}, nil
	}
	address := endpoint.Login + "?restart=" + url.QueryEscape(sealed)
	next = &page.Link{Address: address, Text: page.T("Start again")}
	if req, err := f.restore(r.Context(), query); err == nil && req.Destination.ClientID != "" {
		next.Text = page.T("Sign in to %s again", req.Destination.Title)
		back = &page.Link{Address: address + "&decision=deny", Text: page.T("Back to %s", req.Destination.Title)}
	}
	return next, back
}

// restart continues a request from the link of an error page, as if the app had sent the request again.
func (s *SignIn) restart(w http.ResponseWriter, r *http.Request, p oauth2.Parameters) {
	query, err := s.renderer.Unseal(r, restartPurpose, p.Get("restart"))
	if err != nil {
		s.renderer.ShowError(w, r, WithRestart(err, s.renderer.Sealer.Recover(r.Context(), restartPurpose, p.Get("restart"))))
		return
	}
	req, err := s.renderer.restore(r.Context(), query)
	switch {
	case s.renderer.RejectIfError(w, r, req, err):
	case p.Get("decision") == "deny":
		req.Purpose.Reject(w, r, ErrDenied)
	default:
		req.SessionRenewed = true
		s.continueOrBegin(w, r, req)
	}
}

// switchPerson handles the button "Not you?". It signs the person out and continues the request of the page with a new sign-in.
// The button works only in the session in which it was shown.
func (s *SignIn) switchPerson(w http.ResponseWriter, r *http.Request, sealed string) {
	text, err := s.renderer.Unseal(r, switchPurpose, sealed)
	if err != nil {
		text = s.renderer.Sealer.Recover(r.Context(), switchPurpose, sealed)
	}
	sid, query, _ := strings.Cut(text, " ")
	var current *session.SignedInPerson
	if err == nil {
		current, err = s.sessions.CurrentPerson(r)
	}
	if err == nil {
		err = CheckSession(current, sid)
	}
	if err != nil {
		s.renderer.ShowError(w, r, WithRestart(err, query))
		return
	}
	req, err := s.renderer.restore(r.Context(), query)
	if err != nil { // the request has become invalid, e.g. because its launch was used
		_, endErr := s.accountSwitch.endSession(w, r, "")
		s.renderer.RejectIfError(w, r, req, errors.Join(err, endErr))
		return
	}
	s.BeginAsOther(w, r, req, current)
}
