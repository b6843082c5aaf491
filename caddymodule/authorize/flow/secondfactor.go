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
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/browser"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/lockout"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// secondFactorLifetime is how long the page for the second factor can be used.
const secondFactorLifetime = 5 * time.Minute

var errCodeTooLate = oauth2.StartAgain("This sign-in took too long, was begun in another browser, or is already over. Go back to the app and sign in from there again.")

// pendingSecondFactor is a sign-in after its first factor. It is no session, and no other
// endpoint knows it.
type pendingSecondFactor struct {
	Session session.Session `json:"session"` // to be started
	Query   string          `json:"query"`   // of the authorization request
	Browser string          `json:"browser"`

	user *people.User
	req  *authorizationRequest
}

// secondFactorStep asks for the second factor of those who have one, and starts sessions.
type secondFactorStep struct {
	*step
	store      store.Store // of pending second factors
	sessions   *session.Sessions
	limiter    *lockout.Limiter
	factors    *people.OTP
	authorizer *authorizer
}

// begin continues after the first factor: it asks for the second, or starts the session if
// there is none. With prompt=none there is no page to ask on (OpenID Connect Core §3.1.2.1).
func (f *secondFactorStep) begin(w http.ResponseWriter, r *http.Request, req *authorizationRequest, user *people.User, session session.Session) {
	audit.NoteAuthenticated(r.Context())
	if user.TOTPSecret == "" {
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
	id, err := f.storePending(r.Context(), pendingSecondFactor{Session: session, Query: ascii(req.query), Browser: browser.ID(w, r)})
	if err == nil {
		err = req.markUsed(r.Context())
	}
	if err != nil {
		f.responses.redirectError(w, r, req, err)
		return
	}
	redirect(w, http.StatusSeeOther, endpoint.Login+"?factor="+url.QueryEscape(id))
}

func (f *secondFactorStep) startSession(w http.ResponseWriter, r *http.Request, req *authorizationRequest, user *people.User, session session.Session) {
	signedIn, err := f.sessions.Start(w, r, user, session)
	f.trail.Record(r.Context(), audit.Event{Kind: audit.SignIn, ClientID: req.client.ID, User: user.ID, Provider: session.Provider, Err: err})
	if err != nil {
		f.responses.redirectError(w, r, req, err)
		return
	}
	f.authorizer.authorize(w, r, req, signedIn)
}

func (f *secondFactorStep) storePending(ctx context.Context, pending pendingSecondFactor) (id string, err error) {
	value, err := json.Marshal(pending)
	if err != nil {
		return "", err
	}
	id = oauth2.RandomToken()
	return id, f.store.Add(ctx, store.Key("factor", id), value, secondFactorLifetime)
}

// readPending reads a pending second factor, and checks what may have changed since.
func (f *secondFactorStep) readPending(r *http.Request, id string) (*pendingSecondFactor, error) {
	pending, err := store.GetJSON[pendingSecondFactor](r.Context(), f.store, store.Key("factor", id))
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading a sign-in: %w", err)
	case pending == nil:
		return nil, errCodeTooLate
	}
	if pending.user, err = f.sessions.User(r.Context(), &pending.Session); err != nil {
		return nil, err
	}
	if !browser.Is(r, pending.Browser) || pending.user == nil {
		return nil, errCodeTooLate
	}
	pending.req, err = f.requests.check(r.Context(), pending.Query)
	return pending, err
}

func (f *secondFactorStep) serve(w http.ResponseWriter, r *http.Request, p oauth2.Parameters) {
	pending, err := f.readPending(r, p.Get("factor"))
	switch {
	case pending == nil:
		f.responses.showError(w, r, err)
	case f.responses.failed(w, r, pending.req, err):
	case r.Method == http.MethodPost && p.Get("decision") == "deny":
		f.deny(w, r, pending, p)
	case r.Method == http.MethodPost:
		f.submit(w, r, pending, p)
	default:
		f.pages.showSecondFactor(w, r, http.StatusOK, pending.req, page.SecondFactor{Factor: p.Get("factor")})
	}
}

// deny ends the sign-in.
func (f *secondFactorStep) deny(w http.ResponseWriter, r *http.Request, pending *pendingSecondFactor, p oauth2.Parameters) {
	if err := f.store.Delete(r.Context(), store.Key("factor", p.Get("factor"))); err != nil {
		f.responses.redirectError(w, r, pending.req, err)
		return
	}
	f.responses.redirectError(w, r, pending.req, errDenied)
}

func (f *secondFactorStep) submit(w http.ResponseWriter, r *http.Request, pending *pendingSecondFactor, p oauth2.Parameters) {
	req, user := pending.req, pending.user
	counters, err := f.limiter.Counters(r, lockout.Code, user.ID, user.ID)
	var used *people.UsedStep
	if err == nil {
		err = f.limiter.Attempt(r.Context(), counters, people.ErrWrongCode, func() (err error) {
			used, err = f.factors.UseCode(r.Context(), user, p.Get("code"))
			return err
		})
	}
	data := page.SecondFactor{Factor: p.Get("factor")}
	event := audit.Event{Kind: audit.SignIn, ClientID: req.client.ID, User: user.ID, Provider: pending.Session.Provider, Err: err}
	var wait *lockout.WaitError
	switch {
	case errors.As(err, &wait):
		f.trail.RecordLockout(r.Context(), event)
		lockout.SetRetryAfter(w, wait.Wait)
		data.Wait = wait.Wait
		f.pages.showSecondFactor(w, r, http.StatusTooManyRequests, req, data)
	case errors.Is(err, people.ErrWrongCode):
		f.trail.Record(r.Context(), event)
		data.Wrong = true
		f.pages.showSecondFactor(w, r, http.StatusForbidden, req, data)
	case errors.Is(err, context.Canceled): // the browser has disconnected
	case err != nil:
		f.responses.redirectError(w, r, req, err)
	default:
		pending.Session.AMR = slices.Concat(pending.Session.AMR, []string{"otp", "mfa"})
		done := false
		req.onUse = func(ctx context.Context) error {
			err := f.store.Delete(ctx, store.Key("factor", p.Get("factor")))
			done = err == nil
			return err
		}
		if f.startSession(w, r, req, user, pending.Session); !done {
			f.factors.ReleaseCode(r.Context(), user, used)
		}
	}
}
