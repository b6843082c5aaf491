package flow

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/lockout"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/fairqueue"
)

// signInTime is how long a sign-in page can be used. It holds no secret; the
// bound is there so that a page left open does not lead into an app that has
// long forgotten its request.
const signInTime = time.Hour

var errPageExpired = oauth2.StartAgain("This sign-in page is too old, or was opened in another browser. Go back to the app and sign in from there again.")

// signIns signs people in by name and password, or sends them to their provider.
type signIns struct {
	*step
	accounts     *people.Accounts
	limiter      *lockout.Limiter
	secondFactor *secondFactorStep
}

// askToSignIn sends the browser, with its request sealed, to the sign-in page or,
// where there is nothing to choose, to the identity provider.
func (s *signIns) askToSignIn(w http.ResponseWriter, r *http.Request, req *authorizationRequest) {
	offer := s.accounts.Ways(req.client.IdentityProviders)
	by := req.pick(offer)
	if err := req.unable(offer, by); err != nil {
		s.responses.redirectError(w, r, req, err)
		return
	}
	sealed, err := s.browsers.Keys.Seal(r.Context(), req.query, "login "+s.browsers.ID(w, r))
	if err != nil {
		s.responses.redirectError(w, r, req, err)
		return
	}
	if err := req.spent(r.Context()); err != nil {
		s.responses.redirectError(w, r, req, err)
		return
	}
	path := endpoint.Login
	if by != nil {
		path += "/" + by.Key
	}
	w.Header().Set("Location", path+"?request="+url.QueryEscape(sealed))
	w.WriteHeader(http.StatusFound)
}

// login is the sign-in page: GET shows it, POST takes what was typed.
func (s *signIns) login(w http.ResponseWriter, r *http.Request) {
	p, err := loginParameters(w, r)
	if err != nil {
		s.responses.refuse(w, r, err)
		return
	}
	if p.Get("factor") != "" {
		s.secondFactor.secondFactor(w, r, p)
		return
	}
	req, err := s.pending(r, p.Get("request"))
	switch {
	case s.responses.failed(w, r, req, err):
	case r.Method == http.MethodPost:
		s.signIn(w, r, req, p)
	default:
		s.pages.showSignIn(w, r, http.StatusOK, req, signInPage{Request: p.Get("request"), Username: s.requests.likely(req)})
	}
}

// loginParameters reads the page's address or the form it sends.
func loginParameters(w http.ResponseWriter, r *http.Request) (p oauth2.Parameters, err error) {
	if r.Method == http.MethodPost {
		p, err = oauth2.ReadForm(w, r)
	} else {
		p, err = oauth2.ReadQuery(r.URL.RawQuery)
	}
	if err != nil {
		return nil, err
	}
	return p, p.Check("request")
}

// pending opens a sealed request and checks it again from scratch: the
// configuration may have changed while the page was open.
func (s *step) pending(r *http.Request, sealed string) (*authorizationRequest, error) {
	query, err := s.openForBrowser(r, "login", sealed)
	if err != nil {
		return nil, err
	}
	return s.requests.authorizationRequest(r.Context(), query)
}

// signIn takes what was typed: an address of a provider's domain leads there,
// without a look at the password, and everything else must be a local user.
func (s *signIns) signIn(w http.ResponseWriter, r *http.Request, req *authorizationRequest, p oauth2.Parameters) {
	offer := s.accounts.Ways(req.client.IdentityProviders)
	address := strings.TrimSpace(p.Get("username")) // telephones type a space behind it
	if by := offer.ByDomain(address); by != nil {
		q := url.Values{"request": {p.Get("request")}, "login_hint": {address}}
		w.Header().Set("Location", endpoint.Login+"/"+by.Key+"?"+q.Encode())
		w.WriteHeader(http.StatusSeeOther)
		return
	}
	user, err := s.checkPassword(r, offer, p)
	page := signInPage{Request: p.Get("request"), Username: p.Get("username")}
	event := audit.Event{
		Kind: audit.SignIn, ClientID: req.client.ID, User: s.accounts.Directory.AccountNamed(p.Get("username")),
		Err: err, Anonymous: true, // to name an account proves nothing
	}
	var wait *lockout.WaitError
	switch {
	case errors.As(err, new(lockout.BusyError)):
		s.trail.Record(r.Context(), event)
		page.Busy = lockout.SetRetryAfter(w, lockout.BusyTime)
		s.pages.showSignIn(w, r, http.StatusServiceUnavailable, req, page)
	case errors.As(err, &wait):
		s.trail.RecordLockout(r.Context(), event)
		page.Wait = lockout.SetRetryAfter(w, wait.Wait)
		s.pages.showSignIn(w, r, http.StatusTooManyRequests, req, page)
	case errors.Is(err, people.ErrWrongPassword):
		s.trail.Record(r.Context(), event)
		page.Wrong = true
		s.pages.showSignIn(w, r, http.StatusForbidden, req, page)
	case errors.Is(err, context.Canceled): // nobody is there any more
	case err != nil:
		s.responses.redirectError(w, r, req, err)
	default:
		s.secondFactor.admitted(w, r, req, user, session.Session{AMR: []string{"pwd"}})
	}
}

// checkPassword returns the user who was typed, if the password is theirs.
func (s *signIns) checkPassword(r *http.Request, o people.Ways, p oauth2.Parameters) (user *people.User, err error) {
	if !o.Local {
		return nil, people.ErrWrongPassword
	}
	name := p.Get("username")
	counters, err := s.limiter.Counters(r, lockout.Password, name, s.accounts.Directory.AccountNamed(name))
	if err != nil {
		return nil, err
	}
	from := people.Attempt{Network: fairqueue.Network(audit.ClientAddress(r.Context())), Known: s.limiter.Devices.Find(r).Knows(lockout.CanonicalName(name))}
	err = s.limiter.Try(r.Context(), counters, people.ErrWrongPassword, func() error {
		user, err = s.accounts.Directory.SignIn(r.Context(), from, name, p.Get("password"))
		return err
	})
	return user, err
}
