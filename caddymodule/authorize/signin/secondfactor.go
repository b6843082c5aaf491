package signin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
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

// secondFactor requests the second factor from people who have enrolled one.
type secondFactor struct {
	renderer *Renderer
	requests *requestRestorer
	pending  *pendingFactors
	sessions *session.Sessions
	limiter  *lockout.Limiter
	factors  *factor.Factors
	start    *sessionStarter
	accounts *people.Accounts

	beginSignIn       func(w http.ResponseWriter, r *http.Request, req *Request)                           // [SignIn.Begin]
	beginAfterRefusal func(w http.ResponseWriter, r *http.Request, req *Request, refused *session.Session) // [SignIn.beginAfterRefusal]
}

// requireConfirmation asks the person in front of the browser whether to continue as the user whom a provider returned. Until then,
// there is no session.
func (f *secondFactor) requireConfirmation(w http.ResponseWriter, r *http.Request, req *Request, user *people.User, question pendingSecondFactor) {
	audit.RecordAuthenticated(r.Context())
	f.redirect(w, r, req, user, question, errOtherPerson)
}

// redirect redirects the browser to the page of a pending sign-in. prompt=none forbids the page (OpenID Connect Core §3.1.2.1): the
// request is then rejected with silentErr.
func (f *secondFactor) redirect(w http.ResponseWriter, r *http.Request, req *Request, user *people.User, pending pendingSecondFactor, silentErr *oauth2.Error) {
	if req.Parameters.HasPrompt("none") {
		f.renderer.Trail.Record(r.Context(), audit.Event{Kind: audit.KindSignIn, ClientID: req.Destination.ClientID, User: user.ID, Person: pending.Session.UpstreamPerson(), Err: silentErr})
		req.Purpose.Reject(w, r, silentErr)
		return
	}
	pending.Session.User, pending.Session.CredentialDigest = user.ID, user.Credential()
	f.pending.redirect(w, r, req, pending)
}

// showConfirmation shows the page for [secondFactor.requireConfirmation]. It offers only another account if the request does not
// permit the user.
func (f *secondFactor) showConfirmation(w http.ResponseWriter, r *http.Request, pending *pendingSecondFactor) {
	data := page.SelectAccount{SignIn: pending.sealed, Client: pending.req.Destination.Title}
	if pending.req.Parameters.PermitsSubject(pending.user.ID) {
		data.Person = page.Person(pending.user.Label())
	}
	signsOut := ""
	if p := f.accounts.Providers[pending.Session.Provider]; p != nil {
		signsOut, _ = p.Client.EndSessionURL(r.Context(), "", "", "") // determined again when the button is pressed
	}
	f.renderer.Show(w, r, pending.req, page.View{Template: "selectaccount", Data: data}, signsOut)
}

// confirm continues after the page for [secondFactor.requireConfirmation].
func (f *secondFactor) confirm(w http.ResponseWriter, r *http.Request, pending *pendingSecondFactor, decision string) {
	pending.req.SingleUse = f.pending.completion(pending, nil)
	switch decision {
	case "other":
		f.beginAfterRefusal(w, r, pending.req, &pending.Session)
	case "continue":
		f.require(w, r, pending.req, pending.user, pending.Session)
	default:
		f.showConfirmation(w, r, pending)
	}
}

// errSilentFactor means that the request does not allow the page for the second factor.
var errSilentFactor = &oauth2.Error{Code: "login_required", Description: "a second factor is required, but prompt=none does not allow a page"}

// require continues after the first factor. It requests the second factor, or starts the session if none is enrolled.
func (f *secondFactor) require(w http.ResponseWriter, r *http.Request, req *Request, user *people.User, session session.Session) {
	audit.RecordAuthenticated(r.Context())
	enrolled, err := f.factors.Load(r.Context(), user)
	if err != nil {
		req.Purpose.Reject(w, r, err)
		return
	}
	if !enrolled.HasAny() {
		f.start.startSession(w, r, req, user, session)
		return
	}
	f.redirect(w, r, req, user, pendingSecondFactor{Session: session, Query: req.Query}, errSilentFactor)
}

// readPending reads a pending second factor and rechecks the account and session.
func (f *secondFactor) readPending(r *http.Request, sealed string) (*pendingSecondFactor, error) {
	pending, err := f.pending.unseal(r, sealed)
	if err != nil {
		return nil, err
	}
	stillSignedIn, err := f.isStillSignedIn(r, pending)
	if err != nil {
		return nil, err
	}
	if pending.user, err = f.sessions.User(r.Context(), &pending.Session); err != nil {
		return nil, err
	}
	if pending.user == nil || !stillSignedIn {
		return nil, withRestart(errSecondFactorExpired, sealedRequest{byOtherPerson: pending.Mark != "", query: pending.Query})
	}
	if pending.req, err = f.requests.restore(r.Context(), pending.Query); err == nil && pending.SID != "" {
		pending.req.SignedIn, err = f.sessions.CurrentPerson(r)
	}
	return pending, err
}

func (f *secondFactor) serve(w http.ResponseWriter, r *http.Request, p oauth2.Parameters) {
	pending, err := f.readPending(r, p.Get("factor"))
	switch {
	case pending == nil:
		if restartable, ok := errors.AsType[*restartableError](err); ok && p.Get("decision") == "other" {
			restartable.request.byOtherPerson = true
		}
		f.renderer.ShowError(w, r, err)
	case f.renderer.RejectIfError(w, r, pending.req, err):
	case p.Get("decision") == "deny":
		pending.req.SingleUse = f.pending.completion(pending, nil)
		pending.req.Purpose.Reject(w, r, ErrDenied)
	case pending.Mark != "" && r.Method == http.MethodPost:
		f.confirm(w, r, pending, p.Get("decision"))
	case pending.Mark != "":
		f.showConfirmation(w, r, pending)
	case p.Get("decision") == "other":
		pending.req.byOtherPerson = true // any session belongs to someone else and continues
		f.beginSignIn(w, r, pending.req)
	case r.Method == http.MethodPost:
		f.submit(w, r, pending, p)
	default:
		f.show(w, r, http.StatusOK, pending, page.SecondFactor{})
	}
}

// show shows the page with the person's available factors.
func (f *secondFactor) show(w http.ResponseWriter, r *http.Request, status int, pending *pendingSecondFactor, data page.SecondFactor) {
	enrolled, err := f.factors.Load(r.Context(), pending.user)
	data.Pending, data.AcceptsCode = pending.sealed, !pending.PasskeyOnly
	if err == nil && len(enrolled.Passkeys) > 0 && f.factors.Passkeys != nil {
		var c *factor.Ceremony
		c, err = f.factors.Passkeys.BeginSecondFactor(w, r, pending.user)
		data.Passkey = pagePasskey(c)
	}
	if err != nil {
		pending.req.Purpose.Reject(w, r, err)
		return
	}
	data.HasApp, data.HasRecoveryCodes = enrolled.HasApp(), len(enrolled.RecoveryCodeHashes) > 0
	data.Client = pending.req.Destination.Title
	if pending.req.SignedIn == nil {
		data.Person = page.Person(pending.user.Label())
	}
	f.renderer.Show(w, r, pending.req, page.View{Template: "secondfactor", Status: status, Script: passkeyScript(data.Passkey), Data: data})
}

// proof is a verified second factor.
type proof struct {
	amr     []string                  // methods (RFC 8176)
	release func(ctx context.Context) // makes the factor usable again after an internal error
}

// verify verifies the submitted factor.
func (f *secondFactor) verify(r *http.Request, pending *pendingSecondFactor, p oauth2.Parameters) (proof, error) {
	switch {
	case p.Get("assertion") != "" && f.factors.Passkeys != nil:
		verified, err := f.factors.Passkeys.VerifySecondFactor(r, pending.user, p.Get("passkey"), p.Get("assertion"))
		return proof{amr: verified.AMR, release: func(context.Context) {}}, err
	case pending.PasskeyOnly:
		return proof{}, people.ErrWrongCode
	}
	counters, _, err := f.limiter.Counters(r, lockout.KindCode, pending.user.ID, pending.user.ID)
	verifiedFactor := proof{amr: []string{"otp"}}
	if err == nil {
		err = f.limiter.Attempt(r.Context(), counters, people.ErrWrongCode, func() (err error) {
			verifiedFactor.release, err = f.factors.UseCode(r.Context(), pending.user, p.Get("code"))
			return err
		})
	}
	return verifiedFactor, err
}

func (f *secondFactor) submit(w http.ResponseWriter, r *http.Request, pending *pendingSecondFactor, p oauth2.Parameters) {
	verifiedFactor, err := f.verify(r, pending, p)
	event := audit.Event{Kind: audit.KindSignIn, ClientID: pending.req.Destination.ClientID, User: pending.user.ID, Person: pending.Session.UpstreamPerson(), Err: err}
	var wait *lockout.WaitError
	switch {
	case errors.As(err, &wait):
		f.renderer.Trail.RecordLockout(r.Context(), event)
		lockout.SetRetryAfter(w, wait.Wait)
		f.show(w, r, http.StatusTooManyRequests, pending, page.SecondFactor{Wait: wait.Wait})
	case errors.Is(err, people.ErrWrongCode):
		f.renderer.Trail.Record(r.Context(), event)
		f.show(w, r, http.StatusForbidden, pending, page.SecondFactor{WrongCode: true})
	case errors.Is(err, factor.ErrPasskeyRejected):
		f.renderer.Trail.Record(r.Context(), event)
		f.show(w, r, http.StatusForbidden, pending, page.SecondFactor{WrongPasskey: true})
	case errors.Is(err, context.Canceled): // browser has disconnected
	case err != nil:
		pending.req.Purpose.Reject(w, r, err)
	default:
		f.finish(w, r, pending, verifiedFactor)
	}
}

// finish starts the session or steps it up.
func (f *secondFactor) finish(w http.ResponseWriter, r *http.Request, pending *pendingSecondFactor, verifiedFactor proof) {
	for _, method := range append(verifiedFactor.amr, "mfa") {
		if !slices.Contains(pending.Session.AMR, method) {
			pending.Session.AMR = append(pending.Session.AMR, method)
		}
	}
	done := false
	pending.req.SingleUse = f.pending.completion(pending, func() error { done = true; return nil })
	if f.start.startSession(w, r, pending.req, pending.user, pending.Session); !done {
		verifiedFactor.release(r.Context())
	}
}

// isStillSignedIn reads the session to step up and reports whether the browser still has it, because an additional factor alone
// is not a sign-in.
func (f *secondFactor) isStillSignedIn(r *http.Request, pending *pendingSecondFactor) (bool, error) {
	if pending.Mark != "" {
		return f.isUnanswered(r, pending)
	}
	if pending.SID == "" {
		return true, nil
	}
	stored, err := f.sessions.FindByBrowser(r)
	if stored == nil || stored.SID != pending.SID || err != nil {
		return false, err
	}
	pending.Session = *stored
	return true, nil
}

// isUnanswered reports whether the browser still has the session of the time of the question, and has neither signed out nor
// started another sign-in at the provider since.
func (f *secondFactor) isUnanswered(r *http.Request, pending *pendingSecondFactor) (bool, error) {
	sid, err := f.renderer.Header.sid(r)
	p := f.accounts.Providers[pending.Session.Provider]
	if err != nil || p == nil || sid != pending.ReplacedSID {
		return false, err
	}
	visit := browser.FindProviderVisit(r, p.Issuer)
	return visit != nil && visit.Mark == pending.Mark && visit.Stage == browser.VisitCompleted, nil
}

const (
	// secondFactorLifetime is the lifetime of the page for the second factor.
	secondFactorLifetime = 5 * time.Minute

	// maxCompletedSignIns is the number of completed sign-ins remembered per person.
	maxCompletedSignIns = 200

	// maxPendingSize is the maximum size of a pending second factor in bytes, because it is part of a URL.
	maxPendingSize = 10 << 10
)

var errSecondFactorExpired = oauth2.NewRestartError("This sign-in has expired, was started in another browser, or is already complete. Go back to the app and sign in again.")

// pendingSecondFactor is a sign-in after the first factor, or one that the person must confirm. It is not a session and is accepted by no other endpoint. The
// browser stores it in sealed form, so that abandoned sign-ins use no memory.
type pendingSecondFactor struct {
	ID          string          `json:"id"`
	Session     session.Session `json:"session"`       // session to start
	SID         string          `json:"sid,omitempty"` // sid of the existing session to step up instead
	PasskeyOnly bool            `json:"passkey_only"`  // only passkeys are accepted, not codes
	Query       string          `json:"query"`         // query of the authorization request

	// Mark is the mark of the provider visit if the person must confirm the sign-in ([secondFactor.requireConfirmation]); otherwise
	// "". ReplacedSID is the sid of the browser's session at that time, or "".
	Mark        string `json:"mark,omitempty"`
	ReplacedSID string `json:"replaced_sid,omitempty"`

	sealed string
	user   *people.User
	req    *Request
}

// completedKey returns the key that marks the sign-in as completed.
func (p *pendingSecondFactor) completedKey() string { return store.Key("factor-used", p.ID) }

// pendingFactors seals pending second factors and records completed ones.
type pendingFactors struct {
	renderer  *Renderer
	store     store.Store
	completed *store.PerUserLimit
}

// redirect redirects the browser to the page for the second factor. The provider's ID token is
// dropped if the URL would become too long, because it is only a hint for logout.
func (ps *pendingFactors) redirect(w http.ResponseWriter, r *http.Request, req *Request, pending pendingSecondFactor) {
	pending.ID = oauth2.RandomToken()
	if len(pending.Session.UpstreamIDToken)+len(pending.Session.RefreshToken)+len(pending.Session.AccessToken)+len(pending.Query) > maxPendingSize {
		pending.Session.UpstreamIDToken = ""
	}
	sealed, err := ps.renderer.Sealer.SealJSON(w, r, "factor", pending)
	ps.renderer.redirectSealed(w, r, req, http.StatusSeeOther, endpoint.Login+"?factor=", sealed, err)
}

// unseal unseals a pending second factor of this browser, unless it was completed.
func (ps *pendingFactors) unseal(r *http.Request, sealed string) (*pendingSecondFactor, error) {
	pending := &pendingSecondFactor{sealed: sealed}
	if err := ps.renderer.Sealer.UnsealJSON(r, "factor", sealed, secondFactorLifetime, errSecondFactorExpired, pending); err != nil {
		return nil, WithRestart(err, recoverQuery(ps.renderer.Sealer, r, "factor", sealed))
	}
	switch _, err := ps.store.Get(r.Context(), pending.completedKey()); {
	case err == nil:
		return nil, WithRestart(errSecondFactorExpired, pending.Query)
	case !errors.Is(err, store.ErrNotFound):
		return nil, fmt.Errorf("checking for a completed sign-in: %w", err)
	}
	return pending, nil
}

// completion returns the single-use value that completes a sign-in.
func (ps *pendingFactors) completion(pending *pendingSecondFactor, after func() error) *SingleUseValue {
	return &SingleUseValue{
		Store: ps.store, Before: ps.completed.Record(pending.user.ID, pending.completedKey()), After: after,
		Call: &store.Call{Op: store.Put, Key: pending.completedKey(), TTL: secondFactorLifetime},
	}
}

var errMissingFactor = &oauth2.Error{Code: "unmet_authentication_requirements", Description: "the person has no second factor of the required class"}

// StepUp requests additional factors from signed-in people.
type StepUp struct {
	renderer *Renderer
	pending  *pendingFactors
	factors  *factor.Factors
	sessions *session.Sessions
	accounts *people.Accounts
}

// RespondIfNeeded requests an additional factor if required, or rejects the request, and reports whether it has responded.
// acr_values are requested only once and need not be met (OpenID Connect Core §3.1.2.1). A session that is older than the
// second factor is accepted only with that factor, except the session in which it was enrolled.
func (s *StepUp) RespondIfNeeded(w http.ResponseWriter, r *http.Request, req *Request, signedIn *session.SignedInPerson) bool {
	required, requested := req.requiredACR(), weakestACR(strings.Fields(req.Parameters.ACRValues))
	has := func(class string) bool { return class == "" || oauth2.MeetsACR(signedIn.ACR(), class) }
	if has(required) && has(requested) && (has(oauth2.ACRMultiFactor) || req.justSignedIn) {
		return false
	}
	enrolled, err := s.factors.Load(r.Context(), signedIn.User)
	if err == nil && enrolled.RequiresSecondFactor(factor.NewSessionContext(signedIn.SID, signedIn.ACR())) && !oauth2.MeetsACR(required, oauth2.ACRMultiFactor) {
		required = oauth2.ACRMultiFactor
	}
	can := func(class string) bool {
		return enrolled.HasAny() && (class != oauth2.ACRPhishingResistant || len(enrolled.Passkeys) > 0)
	}
	noPages := req.Parameters.HasPrompt("none")
	switch {
	case err != nil:
		req.Purpose.Reject(w, r, err)
	case has(required) && has(requested):
		return false
	case !has(requested) && can(requested) && !req.FactorsRequested && !noPages:
		s.requestFactor(w, r, req, required == oauth2.ACRPhishingResistant)
	case s.providerMaySupply(req, signedIn, !has(required) && !can(required), !has(requested) && !can(requested)):
		s.renderer.RedirectToPage(w, r, req, endpoint.Login+"/"+signedIn.Provider, loginPurpose, sealedRequest{sid: signedIn.SID, query: req.Query}.encode())
	case has(required):
		return false
	case can(required) && noPages:
		s.reject(w, r, req, signedIn, &oauth2.Error{Code: "login_required", Description: "an additional factor is required, but prompt=none does not allow a page"})
	case can(required):
		s.requestFactor(w, r, req, required == oauth2.ACRPhishingResistant)
	default:
		s.reject(w, r, req, signedIn, errMissingFactor)
	}
	return true
}

// providerMaySupply reports whether the person's identity provider may supply a factor that the person cannot supply here. The
// factor must be required, or requested if the provider has an acr value for it. After a sign-in there, the person is not
// redirected again.
func (s *StepUp) providerMaySupply(req *Request, signedIn *session.SignedInPerson, lacksRequired, lacksRequested bool) bool {
	p := s.accounts.Providers[signedIn.Provider]
	switch {
	case p == nil || req.justSignedIn:
		return false
	case lacksRequired:
		return oauth2.MeetsACR(oauth2.ACRMultiFactor, req.requiredACR())
	}
	isMapped := len(p.ACRMap.ProviderACRs(weakestACR(strings.Fields(req.Parameters.ACRValues)))) > 0
	return lacksRequested && isMapped && !req.FactorsRequested && !req.Parameters.HasPrompt("none")
}

func (s *StepUp) reject(w http.ResponseWriter, r *http.Request, req *Request, signedIn *session.SignedInPerson, err error) {
	s.renderer.Trail.Record(r.Context(), audit.Event{Kind: audit.KindSignIn, ClientID: req.Destination.ClientID, User: signedIn.User.ID, Person: audit.Person{Provider: signedIn.Provider, Subject: signedIn.Subject}, Err: err})
	req.Purpose.Reject(w, r, err)
}

// requestFactor redirects the browser to the page for the second factor. The session is unchanged until the
// factor has been verified.
func (s *StepUp) requestFactor(w http.ResponseWriter, r *http.Request, req *Request, passkeyOnly bool) {
	stored, err := s.sessions.FindByBrowser(r)
	if err == nil && stored == nil {
		err = ErrPageExpired
	}
	if err != nil {
		req.Purpose.Reject(w, r, err)
		return
	}
	s.pending.redirect(w, r, req, pendingSecondFactor{
		SID: stored.SID, Query: req.Query, PasskeyOnly: passkeyOnly,
	})
}
