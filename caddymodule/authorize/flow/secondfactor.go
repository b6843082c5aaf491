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
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// secondFactorTime is how long after the first factor the second one may come.
const secondFactorTime = 5 * time.Minute

var errCodeTooLate = oauth2.StartAgain("This sign-in took too long, was begun in another browser, or is already over. Go back to the app and sign in from there again.")

// halfSignIn is a sign-in of which the first factor was right. It is no session
// and becomes one by nothing but the second factor: no other endpoint knows it.
type halfSignIn struct {
	Session session.Session `json:"session"` // as it will be
	Query   string          `json:"query"`   // of the authorization request
	Browser string          `json:"browser"`

	user *people.User
	req  *authorizationRequest
}

// secondFactorStep asks for the second factor where there is one, and completes sign-ins.
type secondFactorStep struct {
	*step
	store    store.Store // of sign-ins of which the first factor was right
	sessions *session.Sessions
	limiter  *lockout.Limiter
	factors  *people.OTP
	answers  *answers
}

// admitted goes on with a person whose password, or provider, says who they are:
// to the second factor if they have one, or else to the answer. Where a provider
// signed them in without a page, because the client wants none (prompt=none), there
// must be none for the second factor either (OpenID Connect Core §3.1.2.1).
func (f *secondFactorStep) admitted(w http.ResponseWriter, r *http.Request, req *authorizationRequest, user *people.User, session session.Session) {
	audit.NoteAuthenticated(r.Context())
	if user.TOTPSecret == "" {
		f.complete(w, r, req, user, session)
		return
	}
	if req.prompts("none") {
		err := &oauth2.Error{Code: "login_required", Description: "the second factor needs a page, and prompt is none"}
		f.trail.Record(r.Context(), audit.Event{Kind: audit.SignIn, ClientID: req.client.ID, User: user.ID, Provider: session.Provider, Err: err})
		f.responses.redirectError(w, r, req, err)
		return
	}
	session.User, session.Credential = user.ID, user.Credential()
	id, err := f.keepHalf(r.Context(), halfSignIn{Session: session, Query: ascii(req.query), Browser: f.browsers.ID(w, r)})
	if err == nil {
		err = req.spent(r.Context())
	}
	if err != nil {
		f.responses.redirectError(w, r, req, err)
		return
	}
	w.Header().Set("Location", endpoint.Login+"?factor="+url.QueryEscape(id))
	w.WriteHeader(http.StatusSeeOther)
}

// complete makes the session and answers the client.
func (f *secondFactorStep) complete(w http.ResponseWriter, r *http.Request, req *authorizationRequest, user *people.User, session session.Session) {
	signedIn, err := f.sessions.Start(w, r, user, session)
	event := audit.Event{Kind: audit.SignIn, ClientID: req.client.ID, User: user.ID, Provider: session.Provider, Err: err}
	f.trail.Record(r.Context(), event)
	if err != nil {
		f.responses.redirectError(w, r, req, err)
		return
	}
	f.answers.answer(w, r, req, signedIn)
}

func (f *secondFactorStep) keepHalf(ctx context.Context, half halfSignIn) (id string, err error) {
	value, err := json.Marshal(half)
	if err != nil {
		return "", err
	}
	id = oauth2.RandomToken()
	return id, f.store.Add(ctx, store.Key("factor", id), value, secondFactorTime)
}

// half reads the sign-in that a page is about, and checks again whatever may
// have changed since the first factor.
func (f *secondFactorStep) half(r *http.Request, id string) (*halfSignIn, error) {
	value, err := f.store.Get(r.Context(), store.Key("factor", id))
	if errors.Is(err, store.ErrNotFound) {
		return nil, errCodeTooLate
	}
	half := new(halfSignIn)
	if err == nil {
		err = json.Unmarshal(value, half)
	}
	if err != nil {
		return nil, fmt.Errorf("reading a sign-in: %w", err)
	}
	if half.user, err = f.sessions.User(r.Context(), &half.Session); err != nil {
		return nil, err
	}
	if !browser.Is(r, half.Browser) || half.user == nil {
		return nil, errCodeTooLate
	}
	half.req, err = f.requests.authorizationRequest(r.Context(), half.Query)
	return half, err
}

// secondFactor is the page that asks for the code: GET shows it, POST takes it.
func (f *secondFactorStep) secondFactor(w http.ResponseWriter, r *http.Request, p oauth2.Parameters) {
	half, err := f.half(r, p.Get("factor"))
	switch {
	case half == nil:
		f.responses.refuse(w, r, err)
	case f.responses.failed(w, r, half.req, err):
	case r.Method == http.MethodPost:
		f.takeCode(w, r, half, p)
	default:
		f.pages.showSecondFactor(w, r, http.StatusOK, half.req, secondFactorPage{Factor: p.Get("factor")})
	}
}

func (f *secondFactorStep) takeCode(w http.ResponseWriter, r *http.Request, half *halfSignIn, p oauth2.Parameters) {
	counters, err := f.limiter.Counters(r, lockout.Code, half.user.ID, half.user.ID)
	var used *people.UsedStep
	if err == nil {
		err = f.limiter.Try(r.Context(), counters, people.ErrWrongCode, func() (err error) {
			used, err = f.factors.UseCode(r.Context(), half.user, p.Get("code"))
			return err
		})
	}
	page := secondFactorPage{Factor: p.Get("factor")}
	event := audit.Event{Kind: audit.SignIn, ClientID: half.req.client.ID, User: half.user.ID, Provider: half.Session.Provider, Err: err}
	var wait *lockout.WaitError
	switch {
	case errors.As(err, &wait):
		f.trail.RecordLockout(r.Context(), event)
		page.Wait = lockout.SetRetryAfter(w, wait.Wait)
		f.pages.showSecondFactor(w, r, http.StatusTooManyRequests, half.req, page)
	case errors.Is(err, people.ErrWrongCode):
		f.trail.Record(r.Context(), event)
		page.Wrong = true
		f.pages.showSecondFactor(w, r, http.StatusForbidden, half.req, page)
	case errors.Is(err, context.Canceled): // nobody is there any more
	case err != nil:
		f.responses.redirectError(w, r, half.req, err)
	default:
		half.Session.AMR = slices.Concat(half.Session.AMR, []string{"otp", "mfa"})
		over := false
		half.req.spend = func(ctx context.Context) error {
			err := f.store.Delete(ctx, store.Key("factor", p.Get("factor")))
			over = err == nil
			return err
		}
		if f.complete(w, r, half.req, half.user, half.Session); !over {
			f.factors.ReleaseCode(r.Context(), half.user, used)
		}
	}
}
