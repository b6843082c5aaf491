package signin

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/patrickmn/go-cache"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/browser"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/relyingparty"
)

var errResponseUsed = oauth2.NewRestartError("You already completed this sign-in. Go back to the app.")

// maxUsedStates is the number of used states remembered per person.
const maxUsedStates = 200

// federation signs people in through identity providers.
type federation struct {
	renderer         *Renderer
	requests         *requestRestorer
	accounts         *people.Accounts
	secondFactor     *secondFactor
	signInPage       *signInPage         // offers other sign-in methods if a provider is unreachable
	store            store.Store         // used states of authentication responses
	failedIdentities *identities         // identities of sign-ins that failed at the gateway after the exchange
	usedStates       *store.PerUserLimit // used states by person
	rejections       *rejectionPage
	offlineAccess    *OfflineAccessRequester
	renewal          *Renewal
}

// start redirects the browser to a provider. The sealed request is from a link on the sign-in page
// or from [signInPage.signInURL].
func (f *federation) start(w http.ResponseWriter, r *http.Request, p *people.Provider) {
	req, err := f.requests.unseal(r, r.URL.Query().Get("request"))
	if err == nil {
		err = f.checkPerson(r, p, req)
	}
	switch {
	case f.renderer.RejectIfError(w, r, req, err):
	case req.byOtherPerson && req.Parameters.HasPrompt("none"):
		req.Purpose.Reject(w, r, errOtherPerson)
	case !f.accounts.SignInMethods(req.Destination.Providers).Includes(p.Key):
		req.Purpose.Reject(w, r, &oauth2.Error{Code: "access_denied", Description: "identity provider not permitted for this client"})
	default:
		f.redirectToProvider(w, r, p, req)
	}
}

// errOtherPerson means that the provider might sign in someone other than the signed-in person.
var errOtherPerson = &oauth2.Error{Code: "login_required", Description: "the person who is signed in has not signed in at this identity provider"}

// checkPerson binds the request to the browser's session. It requests the sign-in of another person unless the signed-in person
// has signed in at this provider, before the sign-in page was opened. Otherwise, the provider could sign in its last user, whom the
// page does not name.
func (f *federation) checkPerson(r *http.Request, p *people.Provider, req *Request) error {
	stored, err := f.renderer.Header.Sessions.FindByBrowser(r)
	if stored == nil || err != nil {
		req.sid = ""
		return err
	}
	req.byOtherPerson = req.byOtherPerson || stored.Provider != p.Key || stored.SID != req.sid
	req.sid = stored.SID
	return nil
}

// redirectToProvider redirects the browser with an authentication request (OpenID Connect Core §3.1.2.1).
func (f *federation) redirectToProvider(w http.ResponseWriter, r *http.Request, p *people.Provider, req *Request) {
	hint := req.Parameters.LoginHint
	if r.URL.Query().Has("login_hint") { // the address typed on the page, or empty for a sign-in of another person
		hint = r.URL.Query().Get("login_hint")
	}
	acrValues, essential := req.providerACR(p)
	pending := newPendingSignIn(p, req.Query)
	visit := browser.FindProviderVisit(r, p.Issuer)
	pending.SID, pending.Visited = req.sid, visit != nil
	pending.OtherPending = visit != nil && visit.Stage == browser.VisitStarted
	if !req.byOtherPerson { // otherwise, the hint in the URL is the app's
		pending.TypedHint = r.URL.Query().Get("login_hint")
	}
	ask := &pending.Request
	ask.LoginHint, ask.Prompt, ask.SwitchAccount, ask.MaxAge, ask.UILocales = hint, req.Parameters.Prompt, req.byOtherPerson, req.Parameters.MaxAge, req.Parameters.UILocales
	ask.ACRValues, ask.EssentialACR, ask.ACRClaim = acrValues, essential, p.ACRClaim
	target, providerErr := p.Client.AuthenticationURL(r.Context(), pending.Request)
	err := providerErr
	if err == nil {
		err = pending.setCookie(f.renderer.Sealer, w, r)
	}
	if err == nil {
		started := browser.ProviderVisit{Mark: pending.mark(), Stage: browser.VisitStarted}
		if visit != nil {
			started.SignedInAt = visit.SignedInAt
		}
		browser.SetProviderVisit(w, p.Issuer, started)
	}
	switch {
	case isDisconnected(r, err):
	case providerErr != nil && f.showsOutage(p, req, providerErr):
		f.showProviderDown(w, r, p, req, providerErr)
	case err != nil:
		req.Purpose.Reject(w, r, clientError(p, err))
	default:
		endpoint.Redirect(w, http.StatusFound, target)
	}
}

// errProviderUnavailable is the error for the app if the person returns from the page of [federation.showProviderDown].
var errProviderUnavailable = &oauth2.Error{Code: "temporarily_unavailable", Description: "the identity provider cannot sign people in"}

// showsOutage reports whether a provider's failure is shown to the person instead of being sent to the app. The app gets the
// errors of docs/evidence/interface.md §7, unless the person can sign in another way. It gets all errors if it chose the provider
// or forbids pages.
func (f *federation) showsOutage(p *people.Provider, req *Request, err error) bool {
	if req.Parameters.IdentityProvider != "" || req.Parameters.HasPrompt("none") {
		return false
	}
	return oauth2.AsError(clientError(p, err)).Code == "server_error" || req.hasOtherMethod(f.accounts.SignInMethods(req.Destination.Providers), p)
}

// showProviderDown shows the sign-in page after a provider failed, with the other sign-in methods or, if there are none, a link
// that tries again.
func (f *federation) showProviderDown(w http.ResponseWriter, r *http.Request, p *people.Provider, req *Request, err error) {
	f.renderer.Trail.Record(r.Context(), audit.Event{Kind: audit.KindSignIn, Person: audit.Person{Provider: p.Key}, ClientID: req.Destination.ClientID, Err: clientError(p, err)})
	sealed, err := f.renderer.sealRequest(w, r, req)
	if err != nil {
		req.Purpose.Reject(w, r, err)
		return
	}
	problem := page.SignInProblem{ProviderDown: p.Name}
	if !req.hasOtherMethod(f.accounts.SignInMethods(req.Destination.Providers), p) {
		problem.TryAgain = providerURL(p, sealed, req.byOtherPerson)
	}
	f.signInPage.show(w, r, http.StatusServiceUnavailable, req, page.SignIn{
		Request: sealed, Username: f.signInPage.initialUsername(req, oauth2.Parameters(r.URL.Query())), Problem: problem,
	})
}

// callbackHandler returns the handler of a provider's authentication responses.
func (f *federation) callbackHandler(responder *endpoint.Responder, p *people.Provider) http.Handler {
	if p.ResponseMode == "" {
		return responder.Handler(p.Endpoint(f.callback), http.MethodGet)
	}
	return responder.Handler(p.Endpoint(func(w http.ResponseWriter, r *http.Request, p *people.Provider) {
		if r.Method == http.MethodPost {
			f.callbackForm(w, r, p)
			return
		}
		f.callback(w, r, p)
	}), http.MethodGet, http.MethodPost)
}

// callbackForm handles an authentication response that the browser sends as a form from the provider's page (OAuth 2.0 Form Post
// Response Mode §2). It redirects to the callback, because the browser sends no SameSite cookies with a form of another site.
func (f *federation) callbackForm(w http.ResponseWriter, r *http.Request, p *people.Provider) {
	form, err := oauth2.ReadCheckedForm(w, r)
	if err != nil {
		f.renderer.ShowError(w, r, err)
		return
	}
	endpoint.Redirect(w, http.StatusSeeOther, endpoint.Callback+p.Key+"?"+form.EncodeSelected("code", "error", "error_description", "iss", "state"))
}

// callback handles a provider's authentication response (OpenID Connect Core §3.1.2.5).
func (f *federation) callback(w http.ResponseWriter, r *http.Request, p *people.Provider) {
	q, err := oauth2.ReadCheckedQuery(r.URL.RawQuery)
	response := &authenticationResponse{parameters: q}
	if err == nil {
		response.pending, err = readPending(f.renderer.Sealer, r, q.Get("state"))
	}
	if err == nil && (response.pending.Provider != p.Key || response.pending.Issuer != p.Issuer) {
		err = errNoPendingSignIn // the response is from another provider, which indicates a mix-up attack (RFC 9700 §4.4.2)
	}
	if err != nil {
		f.renderer.ShowError(w, r, withRestart(err, lastRequest(f.renderer.Sealer, r, q.Get("state"))))
		return
	}
	req, err := f.requests.restore(r.Context(), response.pending.Query)
	if req != nil {
		req.byOtherPerson = response.pending.Request.SwitchAccount
		req.SingleUse = &SingleUseValue{After: func() error {
			response.isComplete = true
			browser.RemoveChunkedCookie(w, r, pendingCookieName(response.pending.Request.State))
			return nil
		}}
	}
	if !f.renderer.RejectIfError(w, r, req, err) {
		f.signIn(w, r, p, req, response)
	}
}

// authenticationResponse is a provider's response to a pending sign-in.
type authenticationResponse struct {
	pending    pendingSignIn
	parameters oauth2.Parameters
	identity   *relyingparty.Identity // result of the code exchange; nil before the exchange
	isComplete bool                   // the sign-in is complete, successfully or not
}

// signIn signs in the person of a response. After an internal error the same response can be sent
// again, although the provider would not accept its code again.
func (f *federation) signIn(w http.ResponseWriter, r *http.Request, p *people.Provider, req *Request, response *authenticationResponse) {
	user, session, err := f.authenticate(r, p, req, response)
	f.recordVisit(w, r, p, response)
	if response.pending.Renewal && !isDisconnected(r, err) {
		f.renewal.handleResponse(w, r, p, req, response, session, clientError(p, err))
		return
	}
	if isDisconnected(r, err) || response.pending.Request.OfflineAccess && f.offlineAccess.handleResponse(w, r, p, req, response.pending.SID, response.identity, clientError(p, err)) {
		return
	}
	if response.pending.Request.OfflineAccess && err == nil { // the session has changed or ended, and the response may identify its person
		req.byOtherPerson = true
		f.renewal.beginSignIn(w, r, req)
		return
	}
	defer func() {
		if response.identity != nil && !response.isComplete {
			f.failedIdentities.put(response.pending.Request.State, response.identity)
		}
	}()
	if err != nil && response.identity == nil && oauth2.AsError(clientError(p, err)).Code == "server_error" && f.showsOutage(p, req, err) {
		f.showProviderDown(w, r, p, req, err)
		return
	}
	if err != nil {
		err = clientError(p, err)
		f.renderer.Trail.Record(r.Context(), audit.Event{Kind: audit.KindSignIn, ClientID: req.Destination.ClientID, Err: err})
	}
	switch {
	case errors.Is(err, errResponseUsed):
		f.renderer.ShowError(w, r, withRestart(err, sealedRequest{byOtherPerson: req.byOtherPerson, query: req.Query}))
	case response.identity != nil && oauth2.AsError(err).Code == "access_denied" && !req.Parameters.HasPrompt("none"):
		f.rejections.redirect(w, r, p, req, response.identity)
	case err != nil:
		req.Purpose.Reject(w, r, err)
	default:
		f.confirmOrContinue(w, r, p, req, response, user, session)
	}
}

// recordVisit records the result of a sign-in at a provider: a person, or an error response. If the code exchange fails, the sign-in
// remains started, because the person may have authenticated there.
func (f *federation) recordVisit(w http.ResponseWriter, r *http.Request, p *people.Provider, response *authenticationResponse) {
	visit, next := browser.FindProviderVisit(r, p.Issuer), browser.ProviderVisit{Mark: response.pending.mark(), Stage: browser.VisitCompleted}
	isLatest := visit != nil && visit.Mark == next.Mark
	switch {
	case response.identity != nil && (isLatest || visit == nil || visit.Stage != browser.VisitStarted):
		next.SignedInAt = response.identity.AuthTime
	case response.identity != nil: // another sign-in has not returned, so the latest auth_time is unknown
	case isLatest && response.parameters.Get("error") != "":
		next.SignedInAt = visit.SignedInAt
	default:
		return
	}
	browser.SetProviderVisit(w, p.Issuer, next)
}

// confirmOrContinue continues with the person of a response. If the provider may have returned someone other than the person in
// front of the browser, the person must confirm first.
func (f *federation) confirmOrContinue(w http.ResponseWriter, r *http.Request, p *people.Provider, req *Request, response *authenticationResponse, user *people.User, newSession session.Session) {
	stored, err := f.renderer.Header.Sessions.FindByBrowser(r)
	signsInAgain := stored != nil && stored.SID == response.pending.SID && stored.User == user.ID && !req.Parameters.HasPrompt("login")
	replacesOther := stored != nil && stored.SID != response.pending.SID && stored.User != user.ID // who signed in after the start
	switch {
	case err != nil:
		req.Purpose.Reject(w, r, err)
	case replacesOther, !signsInAgain && response.mustConfirm(browser.FindProviderVisit(r, p.Issuer), user):
		question := pendingSecondFactor{Session: newSession, Query: req.Query, Mark: response.pending.mark()}
		if stored != nil {
			question.ReplacedSID = stored.SID
		}
		f.secondFactor.requireConfirmation(w, r, req, user, question)
	default:
		f.secondFactor.require(w, r, req, user, newSession)
	}
}

// mustConfirm reports whether the person must confirm the identity of a response: if someone used this browser at the provider
// before, or if the person differs from the login_hint, unless the person has just authenticated there. Without auth_time, the
// requested prompt decides. A typed address of the person confirms the identity.
func (a *authenticationResponse) mustConfirm(visit *browser.ProviderVisit, user *people.User) bool {
	matches := func(hint string) bool { return hint == a.identity.Subject || user.MatchesLoginHint(hint) }
	hint, ask := a.pending.TypedHint, a.pending.Request
	isCurrent := visit != nil && visit.Mark == a.pending.mark() && visit.Stage == browser.VisitStarted
	switch {
	case isCurrent && hint != "" && matches(hint):
		return false
	case isCurrent && !a.pending.Visited && (ask.LoginHint == "" || matches(ask.LoginHint)):
		return false
	case a.identity.AuthTime.IsZero():
		return !ask.SwitchAccount && !slices.ContainsFunc(strings.Fields(ask.Prompt), func(word string) bool { return word == "login" || word == "select_account" })
	}
	return !a.isFresh(visit, isCurrent)
}

// isFresh reports whether the person has authenticated at the provider since the start of the sign-in and since the last visit. If
// another sign-in has not returned, its person may have authenticated after this start, though not within a second.
func (a *authenticationResponse) isFresh(visit *browser.ProviderVisit, isCurrent bool) bool {
	authTime, started := a.identity.AuthTime, a.pending.StartedAt.Truncate(time.Second)
	switch {
	case visit == nil || authTime.Before(started):
		return false
	case !authTime.After(started.Add(time.Second)):
		return true
	case isCurrent:
		return !a.pending.OtherPending && authTime.After(visit.SignedInAt)
	}
	return visit.Mark != a.pending.mark() && visit.Stage != browser.VisitStarted && !visit.SignedInAt.IsZero() && authTime.After(visit.SignedInAt)
}

// isDisconnected reports whether an error only means that the browser has disconnected, so there
// is no response to send and nothing to log.
func isDisconnected(r *http.Request, err error) bool {
	return errors.Is(err, context.Canceled) && r.Context().Err() != nil
}

// authenticate returns the person of a response and the session to start.
func (f *federation) authenticate(r *http.Request, p *people.Provider, req *Request, response *authenticationResponse) (user *people.User, newSession session.Session, err error) {
	if !f.accounts.SignInMethods(req.Destination.Providers).Includes(p.Key) {
		return nil, newSession, people.NewNotAllowedError(errors.New("identity provider not permitted for this client"))
	}
	identity, err := f.exchange(r.Context(), p, response)
	if err != nil {
		return nil, newSession, err
	}
	response.identity = identity
	audit.RecordAuthenticated(r.Context())
	user, err = f.accounts.Admit(r.Context(), p, p.Identity(identity), req.Destination.NeedsFHIRUser)
	if err != nil {
		return nil, newSession, err
	}
	newSession = session.Session{
		User: user.ID, Provider: p.Key, UpstreamRequestedAt: store.Now(f.accounts.DurableStore).Add(-time.Since(identity.RequestedAt)), SignedInAt: identity.AuthTime, AMR: p.ACRMap.AMR(identity.Claims, p.ACRClaim),
		UpstreamSubject: identity.Subject, ProviderTokens: identity.ProviderTokens,
	}
	if sid, _ := identity.Claims["sid"].(string); len(sid) <= session.MaxUpstreamSIDBytes {
		newSession.UpstreamSession = sid
	}
	if p.KeepUpstreamToken {
		newSession.UpstreamIDToken = identity.IDToken
	}
	return user, newSession, nil
}

// exchange redeems a response for an identity, once per state. If the sign-in then fails at the gateway, exchange returns the
// same identity again for the same response.
func (f *federation) exchange(ctx context.Context, p *people.Provider, response *authenticationResponse) (*relyingparty.Identity, error) {
	state, q := response.pending.Request.State, response.parameters
	if identity := f.failedIdentities.pop(state); identity != nil {
		return identity, nil
	}
	// A provider may treat a code sent twice as stolen and revoke its tokens. If the store is full
	// or fails, that risk is accepted, so that floods do not block other sign-ins.
	usedKey := store.Key("used-state", state)
	if err := f.store.Add(ctx, usedKey, nil, pendingLifetime); errors.Is(err, store.ErrExists) {
		return nil, errResponseUsed
	}
	identity, err := p.Client.Exchange(ctx, relyingparty.Callback{
		Code: q.Get("code"), Issuer: q.Get("iss"), Error: q.Get("error"), ErrorDescription: q.Get("error_description"),
	}, response.pending.Request)
	if err != nil {
		// The key is deleted, because anyone can send forged responses, which must not fill the store.
		return nil, errors.Join(err, f.store.Delete(context.WithoutCancel(ctx), usedKey))
	}
	if oldest := f.usedStates.Record(p.Key+"\x00"+identity.Subject, usedKey); oldest != nil {
		_ = f.store.Do(ctx, oldest...) // on error, the entries expire
	}
	return identity, nil
}

// forwardedErrors lists the provider's error codes that are sent to the client (RFC 6749 §4.1.2.1,
// OpenID Connect Core §3.1.2.6, and unmet_authentication_requirements of OpenID Connect Core Error
// Code unmet_authentication_requirements §2, because acr_values is forwarded).
var forwardedErrors = []string{
	"access_denied", "login_required", "interaction_required", "consent_required",
	"account_selection_required", "temporarily_unavailable", "unmet_authentication_requirements",
}

// cancellations lists nonstandard error codes that mean access_denied. Apple sends them if the person cancels.
var cancellations = []string{"user_cancelled_authorize", "user_cancelled_login"}

// clientError converts a provider's error into an error for the client, with the wording of docs/evidence/interface.md §7 or
// the provider's code. All other errors become server_error and are only logged.
func clientError(p *people.Provider, err error) error {
	var own *oauth2.Error
	var providerCode *relyingparty.Error
	if errors.As(err, &own) || !errors.As(err, &providerCode) {
		return err
	}
	if text, ok := providerCode.Description(p.Name, p.Google); ok {
		return &oauth2.Error{Code: "invalid_request", Description: text, DescribeToClient: true, Err: err}
	}
	code := providerCode.Code
	if slices.Contains(cancellations, code) {
		code = "access_denied"
	}
	if providerCode.Kind == relyingparty.AuthorizationFailed && slices.Contains(forwardedErrors, code) {
		return &oauth2.Error{Code: code, Description: "denied by the identity provider", Err: err}
	}
	return err
}

// pendingSignIn is a sign-in at a provider, stored in the browser as a sealed cookie. A response without this browser's cookie
// was not requested (RFC 9700 §4.7).
type pendingSignIn struct {
	Provider string                             `json:"provider"`
	Issuer   string                             `json:"issuer"` // issuer of the provider at the start
	Request  relyingparty.AuthenticationRequest `json:"request"`
	Query    string                             `json:"query"`             // query of the authorization request
	SID      string                             `json:"sid,omitempty"`     // session of the browser at the start; "" without a session
	Renewal  bool                               `json:"renewal,omitempty"` // see [Renewal]

	StartedAt time.Time `json:"started,omitzero"`     // time of the redirect to the provider
	Visited   bool      `json:"visited,omitempty"`    // whether the browser had visited the provider before
	TypedHint string    `json:"typed_hint,omitempty"` // address typed on the sign-in page

	// OtherPending is whether another sign-in at the provider was started and had not returned: its person may authenticate after
	// this start.
	OtherPending bool `json:"other_pending,omitempty"`
}

// mark identifies the sign-in in [browser.ProviderVisit].
func (p *pendingSignIn) mark() string {
	return strings.TrimPrefix(pendingCookieName(p.Request.State), browser.PendingPrefix)
}

var errNoPendingSignIn = oauth2.NewRestartError("This sign-in has expired, was started in another browser, or is already complete. Go back to the app and sign in again.")

// pendingLifetime is the maximum duration of a sign-in at a provider.
const pendingLifetime = 10 * time.Minute

// newPendingSignIn returns a new sign-in at a provider with a new state, nonce and PKCE verifier.
func newPendingSignIn(p *people.Provider, query string) pendingSignIn {
	parameters, _ := oauth2.ReadQuery(query) // the gateway encoded the query
	return pendingSignIn{Provider: p.Key, Issuer: p.Issuer, Query: query, StartedAt: time.Now(), Request: relyingparty.AuthenticationRequest{
		State: oauth2.RandomToken(), Nonce: oauth2.RandomToken(), Verifier: oauth2.RandomToken(), Extra: p.ExtraParameters(parameters),
	}}
}

// pendingCookieName returns the cookie name of a sign-in, which is unique so that tabs do not overwrite each other's cookies.
func pendingCookieName(state string) string {
	return browser.PendingPrefix + strings.TrimPrefix(store.Key("", state), ":")[:12]
}

// setCookie seals a pending sign-in into its cookie.
func (p pendingSignIn) setCookie(sealer *browser.Sealer, w http.ResponseWriter, r *http.Request) error {
	sealed, err := sealer.SealJSON(w, r, "idp", p)
	if err != nil {
		return err
	}
	if err := rememberRequest(sealer, w, r, p.Request.State, sealedRequest{byOtherPerson: p.Request.SwitchAccount, query: p.Query}); err != nil {
		return err
	}
	return browser.SetChunkedCookie(w, r, pendingCookieName(p.Request.State), sealed, pendingLifetime)
}

// redirect redirects the browser of a signed-in person to a provider and reports success. An error is treated as an outage,
// during which the session continues.
func (p pendingSignIn) redirect(sealer *browser.Sealer, w http.ResponseWriter, r *http.Request, to *people.Provider, req *Request) bool {
	target, err := to.Client.AuthenticationURL(r.Context(), p.Request)
	if err == nil {
		err = p.setCookie(sealer, w, r)
	}
	if err == nil {
		err = req.MarkUsed(r.Context())
	}
	if err != nil {
		return false
	}
	endpoint.Redirect(w, http.StatusFound, target)
	return true
}

// readPending unseals the cookie of the sign-in with the given state. The cookie is removed at the end of the sign-in.
func readPending(sealer *browser.Sealer, r *http.Request, state string) (pending pendingSignIn, err error) {
	err = sealer.UnsealJSON(r, "idp", browser.ReadChunkedCookie(r, pendingCookieName(state)), pendingLifetime, errNoPendingSignIn, &pending)
	if err == nil && pending.Request.State != state {
		err = errNoPendingSignIn
	}
	return pending, err
}

const maxIdentities = 1000 // above this limit, people have to start again

// identities stores the identities of sign-ins that failed after the code exchange, by state, because the provider would not
// accept the code again. Only the browser of the sign-in can use an identity.
type identities struct {
	mu    sync.Mutex // makes pop and the size check atomic
	items *cache.Cache
}

func newIdentities() *identities { return &identities{items: cache.New(pendingLifetime, 0)} }

func (i *identities) put(state string, identity *relyingparty.Identity) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.items.ItemCount() >= maxIdentities {
		i.items.DeleteExpired()
	}
	if i.items.ItemCount() < maxIdentities {
		i.items.SetDefault(state, identity)
	}
}

// pop removes and returns the identity of a state, or nil.
func (i *identities) pop(state string) *relyingparty.Identity {
	i.mu.Lock()
	defer i.mu.Unlock()
	identity, ok := i.items.Get(state)
	if !ok {
		return nil
	}
	i.items.Delete(state)
	return identity.(*relyingparty.Identity)
}

// maxRejectionSize is the maximum size of a [rejection] in bytes, because it is part of a URL.
const maxRejectionSize = 10 << 10

// rejectionLifetime is the lifetime of the page for rejected people. Its URL contains the person's ID token.
const rejectionLifetime = 10 * time.Minute

// rejection is a sign-in at a provider by a person whom the gateway does not admit. The browser stores it in sealed form. The
// gateway does not store it.
type rejection struct {
	Provider string       `json:"provider"`
	Person   people.Label `json:"person"`
	IDToken  string       `json:"id_token,omitempty"` // hint for logout at the provider
	Query    string       `json:"query"`              // query of the authorization request
}

// rejectionPage shows a page to people who are not admitted. They can sign out at the provider there. Otherwise, the provider
// would sign in the same person for every later user of the browser.
type rejectionPage struct {
	renderer      *Renderer
	requests      *requestRestorer
	accounts      *people.Accounts
	accountSwitch *accountSwitch
}

// redirect sends the browser to the page, from which the app receives its error.
func (f *rejectionPage) redirect(w http.ResponseWriter, r *http.Request, p *people.Provider, req *Request, identity *relyingparty.Identity) {
	rejected := rejection{Provider: p.Key, Person: p.Label(identity), IDToken: identity.IDToken, Query: req.Query}
	if len(rejected.IDToken)+len(rejected.Query) > maxRejectionSize {
		rejected.IDToken = ""
	}
	sealed, err := f.renderer.Sealer.SealJSON(w, r, "refused", rejected)
	f.renderer.redirectSealed(w, r, req, http.StatusSeeOther, endpoint.Login+"?refused=", sealed, err)
}

func (f *rejectionPage) serve(w http.ResponseWriter, r *http.Request, parameters oauth2.Parameters) {
	rejected, err := f.unseal(r, parameters.Get("refused"))
	p := f.accounts.Providers[rejected.Provider]
	if err == nil && p == nil {
		err = WithRestart(ErrPageExpired, rejected.Query)
	}
	if err != nil {
		f.renderer.ShowError(w, r, err)
		return
	}
	audit.FromContext(r.Context()).Provider = p.Key
	audit.RecordAuthenticated(r.Context()) // authenticated by the provider
	req, err := f.requests.restore(r.Context(), rejected.Query)
	switch {
	case f.renderer.RejectIfError(w, r, req, err):
	case parameters.Get("decision") == "deny":
		req.Purpose.Reject(w, r, people.ErrNotAllowed)
	case r.Method == http.MethodPost:
		f.signOut(w, r, p, req, rejected)
	default:
		// If the provider is unreachable now, the button tries again.
		signsOut, _ := p.Client.EndSessionURL(r.Context(), "", "", "")
		f.renderer.Show(w, r, req, page.View{Template: "refused", Status: http.StatusForbidden, Data: page.SignInRejected{
			Client: req.Destination.Title, SealedSignIn: parameters.Get("refused"), Person: page.Person(rejected.Person), Provider: p.Name, SupportsLogout: signsOut != "",
		}}, signsOut)
	}
}

func (f *rejectionPage) unseal(r *http.Request, sealed string) (rejected rejection, err error) {
	if err = f.renderer.Sealer.UnsealJSON(r, "refused", sealed, rejectionLifetime, ErrPageExpired, &rejected); err != nil {
		err = WithRestart(err, recoverQuery(f.renderer.Sealer, r, "refused", sealed))
	}
	return rejected, err
}

// signOut signs the person out at the provider and starts another sign-in there. If there is no end_session_endpoint, the
// provider is only asked to let the person select another account.
func (f *rejectionPage) signOut(w http.ResponseWriter, r *http.Request, p *people.Provider, req *Request, rejected rejection) {
	req.byOtherPerson = true
	sealed, err := f.renderer.sealRequest(w, r, req)
	next := providerURL(p, sealed, req.byOtherPerson)
	var target string
	if err == nil {
		browser.EndProviderVisits(w, r, "")
		target, err = f.accountSwitch.logoutURL(w, r, p, rejected.IDToken, next)
	}
	if err != nil {
		req.Purpose.Reject(w, r, err)
		return
	}
	endpoint.Redirect(w, http.StatusSeeOther, cmp.Or(target, next))
}
