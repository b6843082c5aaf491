package flow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/factor"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/lockout"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

const (
	// secondFactorLifetime is how long the page for the second factor can be used.
	secondFactorLifetime = 5 * time.Minute

	// maxUsedFactors is how many completed sign-ins of one person are remembered.
	maxUsedFactors = 200

	// maxPendingFactor bounds a pending second factor in bytes, which are in an address.
	maxPendingFactor = 10 << 10
)

var errCodeTooLate = oauth2.StartAgain("This sign-in took too long, was started in another browser, or is already over. Go back to the app and sign in from there again.")

// pendingSecondFactor is a sign-in after its first factor. It is no session, and no other
// endpoint knows it. The browser keeps it, sealed, so that one that is never completed takes no
// memory here.
type pendingSecondFactor struct {
	ID          string          `json:"id"`
	Session     session.Session `json:"session"`       // to be started
	SID         string          `json:"sid,omitempty"` // of the session to step up instead, if there is one already
	PasskeyOnly bool            `json:"passkey_only"`  // a code will not do
	Query       string          `json:"query"`         // of the authorization request

	sealed string
	user   *people.User
	req    *authorizationRequest
}

// usedKey is the key of the entry that says that a sign-in was completed.
func (p *pendingSecondFactor) usedKey() string { return store.Key("factor-used", p.ID) }

// pendingFactors seals pending second factors, and remembers the completed ones.
type pendingFactors struct {
	*step
	store store.Store
	used  *store.Latest
}

// redirect sends the browser to the page for the second factor.
func (ps *pendingFactors) redirect(w http.ResponseWriter, r *http.Request, req *authorizationRequest, pending pendingSecondFactor) {
	sealed, err := ps.seal(w, r, pending)
	if err == nil {
		err = req.markUsed(r.Context())
	}
	if err != nil {
		ps.responses.redirectError(w, r, req, err)
		return
	}
	redirect(w, http.StatusSeeOther, endpoint.Login+"?factor="+url.QueryEscape(sealed))
}

// seal drops the provider's ID token if it would make the address too long: it is only a hint for
// signing out there.
func (ps *pendingFactors) seal(w http.ResponseWriter, r *http.Request, pending pendingSecondFactor) (string, error) {
	pending.ID = oauth2.RandomToken()
	if len(pending.Session.UpstreamIDToken)+len(pending.Query) > maxPendingFactor {
		pending.Session.UpstreamIDToken = ""
	}
	text, err := json.Marshal(pending)
	if err != nil {
		return "", err
	}
	return ps.sealer.Seal(w, r, "factor", string(text))
}

// open opens what seal sealed for this browser, unless it was completed.
func (ps *pendingFactors) open(r *http.Request, sealed string) (*pendingSecondFactor, error) {
	text, err := ps.sealer.Unseal(r, "factor", sealed, secondFactorLifetime)
	if errors.Is(err, keyring.ErrUnsealed) {
		return nil, errCodeTooLate
	}
	pending := &pendingSecondFactor{sealed: sealed}
	if err == nil {
		err = json.Unmarshal([]byte(text), pending)
	}
	if err != nil {
		return nil, err
	}
	switch _, err = ps.store.Get(r.Context(), pending.usedKey()); {
	case err == nil:
		return nil, errCodeTooLate
	case !errors.Is(err, store.ErrNotFound):
		return nil, fmt.Errorf("reading a sign-in: %w", err)
	}
	return pending, nil
}

// completing returns what completes a sign-in.
func (ps *pendingFactors) completing(pending *pendingSecondFactor, after func() error) *singleUse {
	return &singleUse{
		store: ps.store, before: ps.used.Adding(pending.user.ID, pending.usedKey()), after: after,
		call: &store.Call{Op: store.Put, Key: pending.usedKey(), TTL: secondFactorLifetime},
	}
}

// secondFactorStep asks for the second factor of those who have one, and starts sessions.
type secondFactorStep struct {
	*step
	pending    *pendingFactors
	sessions   *session.Sessions
	limiter    *lockout.Limiter
	factors    *factor.Factors
	authorizer *authorizer
}

// begin continues after the first factor: it asks for the second, or starts the session if
// there is none. With prompt=none there is no page to ask on (OpenID Connect Core §3.1.2.1).
func (f *secondFactorStep) begin(w http.ResponseWriter, r *http.Request, req *authorizationRequest, user *people.User, session session.Session) {
	audit.NoteAuthenticated(r.Context())
	held, err := f.factors.Of(r.Context(), user)
	if err != nil {
		f.responses.redirectError(w, r, req, err)
		return
	}
	if !held.Any() {
		f.startSession(w, r, req, user, session)
		return
	}
	if req.prompts("none") {
		err := &oauth2.Error{Code: "login_required", Description: "the second factor needs a page, and prompt is none"}
		f.trail.Record(r.Context(), audit.Event{Kind: audit.SignIn, ClientID: req.client.ID, User: user.ID, Provider: session.Provider, Err: err})
		f.responses.redirectError(w, r, req, err)
		return
	}
	session.User, session.Credential = user.ID, user.Credential()
	f.pending.redirect(w, r, req, pendingSecondFactor{Session: session, Query: req.query})
}

func (f *secondFactorStep) startSession(w http.ResponseWriter, r *http.Request, req *authorizationRequest, user *people.User, session session.Session) {
	signedIn, err := f.sessions.Start(w, r, user, session)
	f.trail.Record(r.Context(), audit.Event{Kind: audit.SignIn, ClientID: req.client.ID, User: user.ID, Provider: session.Provider, Err: err})
	if err != nil {
		f.responses.redirectError(w, r, req, err)
		return
	}
	req.askedFactor, req.justSignedIn = true, true
	f.authorizer.authorize(w, r, req, signedIn)
}

// readPending reads a pending second factor, and checks what may have changed since.
func (f *secondFactorStep) readPending(r *http.Request, sealed string) (*pendingSecondFactor, error) {
	pending, err := f.pending.open(r, sealed)
	if err != nil {
		return nil, err
	}
	still, err := f.stillSignedIn(r, pending)
	if err != nil {
		return nil, err
	}
	if pending.user, err = f.sessions.User(r.Context(), &pending.Session); err != nil {
		return nil, err
	}
	if pending.user == nil || !still {
		return nil, errCodeTooLate
	}
	pending.req, err = f.requests.reopen(r.Context(), pending.Query)
	return pending, err
}

func (f *secondFactorStep) serve(w http.ResponseWriter, r *http.Request, p oauth2.Parameters) {
	pending, err := f.readPending(r, p.Get("factor"))
	switch {
	case pending == nil:
		f.responses.showError(w, r, err)
	case f.responses.failed(w, r, pending.req, err):
	case p.Get("decision") == "deny":
		pending.req.once = f.pending.completing(pending, nil)
		f.responses.redirectError(w, r, pending.req, errDenied)
	case r.Method == http.MethodPost:
		f.submit(w, r, pending, p)
	default:
		f.show(w, r, http.StatusOK, pending, page.SecondFactor{})
	}
}

// show shows the page, with what the person can answer by.
func (f *secondFactorStep) show(w http.ResponseWriter, r *http.Request, status int, pending *pendingSecondFactor, data page.SecondFactor) {
	held, err := f.factors.Of(r.Context(), pending.user)
	data.Factor, data.Code = pending.sealed, !pending.PasskeyOnly
	if err == nil && len(held.Passkeys) > 0 && f.factors.Passkeys != nil {
		var c *factor.Ceremony
		c, err = f.factors.Passkeys.BeginSecondFactor(w, r, pending.user)
		data.Passkey = passkeyPrompt(c)
	}
	if err != nil {
		f.responses.redirectError(w, r, pending.req, err)
		return
	}
	data.App, data.Recovery = held.HasApp(), len(held.Recovery) > 0
	f.pages.showSecondFactor(w, r, status, pending.req, data)
}

// proof is a right second factor.
type proof struct {
	amr     []string                  // how it was proved (RFC 8176)
	release func(ctx context.Context) // lets it be used again, if the sign-in fails through our fault
}

// prove checks the answer.
func (f *secondFactorStep) prove(r *http.Request, pending *pendingSecondFactor, p oauth2.Parameters) (proof, error) {
	switch {
	case p.Get("assertion") != "" && f.factors.Passkeys != nil:
		answered, err := f.factors.Passkeys.SecondFactor(r, pending.user, p.Get("passkey"), p.Get("assertion"))
		return proof{amr: answered.AMR, release: func(context.Context) {}}, err
	case pending.PasskeyOnly:
		return proof{}, people.ErrWrongCode
	}
	counters, _, err := f.limiter.Counters(r, lockout.Code, pending.user.ID, pending.user.ID)
	right := proof{amr: []string{"otp"}}
	if err == nil {
		err = f.limiter.Attempt(r.Context(), counters, people.ErrWrongCode, func() (err error) {
			right.release, err = f.factors.UseCode(r.Context(), pending.user, p.Get("code"))
			return err
		})
	}
	return right, err
}

func (f *secondFactorStep) submit(w http.ResponseWriter, r *http.Request, pending *pendingSecondFactor, p oauth2.Parameters) {
	right, err := f.prove(r, pending, p)
	event := audit.Event{Kind: audit.SignIn, ClientID: pending.req.client.ID, User: pending.user.ID, Provider: pending.Session.Provider, Err: err}
	var wait *lockout.WaitError
	switch {
	case errors.As(err, &wait):
		f.trail.RecordLockout(r.Context(), event)
		lockout.SetRetryAfter(w, wait.Wait)
		f.show(w, r, http.StatusTooManyRequests, pending, page.SecondFactor{Wait: wait.Wait})
	case errors.Is(err, people.ErrWrongCode):
		f.trail.Record(r.Context(), event)
		f.show(w, r, http.StatusForbidden, pending, page.SecondFactor{Wrong: true})
	case errors.Is(err, factor.ErrPasskey):
		f.trail.Record(r.Context(), event)
		f.show(w, r, http.StatusForbidden, pending, page.SecondFactor{WrongPasskey: true})
	case errors.Is(err, context.Canceled): // the browser has disconnected
	case err != nil:
		f.responses.redirectError(w, r, pending.req, err)
	default:
		f.finish(w, r, pending, right)
	}
}

// finish starts the session, or steps it up.
func (f *secondFactorStep) finish(w http.ResponseWriter, r *http.Request, pending *pendingSecondFactor, right proof) {
	for _, method := range append(right.amr, "mfa") {
		if !slices.Contains(pending.Session.AMR, method) {
			pending.Session.AMR = append(pending.Session.AMR, method)
		}
	}
	done := false
	pending.req.once = f.pending.completing(pending, func() error { done = true; return nil })
	if f.startSession(w, r, pending.req, pending.user, pending.Session); !done {
		right.release(r.Context())
	}
}
