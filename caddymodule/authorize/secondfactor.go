package authorize

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/totp"
)

// secondFactorTime is how long after the first factor the second one may come.
const secondFactorTime = 5 * time.Minute

var (
	errWrongCode   = &oauth2.Error{Code: "access_denied", Description: "wrong or used code of the second factor", Status: http.StatusForbidden}
	errCodeTooLate = oauth2.StartAgain("This sign-in took too long, was begun in another browser, or is already over. Go back to the app and sign in from there again.")
)

// halfSignIn is a sign-in of which the first factor was right. It is no session
// and becomes one by nothing but the second factor: no other endpoint knows it.
type halfSignIn struct {
	Session storedSession `json:"session"` // as it will be
	Query   string        `json:"query"`   // of the authorization request
	Browser string        `json:"browser"`

	user *User
	req  *authorizationRequest
}

// secondFactorStep asks for the second factor where there is one, and completes sign-ins.
type secondFactorStep struct {
	*step
	store    store.Store // of sign-ins of which the first factor was right
	sessions *sessions
	limiter  *turnstile
	factors  *otp
	answers  *answers
}

// admitted goes on with a person whose password, or provider, says who they are:
// to the second factor if they have one, or else to the answer. Where a provider
// signed them in without a page, because the client wants none (prompt=none), there
// must be none for the second factor either (OpenID Connect Core §3.1.2.1).
func (f *secondFactorStep) admitted(w http.ResponseWriter, r *http.Request, req *authorizationRequest, user *User, session storedSession) {
	noteProven(r.Context())
	if user.TOTPSecret == "" {
		f.complete(w, r, req, user, session)
		return
	}
	if req.prompts("none") {
		err := &oauth2.Error{Code: "login_required", Description: "the second factor needs a page, and prompt is none"}
		f.trail.record(r.Context(), audit.Event{Kind: audit.SignIn, ClientID: req.client.ID, User: user.ID, Provider: session.Provider, Err: err})
		f.responses.redirectError(w, r, req, err)
		return
	}
	session.User, session.Credential = user.ID, user.credential()
	id, err := f.keepHalf(r.Context(), halfSignIn{Session: session, Query: ascii(req.query), Browser: f.browsers.browser(w, r)})
	if err == nil {
		err = req.spent(r.Context())
	}
	if err != nil {
		f.responses.redirectError(w, r, req, err)
		return
	}
	w.Header().Set("Location", pathLogin+"?factor="+url.QueryEscape(id))
	w.WriteHeader(http.StatusSeeOther)
}

// complete makes the session and answers the client.
func (f *secondFactorStep) complete(w http.ResponseWriter, r *http.Request, req *authorizationRequest, user *User, session storedSession) {
	signedIn, err := f.sessions.startSession(w, r, user, session)
	event := audit.Event{Kind: audit.SignIn, ClientID: req.client.ID, User: user.ID, Provider: session.Provider, Err: err}
	f.trail.record(r.Context(), event)
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
	return id, f.store.Add(ctx, storeKey("factor", id), value, secondFactorTime)
}

// half reads the sign-in that a page is about, and checks again whatever may
// have changed since the first factor.
func (f *secondFactorStep) half(r *http.Request, id string) (*halfSignIn, error) {
	value, err := f.store.Get(r.Context(), storeKey("factor", id))
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
	if half.user, err = f.sessions.sessionUser(r.Context(), &half.Session); err != nil {
		return nil, err
	}
	if !isBrowser(r, half.Browser) || half.user == nil {
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
	counters, err := f.limiter.counters(r, guessCode, half.user.ID, half.user.ID)
	var used *usedStep
	if err == nil {
		err = f.limiter.try(r.Context(), counters, errWrongCode, func() (err error) {
			used, err = f.factors.useCode(r.Context(), half.user, p.Get("code"))
			return err
		})
	}
	page := secondFactorPage{Factor: p.Get("factor")}
	event := audit.Event{Kind: audit.SignIn, ClientID: half.req.client.ID, User: half.user.ID, Provider: half.Session.Provider, Err: err}
	var wait *waitError
	switch {
	case errors.As(err, &wait):
		f.trail.recordWait(r.Context(), event)
		page.Wait = retryAfter(w, wait.wait)
		f.pages.showSecondFactor(w, r, http.StatusTooManyRequests, half.req, page)
	case errors.Is(err, errWrongCode):
		f.trail.record(r.Context(), event)
		page.Wrong = true
		f.pages.showSecondFactor(w, r, http.StatusForbidden, half.req, page)
	case errors.Is(err, context.Canceled): // nobody is there any more
	case err != nil:
		f.responses.redirectError(w, r, half.req, err)
	default:
		half.Session.AMR = slices.Concat(half.Session.AMR, []string{"otp", "mfa"})
		over := false
		half.req.spend = func(ctx context.Context) error {
			err := f.store.Delete(ctx, storeKey("factor", p.Get("factor")))
			over = err == nil
			return err
		}
		if f.complete(w, r, half.req, half.user, half.Session); !over {
			f.factors.releaseCode(r.Context(), half.user, used)
		}
	}
}

// usedStep is that a code was used: its time step, in place of the one before.
type usedStep struct {
	key          string // in the durable store
	step, before []byte
}

// usedStepTime is how long after its use a code, or one that came before it, could
// still be right.
const usedStepTime = (2*totp.Skew + 2) * totp.Step

// otp lets each code of a person's authenticator app count once.
type otp struct {
	durable store.Store
	logger  *slog.Logger
}

// useCode takes a code of the person's authenticator app. None counts twice, nor does
// one from before the last that counted; of several that come with the same at one
// moment, one gets in (RFC 6238 §5.2).
func (o *otp) useCode(ctx context.Context, user *User, code string) (*usedStep, error) {
	secret, err := totp.DecodeSecret(user.TOTPSecret)
	if err != nil {
		return nil, err // checked in newDirectory
	}
	step, ok := totp.StepOf(secret, strings.ReplaceAll(code, " ", ""), time.Now())
	if !ok {
		return nil, errWrongCode
	}
	used := &usedStep{key: storeKey("otp", user.ID), step: strconv.AppendInt(nil, step, 10)}
	used.before, err = o.durable.Get(ctx, used.key)
	switch {
	case errors.Is(err, store.ErrNotFound):
		err = o.durable.Add(ctx, used.key, used.step, usedStepTime)
	case err != nil:
		return nil, err
	case !used.follows():
		return nil, errWrongCode
	default:
		err = o.durable.Swap(ctx, used.key, used.before, used.step, usedStepTime)
	}
	if errors.Is(err, store.ErrExists) || errors.Is(err, store.ErrChanged) {
		return nil, errWrongCode
	}
	return used, err
}

// follows reports whether the step is later than the one that was used before it.
func (u *usedStep) follows() bool {
	step, err1 := strconv.ParseInt(string(u.step), 10, 64)
	before, err2 := strconv.ParseInt(string(u.before), 10, 64)
	return err1 == nil && err2 == nil && step > before
}

// releaseCode lets a code be used again whose sign-in failed by our fault, and gave
// nobody anything.
func (o *otp) releaseCode(ctx context.Context, user *User, used *usedStep) {
	before := used.before
	if before == nil {
		before = []byte("0")
	}
	err := o.durable.Swap(context.WithoutCancel(ctx), used.key, used.step, before, usedStepTime)
	if err != nil && !errors.Is(err, store.ErrChanged) { // by another code
		o.logger.ErrorContext(ctx, "the code of a sign-in that failed stays used", "user", user.ID, "error", err)
	}
}
