package signin

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/browser"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// Sealing purposes of links and buttons that start a request again.
const (
	restartPurpose = "restart" // text: encoded sealedRequest
	switchPurpose  = "switch"  // text: sid of the session, a space, and the query of the request
)

// sealedRequest is the content of the sealed request of a sign-in page, or of a link that starts a request again.
type sealedRequest struct {
	sid           string // session in which the page was opened; "" without a session
	byOtherPerson bool   // whether an identity provider must not sign in the previous person again
	query         string // query of the request
}

// encode returns the text to seal. [decodeRequest] is the inverse.
func (a sealedRequest) encode() string {
	return a.sid + " " + strconv.FormatBool(a.byOtherPerson) + " " + a.query
}

func decodeRequest(text string) sealedRequest {
	sid, text, _ := strings.Cut(text, " ")
	other, query, _ := strings.Cut(text, " ")
	return sealedRequest{sid, other == "true", query}
}

// restartableError is an error after which the person can start a request again.
type restartableError struct {
	err     error
	request sealedRequest
}

func (e *restartableError) Error() string { return e.err.Error() }

// Unwrap returns the error without the request.
func (e *restartableError) Unwrap() error { return e.err }

// WithRestart adds the query of a request to an error, so that [Renderer.ShowError] can offer to start the request again. The
// error is unchanged if the query is "". If the page's session has ended, e.g. by "Not you?", the request starts again as another
// person's.
func WithRestart(err error, query string) error {
	return withRestart(err, sealedRequest{byOtherPerson: errors.Is(err, errSignedOut), query: query})
}

func withRestart(err error, again sealedRequest) error {
	if err == nil || again.query == "" {
		return err
	}
	return &restartableError{err, again}
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

// rememberRequest stores a request that continues at a provider. The provider's response may come twice or after the end of the
// sign-in, when its own cookie is gone. The request is bound to the state, because another tab may start a sign-in for another app.
func rememberRequest(sealer *browser.Sealer, w http.ResponseWriter, r *http.Request, state string, again sealedRequest) error {
	sealed, err := sealer.Seal(w, r, browser.LastRequestCookie, pendingCookieName(state)+" "+again.encode())
	if err != nil || len(sealed) > maxLastRequest {
		return err
	}
	c := browser.NewCookie(browser.LastRequestCookie, sealed)
	c.MaxAge = int(PageLifetime.Seconds())
	http.SetCookie(w, c)
	return nil
}

// lastRequest returns the request stored by rememberRequest for the state, or the zero value.
func lastRequest(sealer *browser.Sealer, r *http.Request, state string) sealedRequest {
	c, err := r.Cookie(browser.LastRequestCookie)
	if err != nil {
		return sealedRequest{}
	}
	name, text, _ := strings.Cut(sealer.Recover(r.Context(), browser.LastRequestCookie, c.Value), " ")
	if name != pendingCookieName(state) {
		return sealedRequest{}
	}
	return decodeRequest(text)
}

// SealSignOut returns the state of a logout request to a provider, which leads back to next ("" for none).
func (f *Renderer) SealSignOut(w http.ResponseWriter, r *http.Request, p *people.Provider, next string) (string, error) {
	return f.Sealer.Seal(w, r, "signed out", browser.VisitMark(r, p.Issuer)+" "+next)
}

// UnsealSignOut returns the values of [Renderer.SealSignOut]: the URL to continue with, and the mark of the provider visit.
func (f *Renderer) UnsealSignOut(r *http.Request, state string) (next, mark string, err error) {
	text, err := f.Unseal(r, "signed out", state)
	mark, next, _ = strings.Cut(text, " ")
	return next, mark, err
}

// SessionHeader shows the signed-in person at the top of pages, with the button "Not you?". The button signs the person out and
// continues with the sign-in of another person.
type SessionHeader struct {
	Sealer   *browser.Sealer   // seals the button for the session
	Sessions *session.Sessions // browser sessions
}

// For returns the header for a session, or nil if there is none. The sign-in of another person continues the request with the
// query. If the button cannot be sealed, the header has only the name.
func (h *SessionHeader) For(w http.ResponseWriter, r *http.Request, signedIn *session.SignedInPerson, query string) *page.SignedIn {
	if signedIn == nil {
		return nil
	}
	sealed, err := h.Sealer.Seal(w, r, switchPurpose, signedIn.SID+" "+query)
	if err != nil {
		sealed = ""
	}
	return &page.SignedIn{Person: page.Person(signedIn.User.Label()), Provider: signedIn.ProviderName, Switch: sealed}
}

// Current is like [SessionHeader.For] for the browser's session. It returns nil if there is none or if it cannot be read.
func (h *SessionHeader) Current(w http.ResponseWriter, r *http.Request, query string) *page.SignedIn {
	return h.For(w, r, h.person(r), query)
}

// person returns the person of the browser's session, or nil if there is none or if it cannot be read.
func (h *SessionHeader) person(r *http.Request) *session.SignedInPerson {
	signedIn, err := h.Sessions.CurrentPerson(r)
	if err != nil {
		return nil
	}
	return signedIn
}

// sid returns the sid of the browser's session, or "" if there is none.
func (h *SessionHeader) sid(r *http.Request) (string, error) {
	stored, err := h.Sessions.FindByBrowser(r)
	if stored == nil || err != nil {
		return "", err
	}
	return stored.SID, nil
}

// PageQuery returns the query of a sign-in for a page of the gateway, for [SessionHeader]. It accepts the parameters of the
// sign-in page, such as "to".
func PageQuery(parameters url.Values) string { return pageQueryPrefix + parameters.Encode() }

// ShowError shows an error on a page if no redirect URI can receive it. The page has a link to continue with. It reflects no
// input except a request that the gateway sealed.
func (f *Renderer) ShowError(w http.ResponseWriter, r *http.Request, err error) {
	f.Trail.RecordRejection(r, audit.Event{Kind: auditKind(r.URL.Path), Err: err})
	var again sealedRequest
	if restartable, ok := errors.AsType[*restartableError](err); ok {
		again = restartable.request
	}
	signedIn := f.Header.person(r)
	message := errorMessage(r, err, signedIn, again.query)
	var address string
	message.Next, message.Back, address = f.wayForward(w, r, err, signedIn, again)
	f.Site.Show(w, r, page.View{
		Template: "message", Status: oauth2.AsError(err).HTTPStatus(), Data: message, SignedIn: f.Header.For(w, r, signedIn, again.query),
		Policy: page.Policy{Ancestors: f.Ancestors, FormAction: f.FormAction(address)},
	})
}

// errorMessage returns the message for an error, without links.
func errorMessage(r *http.Request, err error, signedIn *session.SignedInPerson, query string) page.Message {
	var own *oauth2.Error
	e := oauth2.AsError(err)
	switch {
	case e.IsUserCorrectable && query != "" && signedIn == nil && !browser.HasID(r):
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
// request is started again through a sealed link, because its parameters may have been pushed or signed by the app. address is
// the app's URL, to which "Not you?" may redirect.
func (f *Renderer) wayForward(w http.ResponseWriter, r *http.Request, err error, signedIn *session.SignedInPerson, again sealedRequest) (next, back *page.Link, address string) {
	switch {
	case again.query != "":
		return f.restartLinks(w, r, signedIn, again)
	case oauth2.AsError(err).HTTPStatus() >= http.StatusInternalServerError && r.Method == http.MethodGet:
		return &page.Link{Address: r.URL.RequestURI(), Text: page.T("Try again")}, nil, ""
	case strings.HasPrefix(r.URL.Path, endpoint.Logout):
		return &page.Link{Address: endpoint.Logout, Text: page.T("Sign out here")}, nil, ""
	}
	return &page.Link{Address: endpoint.Account, Text: page.T("Open your account")}, nil, ""
}

// restartLinks returns a link that starts a request again, a link that returns to its app with access_denied, and the app's URL.
// The first link works only for the person who is named on the page.
func (f *Renderer) restartLinks(w http.ResponseWriter, r *http.Request, signedIn *session.SignedInPerson, again sealedRequest) (next, back *page.Link, address string) {
	if again.sid = ""; signedIn != nil {
		again.sid = signedIn.SID
	}
	link, err := f.restartURL(w, r, again)
	if err != nil {
		return &page.Link{Address: endpoint.Account, Text: page.T("Open your account")}, nil, ""
	}
	next = &page.Link{Address: link, Text: page.T("Start again")}
	req, _ := f.restore(r.Context(), again.query) // an invalid request is returned to the app, too
	if req == nil || req.Destination.ClientID == "" {
		return next, nil, ""
	}
	next.Text = page.T("Sign in to %s again", req.Destination.Title)
	return next, &page.Link{Address: link + "&decision=deny", Text: page.T("Back to %s", req.Destination.Title)}, req.Destination.Address
}

func (f *Renderer) restartURL(w http.ResponseWriter, r *http.Request, again sealedRequest) (string, error) {
	sealed, err := f.Sealer.Seal(w, r, restartPurpose, again.encode())
	return endpoint.Login + "?restart=" + url.QueryEscape(sealed), err
}

// restart continues a request from the link of an error page, as if the app had sent the request again. If another person has
// signed in since, it first shows an error page with their name.
func (s *SignIn) restart(w http.ResponseWriter, r *http.Request, p oauth2.Parameters) {
	text, err := s.renderer.UnsealOrRecover(r, restartPurpose, p.Get("restart"))
	again, isDenied := decodeRequest(text), p.Get("decision") == "deny"
	var signedIn *session.SignedInPerson
	if err == nil {
		signedIn, err = s.sessions.CurrentPerson(r)
	}
	if err == nil && !isDenied && signedIn != nil && signedIn.SID != again.sid {
		err = errOtherSession
	}
	if err != nil {
		s.renderer.ShowError(w, r, withRestart(err, again))
		return
	}
	req, err := s.renderer.restore(r.Context(), again.query)
	switch {
	case s.renderer.RejectIfError(w, r, req, err):
	case isDenied:
		req.Purpose.Reject(w, r, ErrDenied)
	case signedIn == nil && (again.byOtherPerson || again.sid != ""):
		req.byOtherPerson = true
		s.Begin(w, r, req)
	case signedIn != nil && again.byOtherPerson && req.ChooseAccount != nil:
		req.ChooseAccount(w, r, signedIn)
	default:
		s.ContinueOrBegin(w, r, req)
	}
}

// switchPerson handles the button "Not you?". It signs the person out and continues the request of the page with a new sign-in.
// The button works only in the session in which it was shown.
func (s *SignIn) switchPerson(w http.ResponseWriter, r *http.Request, sealed string) {
	text, err := s.renderer.UnsealOrRecover(r, switchPurpose, sealed)
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
		s.leaveInvalidRequest(w, r, query)
		return
	}
	s.BeginAsOther(w, r, req, current)
}

// leaveInvalidRequest signs the person out, also at the identity provider. Then the link that starts the request again reports
// its error.
func (s *SignIn) leaveInvalidRequest(w http.ResponseWriter, r *http.Request, query string) {
	next, err := s.renderer.restartURL(w, r, sealedRequest{query: query})
	if err == nil {
		next, err = s.accountSwitch.endSession(w, r, next)
	}
	if err != nil {
		s.renderer.ShowError(w, r, err)
		return
	}
	endpoint.Redirect(w, http.StatusFound, next)
}
