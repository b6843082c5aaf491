package authorize

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// secondFactorTime is how long after the first factor the second one may come.
const secondFactorTime = 5 * time.Minute

var (
	errWrongCode   = &Error{Code: "access_denied", Description: "wrong or used code of the second factor", Status: http.StatusForbidden}
	errCodeTooLate = startAgain("This sign-in took too long, was begun in another browser, or is already over. Go back to the app and sign in from there again.")
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

// admitted goes on with a person whose password, or provider, says who they are:
// to the second factor if they have one, or else to the answer. Where a provider
// signed them in without a page, because the client wants none (prompt=none), there
// must be none for the second factor either (OpenID Connect Core §3.1.2.1).
func (s *Server) admitted(w http.ResponseWriter, r *http.Request, req *authorizationRequest, user *User, session storedSession) {
	noteProven(r.Context())
	if user.TOTPSecret == "" {
		s.complete(w, r, req, user, session)
		return
	}
	if req.prompts("none") {
		err := &Error{Code: "login_required", Description: "the second factor needs a page, and prompt is none"}
		s.record(r.Context(), Event{Kind: EventSignIn, ClientID: req.client.ID, User: user.ID, Provider: session.Provider, Err: err})
		s.redirectError(w, r, req, err)
		return
	}
	session.User, session.Credential = user.ID, user.credential()
	id, err := s.keepHalf(r.Context(), halfSignIn{Session: session, Query: ascii(req.query), Browser: s.browser(w, r)})
	if err != nil {
		s.redirectError(w, r, req, err)
		return
	}
	w.Header().Set("Location", pathLogin+"?factor="+url.QueryEscape(id))
	w.WriteHeader(http.StatusSeeOther)
}

// complete makes the session and answers the client.
func (s *Server) complete(w http.ResponseWriter, r *http.Request, req *authorizationRequest, user *User, session storedSession) {
	signedIn, err := s.startSession(w, r, user, session)
	if err == nil {
		err = s.rememberDevice(w, r, user)
	}
	event := Event{Kind: EventSignIn, ClientID: req.client.ID, User: user.ID, Provider: session.Provider, Err: err}
	s.record(r.Context(), event)
	if err != nil {
		s.redirectError(w, r, req, err)
		return
	}
	s.answer(w, r, req, signedIn)
}

func (s *Server) keepHalf(ctx context.Context, half halfSignIn) (id string, err error) {
	value, err := json.Marshal(half)
	if err != nil {
		return "", err
	}
	id = randomToken()
	return id, s.store.Add(ctx, storeKey("factor", id), value, secondFactorTime)
}

// half reads the sign-in that a page is about, and checks again whatever may
// have changed since the first factor.
func (s *Server) half(r *http.Request, id string) (*halfSignIn, error) {
	value, err := s.store.Get(r.Context(), storeKey("factor", id))
	if errors.Is(err, ErrNotFound) {
		return nil, errCodeTooLate
	}
	half := new(halfSignIn)
	if err == nil {
		err = json.Unmarshal(value, half)
	}
	if err != nil {
		return nil, fmt.Errorf("reading a sign-in: %w", err)
	}
	if half.user, err = s.sessionUser(r.Context(), &half.Session); err != nil {
		return nil, err
	}
	if !isBrowser(r, half.Browser) || half.user == nil {
		return nil, errCodeTooLate
	}
	half.req, err = s.authorizationRequest(r.Context(), half.Query)
	return half, err
}

// secondFactor is the page that asks for the code: GET shows it, POST takes it.
func (s *Server) secondFactor(w http.ResponseWriter, r *http.Request, p parameters) {
	half, err := s.half(r, p.get("factor"))
	switch {
	case half == nil:
		s.refuse(w, r, err)
	case s.failed(w, r, half.req, err):
	case r.Method == http.MethodPost:
		s.takeCode(w, r, half, p)
	default:
		s.showSecondFactor(w, r, http.StatusOK, half.req, secondFactorPage{Factor: p.get("factor")})
	}
}

func (s *Server) takeCode(w http.ResponseWriter, r *http.Request, half *halfSignIn, p parameters) {
	counters, err := s.counters(r, guessCode, half.user.ID)
	if err == nil {
		err = s.turnstile.try(r.Context(), counters, func() error {
			return s.useCode(r.Context(), half.user, p.get("code"))
		})
	}
	if err == nil {
		_, err = s.store.Take(r.Context(), storeKey("factor", p.get("factor")))
	}
	page := secondFactorPage{Factor: p.get("factor")}
	var wait *waitError
	switch {
	case errors.As(err, &wait):
		s.recordWait(r, half.req, half.user.ID, err)
		page.Wait = retryAfter(w, wait.wait)
		s.showSecondFactor(w, r, http.StatusTooManyRequests, half.req, page)
	case errors.Is(err, errWrongCode):
		s.record(r.Context(), Event{Kind: EventSignIn, ClientID: half.req.client.ID, User: half.user.ID, Err: err})
		page.Wrong = true
		s.showSecondFactor(w, r, http.StatusForbidden, half.req, page)
	case errors.Is(err, ErrNotFound):
		s.refuse(w, r, errCodeTooLate)
	case errors.Is(err, context.Canceled): // nobody is there any more
	case err != nil:
		s.redirectError(w, r, half.req, err)
	default:
		half.Session.AMR = slices.Concat(half.Session.AMR, []string{"otp", "mfa"})
		s.complete(w, r, half.req, half.user, half.Session)
	}
}

// useCode takes a code of the person's authenticator app, each once: of several
// that come with the same at one moment, one gets in (RFC 6238 §5.2).
func (s *Server) useCode(ctx context.Context, user *User, code string) error {
	key, err := decodeTOTPSecret(user.TOTPSecret)
	if err != nil {
		return err // checked in newDirectory
	}
	step, ok := totpStepOf(key, strings.ReplaceAll(code, " ", ""), time.Now())
	if !ok {
		return errWrongCode
	}
	used := storeKey("otp", user.ID+" "+strconv.FormatInt(step, 10))
	err = s.durable.Add(ctx, used, nil, (2*totpSkew+2)*totpStep)
	if errors.Is(err, ErrExists) {
		return errWrongCode
	}
	return err
}
