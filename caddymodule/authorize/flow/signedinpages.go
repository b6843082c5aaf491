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

// minAnswerTime is the minimum time for answering a page after sign-in, even if max_age is shorter. Otherwise, a max_age of a
// few seconds would cause a loop. After this time, another person may be using the browser (OpenID Connect Core §3.1.2.1).
const minAnswerTime = 5 * time.Minute

// signedInPages serves the pages of authorization requests for signed-in people.
type signedInPages struct {
	renderer   *signin.Renderer
	accounts   *people.Accounts
	sessions   *session.Sessions
	signIn     *signin.SignIn
	authorizer *authorizer
}

// signedInPage contains the handlers of one page.
type signedInPage struct {
	show, submit signedInHandler // handlers for GET and POST
	deny         signedInHandler // handler for a refusal; if nil, access_denied is sent to the client
	skipsMaxAge  bool            // skips the max_age check, which submit performs itself
}

type signedInHandler func(http.ResponseWriter, *http.Request, *authorizationRequest, *session.SignedInPerson, oauth2.Parameters)

// openRequest unseals and rechecks the request of a page. The session must be the one in which the page was shown.
func (ps *signedInPages) openRequest(r *http.Request, page, sealed string) (*authorizationRequest, *session.SignedInPerson, error) {
	state, err := unsealPageState(ps.renderer, r, page, sealed)
	if err != nil {
		return nil, nil, err
	}
	signedIn, err := ps.sessions.CurrentPerson(r)
	if err == nil {
		err = signin.CheckSession(signedIn, state.sid)
	}
	if err != nil {
		return nil, nil, signin.WithRestart(err, state.query)
	}
	req, err := ps.authorizer.check(r.Context(), state.query)
	if req != nil {
		req.launch.choice, req.signIn.SignedIn = state.choice, signedIn
	}
	if err == nil && !ps.accounts.SignInMethods(req.client.IdentityProviders).Includes(signedIn.Provider) {
		err = people.ErrNotAllowed
	}
	if err == nil {
		err = ps.authorizer.limitScope(req, signedIn.User)
	}
	return req, signedIn, err
}

// withLaunchContext wraps a page that requires a complete launch context.
func (ps *signedInPages) withLaunchContext(next signedInHandler) signedInHandler {
	return func(w http.ResponseWriter, r *http.Request, req *authorizationRequest, signedIn *session.SignedInPerson, p oauth2.Parameters) {
		person := signedIn.User.Person()
		if req.missingContextPage(person) != "" || !req.launch.isFor(person) || !req.dropUnmetScopes(person) {
			ps.renderer.ShowError(w, r, signin.WithRestart(signin.ErrPageExpired, req.signIn.Query))
			return
		}
		next(w, r, req, signedIn, p)
	}
}

// requestSecondFactor requests a second factor if the person enrolled one after the sign-in. Otherwise, a page opened earlier
// would bypass the factor.
func (ps *signedInPages) requestSecondFactor(w http.ResponseWriter, r *http.Request, req *authorizationRequest, signedIn *session.SignedInPerson) bool {
	req.signIn.FactorsRequested = true // optional factors were already requested before the page
	return ps.signIn.StepUp.RespondIfNeeded(w, r, &req.signIn, signedIn)
}

// handler returns the handler of a page.
func (ps *signedInPages) handler(path string, page signedInPage) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		p, err := signin.PageParameters(w, r)
		if err != nil {
			ps.renderer.ShowError(w, r, err)
			return
		}
		req, signedIn, err := ps.openRequest(r, path, p.Get("request"))
		switch {
		case ps.renderer.RejectIfError(w, r, req.signInRequest(), err):
		case p.Get("decision") == "deny" && page.deny == nil:
			req.signIn.Purpose.Reject(w, r, signin.ErrDenied)
		case p.Get("decision") == "deny":
			page.deny(w, r, req, signedIn, p)
		case !page.skipsMaxAge && req.signIn.Parameters.ExceedsMaxAge(signedIn.SignInAge, minAnswerTime): // also for GET, because the page may show patients' names or submit itself
			ps.signIn.Begin(w, r, &req.signIn)
		case ps.requestSecondFactor(w, r, req, signedIn):
		case r.Method != http.MethodPost:
			page.show(w, r, req, signedIn, p)
		default:
			page.submit(w, r, req, signedIn, p)
		}
	}
}

// redirectToPage redirects the browser to a page for signed-in people. The page is bound to the session, so that a person who
// signs in later cannot submit it.
func redirectToPage(renderer *signin.Renderer, w http.ResponseWriter, r *http.Request, page string, req *authorizationRequest, signedIn *session.SignedInPerson) {
	renderer.RedirectToPage(w, r, &req.signIn, page, page, signedIn.SID+" "+req.launch.choice.encode()+" "+req.signIn.Query)
}

// pageState is the sealed state of a page for signed-in people.
type pageState struct {
	sid    string // session in which the page was shown
	choice patientChoice
	query  string // query of the authorization request
}

// unsealPageState unseals the state sealed by [redirectToPage].
func unsealPageState(renderer *signin.Renderer, r *http.Request, page, sealed string) (pageState, error) {
	text, err := renderer.UnsealOrRecover(r, page, sealed)
	sid, text, _ := strings.Cut(text, " ")
	choice, query, _ := strings.Cut(text, " ")
	return pageState{sid, decodeChoice(choice), query}, signin.WithRestart(err, query)
}

// errMissingDecision is the error for a form submitted without one of its buttons.
var errMissingDecision = oauth2.NewRestartError("The form was sent without a decision. Use one of the buttons on the page.")

// accountChoice serves the page for prompt=select_account (OpenID Connect Core §3.1.2.1) and for requests that identify another
// person. A browser has at most one session, so the choice is between the signed-in account and another account.
type accountChoice struct {
	renderer   *signin.Renderer
	signIn     *signin.SignIn
	authorizer *authorizer
}

func (c *accountChoice) show(w http.ResponseWriter, r *http.Request, req *authorizationRequest, signedIn *session.SignedInPerson, p oauth2.Parameters) {
	c.renderer.Show(w, r, &req.signIn, page.View{Template: "selectaccount", Data: page.SelectAccount{
		Request: p.Get("request"), Client: req.client.DisplayName(), Person: page.Person(signedIn.User.Label()),
	}}, c.signIn.EndSessionEndpoint(r, signedIn))
}

func (c *accountChoice) submit(w http.ResponseWriter, r *http.Request, req *authorizationRequest, signedIn *session.SignedInPerson, p oauth2.Parameters) {
	how, decision := req.signIn.Parameters, p.Get("decision")
	switch {
	case decision == "continue" && (how.HasPrompt("login") || how.ExceedsMaxAge(signedIn.SignInAge, minAnswerTime) || !how.PermitsSubject(signedIn.User.ID)):
		c.signIn.BeginAgain(w, r, &req.signIn)
	case decision == "continue":
		c.authorizer.authorize(w, r, req, signedIn)
	case decision == "other":
		c.signIn.BeginAsOther(w, r, &req.signIn, signedIn)
	default:
		c.renderer.ShowError(w, r, signin.WithRestart(errMissingDecision, req.signIn.Query))
	}
}
