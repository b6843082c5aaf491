package flow

import (
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/consent"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/launch"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
)

// answerTime is how long after signing in a person may answer, even if max_age is shorter:
// otherwise a max_age of seconds would have them sign in again and again. After that, it might
// be somebody else who answers (OpenID Connect Core §3.1.2.1).
const answerTime = 5 * time.Minute

// redirectToSignedInPage sends the browser to a page for the person who is signed in. The page
// is bound to the session too, so that nobody who signs in later can answer for them.
func (s *step) redirectToSignedInPage(w http.ResponseWriter, r *http.Request, page string, req *authorizationRequest, signedIn *session.SignedIn) {
	s.redirectToPage(w, r, req, page, page, signedIn.SID+" "+req.launch.picked.encode()+" "+req.query)
}

type signedInPages struct {
	*step
	accounts   *people.Accounts
	sessions   *session.Sessions
	consents   *consent.Consents
	patients   *launch.Patients
	signIn     *signInEndpoint
	authorizer *authorizer
	lasting    lasting
	logger     *slog.Logger
}

// pending opens the request of a page and checks it again. The same person must still be
// signed in.
func (ps *signedInPages) pending(r *http.Request, page, sealed string) (*authorizationRequest, *session.SignedIn, error) {
	text, err := ps.unseal(r, page, sealed)
	if err != nil {
		return nil, nil, err
	}
	sid, text, _ := strings.Cut(text, " ")
	picked, query, _ := strings.Cut(text, " ")
	signedIn, err := ps.sessions.Current(r)
	switch {
	case err != nil:
		return nil, nil, err
	case signedIn == nil || signedIn.SID != sid:
		return nil, nil, errPageExpired
	}
	req, err := ps.requests.check(r.Context(), query)
	if req != nil {
		req.launch.picked = readPicked(picked)
	}
	if err == nil && !ps.accounts.Ways(req.client.IdentityProviders).Has(signedIn.Provider) {
		err = people.ErrNotAllowed
	}
	return req, signedIn, err
}

// settled serves a page that comes after those for the launch context.
func (ps *signedInPages) settled(next signedInHandler) signedInHandler {
	return func(w http.ResponseWriter, r *http.Request, req *authorizationRequest, signedIn *session.SignedIn, p oauth2.Parameters) {
		person := signedIn.User.Person()
		if req.missing(person) != "" || !req.launch.isFor(person) || !req.dropUnmet(person) {
			ps.responses.showError(w, r, errPageExpired)
			return
		}
		next(w, r, req, signedIn, p)
	}
}

// lacksFactor reports whether the person has set up a second factor since they signed in, and
// then asks for it: a page that was opened before must not outrun it.
func (ps *signedInPages) lacksFactor(w http.ResponseWriter, r *http.Request, req *authorizationRequest, signedIn *session.SignedIn) bool {
	req.askedFactor = true // what need not be met was asked for before the page
	return ps.authorizer.stepUp.needed(w, r, req, signedIn)
}

type signedInHandler func(http.ResponseWriter, *http.Request, *authorizationRequest, *session.SignedIn, oauth2.Parameters)

// page serves a page: show answers GET, submit POST.
func (ps *signedInPages) page(path string, show, submit signedInHandler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		p, err := pageParameters(w, r)
		if err != nil {
			ps.responses.showError(w, r, err)
			return
		}
		req, signedIn, err := ps.pending(r, path, p.Get("request"))
		switch {
		case ps.responses.failed(w, r, req, err):
		case p.Get("decision") == "deny":
			ps.deny(w, r, path, req, signedIn)
		case req.tooOld(signedIn.Age, answerTime): // even to see the page: it may name patients, or go on by itself
			ps.signIn.redirectTo(w, r, req)
		case ps.lacksFactor(w, r, req, signedIn):
		case r.Method != http.MethodPost:
			show(w, r, req, signedIn, p)
		default:
			submit(w, r, req, signedIn, p)
		}
	}
}
