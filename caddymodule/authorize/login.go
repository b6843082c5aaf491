package authorize

import (
	"context"
	"errors"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
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
	accounts     *accounts
	limiter      *turnstile
	secondFactor *secondFactorStep
}

// askToSignIn sends the browser, with its request sealed, to the sign-in page or,
// where there is nothing to choose, to the identity provider.
func (s *signIns) askToSignIn(w http.ResponseWriter, r *http.Request, req *authorizationRequest) {
	offer := s.accounts.offer(req.client)
	by := offer.pick(req)
	if err := offer.unable(req, by); err != nil {
		s.responses.redirectError(w, r, req, err)
		return
	}
	sealed, err := s.browsers.keys.Seal(r.Context(), req.query, "login "+s.browsers.browser(w, r))
	if err != nil {
		s.responses.redirectError(w, r, req, err)
		return
	}
	if err := req.spent(r.Context()); err != nil {
		s.responses.redirectError(w, r, req, err)
		return
	}
	path := pathLogin
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
		s.pages.showSignIn(w, r, http.StatusOK, req, signInPage{Request: p.Get("request"), Username: s.accounts.likely(req)})
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

// openForBrowser opens what was sealed for a purpose and for this browser.
func (b *browsers) openForBrowser(r *http.Request, purpose, sealed string) (string, error) {
	text, err := b.unsealHere(r, purpose, sealed, signInTime)
	if errors.Is(err, keyring.ErrUnsealed) {
		return "", errPageExpired
	}
	return text, err
}

// pending opens a sealed request and checks it again from scratch: the
// configuration may have changed while the page was open.
func (s *step) pending(r *http.Request, sealed string) (*authorizationRequest, error) {
	query, err := s.browsers.openForBrowser(r, "login", sealed)
	if err != nil {
		return nil, err
	}
	return s.requests.authorizationRequest(r.Context(), query)
}

// signIn takes what was typed: an address of a provider's domain leads there,
// without a look at the password, and everything else must be a local user.
func (s *signIns) signIn(w http.ResponseWriter, r *http.Request, req *authorizationRequest, p oauth2.Parameters) {
	offer := s.accounts.offer(req.client)
	address := strings.TrimSpace(p.Get("username")) // telephones type a space behind it
	if by := offer.byDomain(address); by != nil {
		q := url.Values{"request": {p.Get("request")}, "login_hint": {address}}
		w.Header().Set("Location", pathLogin+"/"+by.Key+"?"+q.Encode())
		w.WriteHeader(http.StatusSeeOther)
		return
	}
	user, err := s.checkPassword(r, offer, p)
	page := signInPage{Request: p.Get("request"), Username: p.Get("username")}
	event := audit.Event{
		Kind: audit.SignIn, ClientID: req.client.ID, User: s.accounts.directory.accountNamed(p.Get("username")),
		Err: err, Anonymous: true, // to name an account proves nothing
	}
	var wait *waitError
	switch {
	case errors.As(err, new(busyError)):
		s.trail.record(r.Context(), event)
		page.Busy = retryAfter(w, busyTime)
		s.pages.showSignIn(w, r, http.StatusServiceUnavailable, req, page)
	case errors.As(err, &wait):
		s.trail.recordWait(r.Context(), event)
		page.Wait = retryAfter(w, wait.wait)
		s.pages.showSignIn(w, r, http.StatusTooManyRequests, req, page)
	case errors.Is(err, errWrongPassword):
		s.trail.record(r.Context(), event)
		page.Wrong = true
		s.pages.showSignIn(w, r, http.StatusForbidden, req, page)
	case errors.Is(err, context.Canceled): // nobody is there any more
	case err != nil:
		s.responses.redirectError(w, r, req, err)
	default:
		s.secondFactor.admitted(w, r, req, user, storedSession{AMR: []string{"pwd"}})
	}
}

// checkPassword returns the user who was typed, if the password is theirs.
func (s *signIns) checkPassword(r *http.Request, o offer, p oauth2.Parameters) (user *User, err error) {
	if !o.local {
		return nil, errWrongPassword
	}
	name := p.Get("username")
	counters, err := s.limiter.counters(r, guessPassword, name, s.accounts.directory.accountNamed(name))
	if err != nil {
		return nil, err
	}
	from := attempt{network: fairqueue.Network(addressOf(r.Context())), known: s.limiter.devices.device(r).knows(canonicalName(name))}
	err = s.limiter.try(r.Context(), counters, errWrongPassword, func() error {
		user, err = s.accounts.directory.signIn(r.Context(), from, name, p.Get("password"))
		return err
	})
	return user, err
}

// recordWait puts a try that was refused unseen on the audit trail.
func (rec *recorder) recordWait(ctx context.Context, e audit.Event) {
	e.Kind, e.Err = audit.Lockout, &oauth2.Error{Code: "access_denied", Description: "too many wrong tries", Err: e.Err}
	rec.record(ctx, e)
}

// retryAfter tells the browser how long to wait (RFC 9110 §10.2.3), and returns
// the words for the person.
func retryAfter(w http.ResponseWriter, wait time.Duration) string {
	w.Header().Set("Retry-After", strconv.Itoa(wholeSeconds(wait)))
	return inWords(wait)
}

func wholeSeconds(wait time.Duration) int { return int(math.Ceil(wait.Seconds())) }

// inWords is how long a wait is, as people say it: never too short.
func inWords(wait time.Duration) string {
	seconds := wholeSeconds(wait)
	switch minutes := (seconds + 59) / 60; {
	case seconds == 1:
		return "a second"
	case seconds < 60:
		return strconv.Itoa(seconds) + " seconds"
	case minutes == 1:
		return "a minute"
	default:
		return strconv.Itoa(minutes) + " minutes"
	}
}
