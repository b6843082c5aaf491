package flow

import (
	"net/http"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/signin"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// answerTime is the minimum time for answering a page after sign-in, even if max_age is shorter: a max_age of
// seconds would otherwise loop. Afterwards another person may be at the browser (OpenID Connect Core §3.1.2.1).
const answerTime = 5 * time.Minute

// signedInPages serves the pages of authorization requests for signed-in people.
type signedInPages struct {
	frame      *signin.Frame
	accounts   *people.Accounts
	sessions   *session.Sessions
	signIn     *signin.SignIn
	authorizer *authorizer
}

// signedInPage is one page.
type signedInPage struct {
	show, submit signedInHandler // handlers for GET and POST
	deny         signedInHandler // handler for a refusal; nil sends access_denied to the client
	atAnyAge     bool            // skips the max_age check, which submit performs itself
}

type signedInHandler func(http.ResponseWriter, *http.Request, *authorizationRequest, *session.SignedIn, oauth2.Parameters)

// pending unseals and rechecks the request of a page. The session must be the one in which the page was shown.
func (ps *signedInPages) pending(r *http.Request, page, sealed string) (*authorizationRequest, *session.SignedIn, error) {
	waiting, err := readWaiting(ps.frame, r, page, sealed)
	if err != nil {
		return nil, nil, err
	}
	signedIn, err := ps.sessions.Current(r)
	switch {
	case err != nil:
		return nil, nil, err
	case signedIn == nil || signedIn.SID != waiting.sid:
		return nil, nil, signin.ErrPageExpired
	}
	req, err := ps.authorizer.check(r.Context(), waiting.query)
	if req != nil {
		req.launch.picked = waiting.picked
	}
	if err == nil && !ps.accounts.SignInMethods(req.client.IdentityProviders).Has(signedIn.Provider) {
		err = people.ErrNotAllowed
	}
	if err == nil {
		err = ps.authorizer.limitTo(req, signedIn.User)
	}
	return req, signedIn, err
}

// withLaunchContext wraps a page that requires a complete launch context.
func (ps *signedInPages) withLaunchContext(next signedInHandler) signedInHandler {
	return func(w http.ResponseWriter, r *http.Request, req *authorizationRequest, signedIn *session.SignedIn, p oauth2.Parameters) {
		person := signedIn.User.Person()
		if req.missing(person) != "" || !req.launch.isFor(person) || !req.dropUnmet(person) {
			ps.frame.ShowError(w, r, signin.ErrPageExpired)
			return
		}
		next(w, r, req, signedIn, p)
	}
}

// requestSecondFactor requests a second factor if the person enrolled one after the sign-in. A page opened
// earlier must not bypass it.
func (ps *signedInPages) requestSecondFactor(w http.ResponseWriter, r *http.Request, req *authorizationRequest, signedIn *session.SignedIn) bool {
	req.signIn.FactorRequested = true // optional factors were already requested before the page
	return ps.signIn.StepUp.RespondIfNeeded(w, r, &req.signIn, signedIn)
}

// handler returns the handler of a page.
func (ps *signedInPages) handler(path string, page signedInPage) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		p, err := signin.PageParameters(w, r)
		if err != nil {
			ps.frame.ShowError(w, r, err)
			return
		}
		req, signedIn, err := ps.pending(r, path, p.Get("request"))
		switch {
		case ps.frame.Failed(w, r, req.toSignIn(), err):
		case p.Get("decision") == "deny" && page.deny == nil:
			req.signIn.Purpose.Reject(w, r, signin.ErrDenied)
		case p.Get("decision") == "deny":
			page.deny(w, r, req, signedIn, p)
		case !page.atAnyAge && req.signIn.How.TooOld(signedIn.Age, answerTime): // also for GET: the page may name patients or submit itself
			ps.signIn.Begin(w, r, &req.signIn)
		case ps.requestSecondFactor(w, r, req, signedIn):
		case r.Method != http.MethodPost:
			page.show(w, r, req, signedIn, p)
		default:
			page.submit(w, r, req, signedIn, p)
		}
	}
}

// redirectToPage redirects the browser to a page for signed-in people. The page is bound to the
// session, so that a person who signs in later cannot answer it.
func redirectToPage(frame *signin.Frame, w http.ResponseWriter, r *http.Request, page string, req *authorizationRequest, signedIn *session.SignedIn) {
	frame.RedirectToPage(w, r, &req.signIn, page, page, signedIn.SID+" "+req.launch.picked.encode()+" "+req.signIn.Query)
}

// pageState is the sealed state of a page for signed-in people.
type pageState struct {
	sid    string // session in which the page was shown
	picked patientChoice
	query  string // query of the authorization request
}

// readWaiting unseals the state sealed by [redirectToPage].
func readWaiting(frame *signin.Frame, r *http.Request, page, sealed string) (pageState, error) {
	text, err := frame.Unseal(r, page, sealed)
	if err != nil {
		return pageState{}, err
	}
	sid, text, _ := strings.Cut(text, " ")
	picked, query, _ := strings.Cut(text, " ")
	return pageState{sid, readPicked(picked), query}, nil
}

// errNoDecision is the error for a form submitted without one of its buttons.
var errNoDecision = oauth2.NewRestartError("Use the buttons on the page. Go back to the app and start again.")

// accountChoice serves the page for prompt=select_account (OpenID Connect Core §3.1.2.1) and for requests that name
// another person. A browser has at most one session, so the choice is between that account and another.
type accountChoice struct {
	frame      *signin.Frame
	signIn     *signin.SignIn
	authorizer *authorizer
}

func (c *accountChoice) show(w http.ResponseWriter, r *http.Request, req *authorizationRequest, signedIn *session.SignedIn, p oauth2.Parameters) {
	c.frame.Show(w, r, &req.signIn, page.View{Template: "selectaccount", Data: page.SelectAccount{
		Request: p.Get("request"), Client: req.client.Title(), Person: page.Person(signedIn.User.Label()),
	}}, c.signIn.EndSessionEndpoint(r, signedIn))
}

func (c *accountChoice) submit(w http.ResponseWriter, r *http.Request, req *authorizationRequest, signedIn *session.SignedIn, p oauth2.Parameters) {
	how, decision := req.signIn.How, p.Get("decision")
	switch {
	case decision == "continue" && (how.Prompts("login") || how.TooOld(signedIn.Age, answerTime) || !how.IsFor(signedIn.User.ID)):
		c.signIn.BeginAgain(w, r, &req.signIn)
	case decision == "continue":
		c.authorizer.authorize(w, r, req, signedIn)
	case decision == "other":
		c.signIn.BeginAsAnother(w, r, &req.signIn, signedIn)
	default:
		c.frame.ShowError(w, r, errNoDecision)
	}
}
