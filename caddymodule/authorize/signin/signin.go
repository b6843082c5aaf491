package signin

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/browser"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/factor"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/lockout"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// Config configures [New].
type Config struct {
	Responder *endpoint.Responder // responses and errors
	Renderer  *Renderer           // pages
	Store     store.Store         // store for used values
	Limiter   *lockout.Limiter    // throttling of wrong passwords and codes
	Accounts  *people.Accounts    // people who may sign in
	Factors   *factor.Factors     // second factors and passkeys
	Sessions  *session.Sessions   // browser sessions

	// Targets contains the pages that require a sign-in, by name, in addition to the account page.
	Targets map[string]Target

	// RestoreRequest recreates an app's request from its Query. If it returns no request, the error is shown to the person.
	RestoreRequest func(ctx context.Context, query string) (*Request, error)
}

// SignIn signs people in.
type SignIn struct {
	StepUp        *StepUp                 // requests additional factors from signed-in people
	OfflineAccess *OfflineAccessRequester // requests long-lived refresh tokens from providers
	Renewal       *Renewal                // renews sessions at providers that issue no refresh tokens

	// Endpoints contains the sign-in page and the start and callback of each identity provider, by path.
	Endpoints map[string]http.Handler

	accounts      *people.Accounts
	sessions      *session.Sessions
	renderer      *Renderer
	page          *signInPage
	pageRequests  *pageRequests
	rejections    *rejectionPage
	accountSwitch *accountSwitch
}

// New returns the SignIn for a configuration.
func New(c Config) *SignIn {
	pending := &pendingFactors{renderer: c.Renderer, store: c.Store, completed: store.NewPerUserLimit(maxCompletedSignIns, secondFactorLifetime)}
	stepUp := &StepUp{renderer: c.Renderer, pending: pending, factors: c.Factors, sessions: c.Sessions, accounts: c.Accounts}
	pageRequests := &pageRequests{renderer: c.Renderer, stepUp: stepUp, targets: c.Targets}
	requests := &requestRestorer{renderer: c.Renderer, pageRequests: pageRequests, restoreAppRequest: c.RestoreRequest}
	c.Renderer.restore = requests.restore
	start := &sessionStarter{trail: c.Renderer.Trail, sessions: c.Sessions}
	second := &secondFactor{
		renderer: c.Renderer, requests: requests, pending: pending, sessions: c.Sessions, limiter: c.Limiter, factors: c.Factors, start: start, accounts: c.Accounts,
	}
	switcher := &accountSwitch{renderer: c.Renderer, accounts: c.Accounts, sessions: c.Sessions, issuer: c.Responder.Issuer, logger: c.Responder.Logger}
	rejections := &rejectionPage{renderer: c.Renderer, requests: requests, accounts: c.Accounts, accountSwitch: switcher}
	page := &signInPage{
		renderer: c.Renderer, requests: requests, accounts: c.Accounts, limiter: c.Limiter, secondFactor: second,
		passkeys: c.Factors.Passkeys, start: start, accountSwitch: switcher,
	}
	offlineAccess := &OfflineAccessRequester{renderer: c.Renderer, accounts: c.Accounts, sessions: c.Sessions}
	s := &SignIn{StepUp: stepUp, OfflineAccess: offlineAccess, accounts: c.Accounts, sessions: c.Sessions, renderer: c.Renderer, page: page, pageRequests: pageRequests, rejections: rejections, accountSwitch: switcher}
	s.Endpoints = map[string]http.Handler{endpoint.Login: c.Responder.Handler(s.serve, http.MethodGet, http.MethodPost)}
	page.switchPerson, second.beginSignIn, second.beginAfterRefusal = s.switchPerson, s.Begin, s.beginAfterRefusal
	s.Renewal = &Renewal{renderer: c.Renderer, accounts: c.Accounts, sessions: c.Sessions, beginSignIn: s.Begin}
	federation := &federation{
		renderer: c.Renderer, requests: requests, accounts: c.Accounts, secondFactor: second, signInPage: page, rejections: rejections, offlineAccess: offlineAccess, renewal: s.Renewal,
		store: c.Store, failedIdentities: newIdentities(), usedStates: store.NewPerUserLimit(maxUsedStates, pendingLifetime),
	}
	for key, p := range c.Accounts.Providers {
		s.Endpoints[endpoint.Login+"/"+key] = c.Responder.Handler(p.Endpoint(federation.start), http.MethodGet)
		s.Endpoints[endpoint.Callback+key] = federation.callbackHandler(c.Responder, p)
	}
	return s
}

// serve handles the sign-in page. If there is no request of an app, people sign in for a page of the gateway.
func (s *SignIn) serve(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	switch {
	case q.Has("refused"):
		s.rejections.serve(w, r, oauth2.Parameters(q))
	case r.Method != http.MethodGet, q.Has("request"), q.Has("factor"):
		s.page.serve(w, r)
	case q.Has("restart"):
		s.restart(w, r, oauth2.Parameters(q))
	default:
		req, err := s.pageRequests.parse(r.URL.RawQuery)
		if !s.renderer.RejectIfError(w, r, req, err) {
			s.ContinueOrBegin(w, r, req)
		}
	}
}

// ContinueOrBegin continues a request with the browser's session, or begins a sign-in if the request needs one.
func (s *SignIn) ContinueOrBegin(w http.ResponseWriter, r *http.Request, req *Request) {
	signedIn, err := s.current(r, req)
	var otherUser *session.SignedInPerson
	if err == nil && signedIn == nil && req.ChooseAccount != nil {
		otherUser, err = s.findOtherUser(r, req)
	}
	switch {
	case err != nil:
		req.Purpose.Reject(w, r, err)
	case otherUser != nil: // shows the account page, because any site may have sent the browser here and must not be able to sign the user out
		req.ChooseAccount(w, r, otherUser)
	case signedIn == nil:
		s.Begin(w, r, req)
	case s.Renewal.RespondIfNeeded(w, r, req, signedIn):
	case req.ChooseAccount != nil && req.Parameters.HasPrompt("select_account"):
		req.ChooseAccount(w, r, signedIn)
	default:
		req.Purpose.Continue(w, r, signedIn)
	}
}

// current returns the signed-in person if the session satisfies the request, otherwise nil.
func (s *SignIn) current(r *http.Request, req *Request) (*session.SignedInPerson, error) {
	signedIn, err := s.sessions.CurrentPerson(r)
	if err != nil || signedIn == nil || !req.acceptsSession(s.accounts.SignInMethods(req.Destination.Providers), signedIn) {
		return nil, err
	}
	return signedIn, nil
}

// Begin redirects the browser to the sign-in page, or directly to the only identity provider.
func (s *SignIn) Begin(w http.ResponseWriter, r *http.Request, req *Request) {
	s.begin(w, r, req, nil, nil)
}

// findOtherUser returns the signed-in person of an identity provider if the request is for another person who would sign in at
// the same provider. Otherwise, it returns nil.
func (s *SignIn) findOtherUser(r *http.Request, req *Request) (*session.SignedInPerson, error) {
	if req.Parameters.HasPrompt("none") || req.Parameters.LoginHint == "" && req.Parameters.Subjects == nil {
		return nil, nil
	}
	current, err := s.sessions.CurrentPerson(r)
	if err != nil || current == nil || s.accounts.Providers[current.Provider] == nil || !req.permitsSession(s.accounts.SignInMethods(req.Destination.Providers), current) {
		return nil, err
	}
	if req.Parameters.PermitsSubject(current.User.ID) && (req.Parameters.LoginHint == "" || matchesHint(current, req.Parameters.LoginHint)) {
		return nil, nil
	}
	return current, nil
}

// BeginAgain starts a new sign-in of the signed-in person, regardless of login_hint.
func (s *SignIn) BeginAgain(w http.ResponseWriter, r *http.Request, req *Request) {
	s.begin(w, r, req, url.Values{"login_hint": {""}}, nil)
}

// BeginAsOther starts a sign-in of another person. The signed-in person is first signed out at the identity provider and at the
// gateway. If the provider has no end_session_endpoint, it is only asked to let the person select another account.
func (s *SignIn) BeginAsOther(w http.ResponseWriter, r *http.Request, req *Request, current *session.SignedInPerson) {
	hint := req.Parameters.LoginHint
	if matchesHint(current, hint) {
		hint = ""
	}
	req.byOtherPerson = true
	s.begin(w, r, req, url.Values{"login_hint": {hint}}, func(next string) (string, error) { return s.accountSwitch.endSession(w, r, next) })
}

// beginAfterRefusal starts a sign-in of another person after the person did not confirm the identity of a response. The browser is
// first signed out at the identity provider, as in [SignIn.BeginAsOther].
func (s *SignIn) beginAfterRefusal(w http.ResponseWriter, r *http.Request, req *Request, refused *session.Session) {
	req.byOtherPerson = true
	s.begin(w, r, req, url.Values{"login_hint": {""}}, func(next string) (string, error) {
		stored, err := s.sessions.FindByBrowser(r)
		p := s.accounts.Providers[refused.Provider]
		switch {
		case err != nil:
			return "", err
		case stored != nil && stored.User == refused.User:
			return s.accountSwitch.endSession(w, r, next)
		case p == nil:
			return next, nil
		}
		browser.EndProviderVisits(w, r, "")
		target, err := s.accountSwitch.logoutURL(w, r, p, refused.UpstreamIDToken, next)
		return cmp.Or(target, next), err
	})
}

// begin redirects the browser to the sign-in with further parameters. leave returns the URL to which the browser is redirected
// first, and which leads to next; nil: next.
func (s *SignIn) begin(w http.ResponseWriter, r *http.Request, req *Request, q url.Values, leave func(next string) (string, error)) {
	next, err := s.page.signInURL(w, r, req, q)
	if err == nil {
		err = req.MarkUsed(r.Context())
	}
	if err == nil && leave != nil {
		next, err = leave(next)
	}
	if err != nil {
		req.Purpose.Reject(w, r, err)
		return
	}
	endpoint.Redirect(w, http.StatusFound, next)
}

// EndSessionEndpoint returns the URL to which [SignIn.BeginAsOther] redirects first, for a form's CSP, or "" if there is none.
func (s *SignIn) EndSessionEndpoint(r *http.Request, current *session.SignedInPerson) (address string) {
	if p := s.accounts.Providers[current.Provider]; p != nil {
		address, _ = p.Client.EndSessionURL(r.Context(), "", "", "") // determined again when the button is pressed
	}
	return address
}

// sessionStarter starts sessions of authenticated people.
type sessionStarter struct {
	trail    *audit.Recorder
	sessions *session.Sessions
}

// startSession starts a session and continues the request.
func (s *sessionStarter) startSession(w http.ResponseWriter, r *http.Request, req *Request, user *people.User, newSession session.Session) {
	signedIn, err := s.sessions.Start(w, r, user, newSession)
	s.trail.Record(r.Context(), audit.Event{Kind: audit.KindSignIn, ClientID: req.Destination.ClientID, User: user.ID, Person: newSession.UpstreamPerson(), Err: err})
	if err != nil {
		req.Purpose.Reject(w, r, err)
		return
	}
	issuer := ""
	if p := s.sessions.Accounts.Providers[newSession.Provider]; p != nil {
		issuer = p.Issuer
	}
	browser.EndProviderVisits(w, r, issuer)
	req.FactorsRequested, req.justSignedIn, req.SignedIn = true, true, signedIn
	req.Purpose.Continue(w, r, signedIn)
}

// PageLifetime is the lifetime of a page. Pages contain no secrets, but a page left open should not
// redirect to an app that has abandoned its request.
const PageLifetime = time.Hour

// loginPurpose is the sealing purpose of requests for the sign-in page. The text is an encoded [sealedRequest].
const loginPurpose = "login"

// ErrPageExpired means that a page has expired or was opened in another browser.
var ErrPageExpired = oauth2.NewRestartError("This sign-in page has expired or was opened in another browser. Go back to the app and sign in again.")

// Errors of a page that was opened in another session.
var (
	errSignedOut    = oauth2.NewRestartError("You’re signed out. Sign in to continue.")
	errOtherSession = oauth2.NewRestartError("This page is from an earlier session. Check who is signed in, then start again.")
)

// CheckSession returns an error unless the signed-in person's session, if any, is the one with the sid.
func CheckSession(signedIn *session.SignedInPerson, sid string) error {
	switch {
	case signedIn == nil:
		return errSignedOut
	case signedIn.SID != sid:
		return errOtherSession
	}
	return nil
}

// ErrDenied means that the person denied the request.
var ErrDenied = &oauth2.Error{Code: "access_denied", Description: "the person denied the request"}

// Renderer shows the pages of requests and seals the state of their forms.
type Renderer struct {
	Site      *page.Site      // HTML pages
	Sealer    *browser.Sealer // seals form state for one browser
	Trail     *audit.Recorder // audit log for errors
	Issuers   []string        // issuers of identity providers, to which submitted forms may redirect
	Ancestors string          // origins that may frame the pages of requests
	Header    *SessionHeader  // signed-in person at the top of pages

	restore func(ctx context.Context, query string) (*Request, error) // recreates the request of a query
}

// Show shows a page for a request. Submitting its forms may redirect to the client, a provider, and the addresses in further.
func (f *Renderer) Show(w http.ResponseWriter, r *http.Request, req *Request, v page.View, further ...string) {
	if v.SignedIn = f.Header.For(w, r, req.SignedIn, req.Query); v.SignedIn == nil {
		v.SignedIn = f.Header.Current(w, r, req.Query)
	}
	v.Locales, v.Policy.FormAction, v.Policy.Ancestors = req.Parameters.UILocales, f.FormAction(append(further, req.Destination.Address)...), f.Ancestors
	f.Site.Show(w, r, v)
}

// FormAction returns the CSP sources for forms that may redirect to addresses or a provider.
func (f *Renderer) FormAction(addresses ...string) string {
	return page.FormActionSources(append(addresses, f.Issuers...)...)
}

// auditKind returns the kind of audit event for an endpoint.
func auditKind(path string) string {
	switch endpoint.Name(path) {
	case "login", "callback":
		return audit.KindSignIn
	case "logout":
		return audit.KindSignOut
	}
	return audit.KindAuthorization
}

// RejectIfError reports whether err is not nil. If so, it sends the error through the request's purpose, or shows it on a page
// if there is no request.
func (f *Renderer) RejectIfError(w http.ResponseWriter, r *http.Request, req *Request, err error) bool {
	switch {
	case err == nil:
		return false
	case req == nil:
		f.ShowError(w, r, err)
	default:
		req.Purpose.Reject(w, r, err)
	}
	return true
}

// RedirectToPage redirects the browser to a page with a sealed text. The text contains the request and the values to which the
// page is bound in addition to the browser.
func (f *Renderer) RedirectToPage(w http.ResponseWriter, r *http.Request, req *Request, path, purpose, text string) {
	sealed, err := f.Sealer.Seal(w, r, purpose, text)
	f.redirectSealed(w, r, req, http.StatusFound, path+"?request=", sealed, err)
}

// redirectSealed marks the request as used and redirects the browser to an address with the sealed text, or to the app with an
// error.
func (f *Renderer) redirectSealed(w http.ResponseWriter, r *http.Request, req *Request, status int, address, sealed string, err error) {
	if err == nil {
		err = req.MarkUsed(r.Context())
	}
	if err != nil {
		req.Purpose.Reject(w, r, err)
		return
	}
	endpoint.Redirect(w, status, address+url.QueryEscape(sealed))
}

// sealRequest seals a request for the sign-in page.
func (f *Renderer) sealRequest(w http.ResponseWriter, r *http.Request, req *Request) (string, error) {
	sid, err := f.Header.sid(r)
	if err != nil {
		return "", err
	}
	return f.Sealer.Seal(w, r, loginPurpose, sealedRequest{sid, req.byOtherPerson, req.Query}.encode())
}

// Unseal unseals a text that was sealed for a page and this browser. Otherwise, the error is [ErrPageExpired].
func (f *Renderer) Unseal(r *http.Request, purpose, sealed string) (string, error) {
	return f.Sealer.Unseal(r, purpose, sealed, PageLifetime, ErrPageExpired)
}

// UnsealOrRecover is like [Renderer.Unseal], but returns the text with the error if it has expired or was sealed for another
// browser. The text is "" if it cannot be recovered ([browser.Sealer.Recover]).
func (f *Renderer) UnsealOrRecover(r *http.Request, purpose, sealed string) (string, error) {
	text, err := f.Unseal(r, purpose, sealed)
	if err != nil {
		text = f.Sealer.Recover(r.Context(), purpose, sealed)
	}
	return text, err
}

// PageParameters parses a page's query or form.
func PageParameters(w http.ResponseWriter, r *http.Request) (p oauth2.Parameters, err error) {
	if r.Method == http.MethodPost {
		p, err = oauth2.ReadForm(w, r)
	} else {
		p, err = oauth2.ReadQuery(r.URL.RawQuery)
	}
	if err != nil {
		return nil, err
	}
	return p, p.Check("request", "factor", "switch")
}

// SingleUseValue describes how to mark a single-use value as used.
type SingleUseValue struct {
	Store     store.Store   // store that records the use
	Before    []*store.Call // calls executed together with Call
	Call      *store.Call   // call that marks the value as used; nil if nothing is stored
	UsedError error         // error if the value was already used
	After     func() error  // action in this process after the calls; may be nil
}

// use executes steps and marks the value as used in the last one.
func (o *SingleUseValue) use(ctx context.Context, steps ...store.Step) error {
	if o == nil {
		return store.Do(ctx, steps...)
	}
	if o.Call != nil {
		o.Call.Err = nil
		steps = append(slices.Clip(steps), store.NewStep(o.Store, append(slices.Clip(o.Before), o.Call)...))
	}
	if err := store.Do(ctx, steps...); err != nil {
		return o.convertError(err)
	}
	if o.After == nil {
		return nil
	}
	return o.After()
}

func (o *SingleUseValue) convertError(err error) error {
	if o.Call != nil && o.UsedError != nil && (errors.Is(o.Call.Err, store.ErrNotFound) || errors.Is(o.Call.Err, store.ErrExists)) {
		return o.UsedError
	}
	return err
}
