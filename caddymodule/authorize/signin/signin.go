package signin

import (
	"context"
	"net/http"
	"net/url"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/factor"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/lockout"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// Config is what [New] needs.
type Config struct {
	Responder *endpoint.Responder // writes answers and errors
	Frame     *Frame              // shows pages
	Store     store.Store         // remembers what was used
	Limiter   *lockout.Limiter    // counts wrong passwords and codes
	Accounts  *people.Accounts    // who may sign in
	Factors   *factor.Factors     // what else people prove themselves by
	Sessions  *session.Sessions   // who is signed in

	// Targets are the pages that require a sign-in, by name, in addition to the account page.
	Targets map[string]Target

	// Reopen makes an app's request again of its Query. If it returns none, its error is for the
	// person.
	Reopen func(ctx context.Context, query string) (*Request, error)
}

// SignIn signs people in.
type SignIn struct {
	StepUp  *StepUp  // asks people who are signed in for a further factor
	Lasting *Lasting // asks providers for what outlives the person's session there
	Renewal *Renewal // confirms sessions with providers that issue no refresh tokens

	// Endpoints are the sign-in page, and where each identity provider is begun and answers, by path.
	Endpoints map[string]http.Handler

	accounts *people.Accounts
	sessions *session.Sessions
	page     *signInPage
	visits   *visits
	refusals *refusals
	other    *accountSwitch
}

// New returns the sign-in of a configuration.
func New(c Config) *SignIn {
	pending := &pendingFactors{frame: c.Frame, store: c.Store, used: store.NewLatest(maxUsedFactors, secondFactorLifetime)}
	stepUp := &StepUp{frame: c.Frame, pending: pending, factors: c.Factors, sessions: c.Sessions, accounts: c.Accounts}
	visits := &visits{frame: c.Frame, stepUp: stepUp, targets: c.Targets}
	requests := &reopener{frame: c.Frame, visits: visits, apps: c.Reopen}
	start := &starter{trail: c.Frame.Trail, sessions: c.Sessions}
	second := &secondFactor{
		frame: c.Frame, requests: requests, pending: pending, sessions: c.Sessions, limiter: c.Limiter, factors: c.Factors, start: start,
	}
	other := &accountSwitch{frame: c.Frame, accounts: c.Accounts, sessions: c.Sessions, issuer: c.Responder.Issuer, logger: c.Responder.Logger}
	refusals := &refusals{frame: c.Frame, requests: requests, accounts: c.Accounts, other: other}
	page := &signInPage{
		frame: c.Frame, requests: requests, accounts: c.Accounts, limiter: c.Limiter, secondFactor: second,
		passkeys: &passkeySignIn{accounts: c.Accounts, passkeys: c.Factors.Passkeys}, start: start, other: other,
	}
	lasting := &Lasting{frame: c.Frame, accounts: c.Accounts, sessions: c.Sessions}
	s := &SignIn{StepUp: stepUp, Lasting: lasting, accounts: c.Accounts, sessions: c.Sessions, page: page, visits: visits, refusals: refusals, other: other}
	s.Endpoints = map[string]http.Handler{endpoint.Login: c.Responder.Handler(s.serve, http.MethodGet, http.MethodPost)}
	s.Renewal = &Renewal{frame: c.Frame, accounts: c.Accounts, sessions: c.Sessions, begin: s.Begin}
	federation := &federation{
		frame: c.Frame, requests: requests, accounts: c.Accounts, secondFactor: second, signInPage: page, refusals: refusals, lasting: lasting, renewal: s.Renewal,
		store: c.Store, identities: newIdentities(), states: store.NewLatest(maxStates, pendingLifetime),
	}
	for key, p := range c.Accounts.Providers {
		s.Endpoints[endpoint.Login+"/"+key] = c.Responder.Handler(p.Endpoint(federation.start), http.MethodGet)
		s.Endpoints[endpoint.Callback+key] = c.Responder.Handler(p.Endpoint(federation.callback), http.MethodGet)
	}
	return s
}

// serve is the sign-in page. Without a request of an app's, people sign in for a page of the
// gateway.
func (s *SignIn) serve(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if q.Has("refused") {
		s.refusals.serve(w, r, oauth2.Parameters(q))
		return
	}
	if r.Method != http.MethodGet || q.Has("request") || q.Has("factor") {
		s.page.serve(w, r)
		return
	}
	req, err := s.visits.read(r.URL.RawQuery)
	if s.visits.frame.Failed(w, r, req, err) {
		return
	}
	signedIn, err := s.Current(r, req)
	switch {
	case err != nil:
		req.Purpose.Refuse(w, r, err)
	case signedIn == nil:
		s.Begin(w, r, req)
	case !s.Renewal.Needed(w, r, req, signedIn):
		req.Purpose.Continue(w, r, signedIn)
	}
}

// Current returns who is signed in, if their sign-in satisfies the request; otherwise nil.
func (s *SignIn) Current(r *http.Request, req *Request) (*session.SignedIn, error) {
	signedIn, err := s.sessions.Current(r)
	if err != nil || signedIn == nil || !req.accepts(s.accounts.Ways(req.To.Providers), signedIn) {
		return nil, err
	}
	return signedIn, nil
}

// Begin sends the browser to the sign-in page, or to the identity provider if there is no choice.
func (s *SignIn) Begin(w http.ResponseWriter, r *http.Request, req *Request) {
	s.begin(w, r, req, nil)
}

// IsForAnother returns who is signed in by an identity provider in this browser if a request is for somebody else, who
// would sign in there too; otherwise nil.
func (s *SignIn) IsForAnother(r *http.Request, req *Request) (*session.SignedIn, error) {
	if req.How.Prompts("none") || req.How.LoginHint == "" && req.How.Subjects == nil {
		return nil, nil
	}
	current, err := s.sessions.Current(r)
	if err != nil || current == nil || s.accounts.Providers[current.Provider] == nil || !req.permits(s.accounts.Ways(req.To.Providers), current) {
		return nil, err
	}
	if req.How.IsFor(current.User.ID) && (req.How.LoginHint == "" || isNamed(current, req.How.LoginHint)) {
		return nil, nil
	}
	return current, nil
}

// BeginAgain has the person who is signed in sign in again, whoever the request is for.
func (s *SignIn) BeginAgain(w http.ResponseWriter, r *http.Request, req *Request) {
	s.begin(w, r, req, url.Values{"login_hint": {""}})
}

// BeginAsAnother has somebody else sign in than who is signed in in this browser. That person is signed out at their identity
// provider first, and here; if the provider has no end_session_endpoint, it is only asked for another account.
func (s *SignIn) BeginAsAnother(w http.ResponseWriter, r *http.Request, req *Request, current *session.SignedIn) {
	hint := req.How.LoginHint
	if isNamed(current, hint) {
		hint = ""
	}
	s.begin(w, r, req, url.Values{otherAccount: {""}, "login_hint": {hint}})
}

// begin sends the browser to where people sign in, with further parameters.
func (s *SignIn) begin(w http.ResponseWriter, r *http.Request, req *Request, q url.Values) {
	next, err := s.page.address(w, r, req, q)
	if err == nil {
		err = req.MarkUsed(r.Context())
	}
	if err == nil && q.Has(otherAccount) {
		next, err = s.other.leave(w, r, next)
	}
	if err != nil {
		req.Purpose.Refuse(w, r, err)
		return
	}
	endpoint.Redirect(w, http.StatusFound, next)
}

// EndSessionEndpoint is where [SignIn.BeginAsAnother] sends the browser first, for the policy of a form; "" if nowhere.
func (s *SignIn) EndSessionEndpoint(r *http.Request, current *session.SignedIn) (address string) {
	if p := s.accounts.Providers[current.Provider]; p != nil {
		address, _ = p.Client.EndSessionURL(r.Context(), "", "", "") // asked again when the button is pressed
	}
	return address
}
