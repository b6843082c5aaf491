package flow

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/consent"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/launch"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/revocation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/signin"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/token"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// authorizationEndpoint receives authorization requests (RFC 6749 §3.1).
type authorizationEndpoint struct {
	renderer   *signin.Renderer
	pushed     *pushedRequests
	authorizer *authorizer
	signIn     *signin.SignIn
}

func (e *authorizationEndpoint) serve(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		e.servePOST(w, r)
		return
	}
	p, malformed := oauth2.ReadQuery(r.URL.RawQuery)
	e.authorizer.requests.clients.RecordClient(r.Context(), p.Get("client_id"))
	pushed, err := e.pushed.find(r.Context(), p, malformed)
	if err != nil {
		e.renderer.ShowError(w, r, err)
		return
	}
	query := r.URL.RawQuery
	if pushed != nil {
		query = pushed.query
	}
	req, err := e.authorizer.check(r.Context(), query)
	switch {
	case req != nil && pushed != nil:
		req.signIn.SingleUse = pushed.singleUse
	case err == nil && req.client.RequirePushed:
		err = errPushRequired
	case err == nil:
		err = req.checkProtection()
	}
	if !e.renderer.RejectIfError(w, r, req.signInRequest(), err) {
		e.signIn.ContinueOrBegin(w, r, &req.signIn)
	}
}

// servePOST redirects a posted request to the same request by GET (SMART capability authorize-post),
// because browsers withhold SameSite cookies from cross-site POSTs but not from GETs.
func (e *authorizationEndpoint) servePOST(w http.ResponseWriter, r *http.Request) {
	p, err := oauth2.ReadForm(w, r)
	e.authorizer.requests.clients.RecordClient(r.Context(), p.Get("client_id"))
	if err == nil {
		err = p.Check("request_uri")
	}
	if err == nil && r.URL.RawQuery != "" {
		err = oauth2.InvalidRequest("A POST request must not have a query string.")
	}
	if err != nil {
		e.renderer.ShowError(w, r, err)
		return
	}
	endpoint.Redirect(w, http.StatusSeeOther, endpoint.Authorize+"?"+url.Values(p).Encode())
}

// authorizer sends authorization responses once the person has signed in.
type authorizer struct {
	renderer      *signin.Renderer
	requests      *requests
	responses     *responses
	accounts      *people.Accounts
	consents      *consent.Consents
	launches      *launch.Launches
	grants        *token.Grants
	codes         *token.Codes
	tokens        *token.Issuer
	stepUp        *signin.StepUp
	offlineAccess *signin.OfflineAccessRequester
}

// check validates a request and continues with this authorizer after its sign-in.
func (a *authorizer) check(ctx context.Context, query string) (*authorizationRequest, error) {
	req, err := a.requests.check(ctx, query)
	if req != nil {
		req.signIn.Purpose = authorizationPurpose{a, req}
		req.signIn.ChooseAccount = func(w http.ResponseWriter, r *http.Request, signedIn *session.SignedInPerson) {
			redirectToPage(a.renderer, w, r, endpoint.SelectAccount, req, signedIn)
		}
	}
	return req, err
}

// restoreRequest validates a request again after the sign-in, during which the browser stored it.
func (a *authorizer) restoreRequest(ctx context.Context, query string) (*signin.Request, error) {
	req, err := a.check(ctx, query)
	return req.signInRequest(), err
}

// authorizationPurpose is the purpose of sign-ins for the authorization endpoint.
type authorizationPurpose struct {
	authorizer *authorizer
	request    *authorizationRequest
}

// Continue implements [signin.Purpose].
func (a authorizationPurpose) Continue(w http.ResponseWriter, r *http.Request, signedIn *session.SignedInPerson) {
	if a.request.signIn.SessionRenewed && a.request.signIn.Parameters.HasPrompt("select_account") {
		a.request.signIn.ChooseAccount(w, r, signedIn)
		return
	}
	a.authorizer.authorize(w, r, a.request, signedIn)
}

// Reject implements [signin.Purpose].
func (a authorizationPurpose) Reject(w http.ResponseWriter, r *http.Request, err error) {
	a.authorizer.responses.redirectError(w, r, a.request, err)
}

// authorize continues after the sign-in with the pages for a missing launch context and then the consent page.
func (a *authorizer) authorize(w http.ResponseWriter, r *http.Request, req *authorizationRequest, signedIn *session.SignedInPerson) {
	if a.stepUp.RespondIfNeeded(w, r, &req.signIn, signedIn) {
		return
	}
	if err := a.limitScope(req, signedIn.User); err != nil {
		a.responses.redirectError(w, r, req, err)
		return
	}
	if slices.Contains(req.scope, client.OfflineAccess) && a.offlineAccess.RespondIfNeeded(w, r, &req.signIn, signedIn) {
		return
	}
	var err error
	if req.scope, err = a.offlineAccess.LimitScope(r.Context(), req.scope, signedIn); err != nil {
		a.responses.redirectError(w, r, req, err)
		return
	}
	person := signedIn.User.Person()
	page := req.missingContextPage(person)
	switch {
	case !req.launch.isFor(person):
		a.responses.redirectError(w, r, req, launch.ErrOtherPerson)
	case !req.signIn.Parameters.PermitsSubject(signedIn.User.ID):
		a.responses.redirectError(w, r, req, &oauth2.Error{Code: "login_required", Description: "the signed-in person is not the requested person"})
	case page != "" && req.signIn.Parameters.HasPrompt("none"):
		a.responses.redirectError(w, r, req, &oauth2.Error{Code: "interaction_required", Description: "a patient or an encounter must be selected, but prompt=none does not allow a page"})
	case page != "":
		redirectToPage(a.renderer, w, r, page, req, signedIn)
	case !req.dropUnmetScopes(person):
		a.responses.redirectError(w, r, req, errMissingContext)
	default:
		a.confirm(w, r, req, signedIn)
	}
}

// limitScope narrows the scope to the scopes that the person may grant.
func (a *authorizer) limitScope(req *authorizationRequest, user *people.User) error {
	req.scope = a.accounts.ScopeLimits.Narrow(user.Attributes(), req.scope)
	if len(req.scope) == 0 {
		return &oauth2.Error{Code: "invalid_scope", Description: "scope_limit allows this person none of the requested scopes"}
	}
	return nil
}

// confirm sends the response to the client, or first shows a page for consent or to confirm a redirect URI that another app may
// have claimed (RFC 8252 §8.6). A POST of a page's form is a confirmation.
func (a *authorizer) confirm(w http.ResponseWriter, r *http.Request, req *authorizationRequest, signedIn *session.SignedInPerson) {
	ask, err := a.needsConsent(r.Context(), req, signedIn.User)
	unconfirmed := req.isInterceptable() && r.Method != http.MethodPost
	switch {
	case err != nil:
		a.responses.redirectError(w, r, req, err)
	case ask && req.signIn.Parameters.HasPrompt("none"):
		a.responses.redirectError(w, r, req, &oauth2.Error{Code: "consent_required", Description: "the user must consent, but prompt=none does not allow a consent page"})
	case unconfirmed && req.signIn.Parameters.HasPrompt("none"):
		a.responses.redirectError(w, r, req, &oauth2.Error{Code: "interaction_required", Description: "other apps on the device could use this redirect_uri, so the user must confirm it, but prompt=none does not allow a page"})
	case ask, unconfirmed:
		redirectToPage(a.renderer, w, r, endpoint.Consent, req, signedIn)
	default:
		a.respond(w, r, req, signedIn)
	}
}

// respond sends the authorization response (RFC 6749 §4.1.2).
func (a *authorizer) respond(w http.ResponseWriter, r *http.Request, req *authorizationRequest, signedIn *session.SignedInPerson) {
	g := req.newGrant(signedIn, a.renderer.Site.SMARTStyle().URL())
	p, err := a.createResponse(r.Context(), req, g)
	a.renderer.Trail.Record(r.Context(), audit.Event{
		Kind: audit.KindAuthorization, GrantType: req.target.responseType, ClientID: g.ClientID, User: g.User, Scope: g.ScopeString(), Err: err,
	})
	if err != nil {
		a.responses.redirectError(w, r, req, err)
		return
	}
	a.responses.send(w, r, req, req.target.mode, p)
}

// createResponse creates the response parameters. Writes to each store happen last and in one step, so that a failure does not
// mark anything as used.
func (a *authorizer) createResponse(ctx context.Context, req *authorizationRequest, g *token.Grant) (p responseParameters, err error) {
	err = store.Retry(ctx, func() error {
		consentStep, err := a.grants.PrepareIssue(ctx, g)
		if err != nil {
			return err
		}
		var issued store.Step
		if p, issued, err = a.codeParameters(ctx, req, g); err != nil {
			return err
		}
		return a.commit(ctx, req, consentStep, issued)
	})
	return p, err
}

// commit stores a grant and marks the request as used. The error is [store.ErrExists] or [store.ErrChanged] if a concurrent
// request of the same person recorded its consent first.
func (a *authorizer) commit(ctx context.Context, req *authorizationRequest, steps ...store.Step) error {
	if req.launch.handle == "" {
		return req.signIn.MarkUsed(ctx, steps...)
	}
	uses := a.launches.ConsumeCall(req.launch.handle)
	err := req.signIn.MarkUsed(ctx, append(steps, store.NewStep(a.launches.Store, uses))...)
	if errors.Is(uses.Err, store.ErrNotFound) {
		return launch.ErrUnknownLaunch
	}
	return err
}

// codeParameters returns the response parameters and the step that stores the code, if any.
func (a *authorizer) codeParameters(ctx context.Context, req *authorizationRequest, g *token.Grant) (p responseParameters, issued store.Step, err error) {
	switch {
	case req.target.hasResponseType("code"):
		code, issued, err := a.codes.Issue(g)
		return responseParameters{{"code", code}}, issued, err
	case req.target.hasResponseType("token"):
		p, err = a.tokenResponse(ctx, req, g)
	default:
		p, err = a.idTokenResponse(ctx, g)
	}
	return p, issued, err
}

func (req *authorizationRequest) newGrant(by *session.SignedInPerson, styleURL string) *token.Grant {
	credential := by.User.Credential()
	return &token.Grant{
		Family:           revocation.RandomID(),
		ClientID:         req.client.ID,
		RedirectURI:      req.target.redirectURI,
		RequestedScope:   req.requestedScope,
		Scope:            req.scope,
		ExpiresAt:        req.offlineExpiry,
		User:             by.User.ID,
		SignedInAt:       by.SignedInAt,
		Session:          by.SID,
		AMR:              by.AMR,
		Provider:         by.Provider,
		Subject:          by.Subject,
		Credential:       credential[:],
		Generation:       req.client.Generation,
		CodeChallenge:    req.codeChallenge,
		Nonce:            req.nonce,
		Launch:           req.grantContext(by.User.Person(), styleURL),
		LauncherClientID: req.launch.vouchingClient(),
		ConsentPatient:   req.approvalSubject.Patient,
		ShortTokens:      req.launch.hasShortTokens(),

		UserinfoClaims: req.claims.userinfo,
		IDTokenClaims:  req.claims.idToken,
	}
}

// implicitTokenLifetime is the maximum lifetime of access tokens that pass through the browser, because browser histories and
// logs retain them (RFC 6819 §5.1.5.3).
const implicitTokenLifetime = time.Hour

// tokenResponse returns the response of the implicit flow (RFC 6749 §4.2.2), with an ID token if openid was granted.
func (a *authorizer) tokenResponse(ctx context.Context, req *authorizationRequest, g *token.Grant) (responseParameters, error) {
	t, err := a.tokens.Issue(ctx, g, min(a.tokens.AccessTokenLifetime, implicitTokenLifetime))
	if err != nil {
		return nil, err
	}
	var p responseParameters
	p.add("id_token", t.IDToken)
	p.add("access_token", t.AccessToken)
	p.add("token_type", "bearer")
	if g.Launch != nil {
		p.add("patient", g.Launch.Patient)
		p.add("encounter", g.Launch.Encounter)
	}
	p.add("expires_in", strconv.FormatInt(int64(t.Lifetime.Seconds()), 10))
	if g.ScopeString() != req.requestedScope {
		p.add("scope", g.ScopeString())
	}
	return p, nil
}

// idTokenResponse returns the response to response_type id_token (OpenID Connect Core §3.2.2.5). Because the client cannot
// query userinfo without an access token, the ID token contains the claims of the scope (§5.4).
func (a *authorizer) idTokenResponse(ctx context.Context, g *token.Grant) (responseParameters, error) {
	user, err := a.accounts.Find(ctx, g.User)
	if err != nil {
		return nil, err
	}
	if user == nil {
		return nil, &oauth2.Error{Code: "access_denied", Description: "the user no longer exists"}
	}
	g.IDTokenClaims = append(g.IDTokenClaims, people.ClaimsOfScope(g.Scope)...)
	token, err := a.tokens.IssueIDToken(ctx, g, user, "", time.Now())
	var p responseParameters
	p.add("id_token", token)
	return p, err
}
