package signin

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/factor"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/lockout"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// secondFactor asks for the second factor of those who have one.
type secondFactor struct {
	frame    *Frame
	requests *reopener
	pending  *pendingFactors
	sessions *session.Sessions
	limiter  *lockout.Limiter
	factors  *factor.Factors
	start    *starter
}

// begin continues after the first factor: it asks for the second, or starts the session if
// there is none. With prompt=none there is no page to ask on (OpenID Connect Core §3.1.2.1).
func (f *secondFactor) begin(w http.ResponseWriter, r *http.Request, req *Request, user *people.User, session session.Session) {
	audit.NoteAuthenticated(r.Context())
	held, err := f.factors.Of(r.Context(), user)
	if err != nil {
		req.Purpose.Refuse(w, r, err)
		return
	}
	if !held.Any() {
		f.start.session(w, r, req, user, session)
		return
	}
	if req.How.Prompts("none") {
		err := &oauth2.Error{Code: "login_required", Description: "the second factor needs a page, and prompt is none"}
		f.frame.Trail.Record(r.Context(), audit.Event{Kind: audit.SignIn, ClientID: req.To.ClientID, User: user.ID, Person: session.Upstream(), Err: err})
		req.Purpose.Refuse(w, r, err)
		return
	}
	session.User, session.Credential = user.ID, user.Credential()
	f.pending.redirect(w, r, req, pendingSecondFactor{Session: session, Query: req.Query})
}

// readPending reads a pending second factor, and checks what may have changed since.
func (f *secondFactor) readPending(r *http.Request, sealed string) (*pendingSecondFactor, error) {
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

func (f *secondFactor) serve(w http.ResponseWriter, r *http.Request, p oauth2.Parameters) {
	pending, err := f.readPending(r, p.Get("factor"))
	switch {
	case pending == nil:
		f.frame.ShowError(w, r, err)
	case f.frame.Failed(w, r, pending.req, err):
	case p.Get("decision") == "deny":
		pending.req.Once = f.pending.completing(pending, nil)
		pending.req.Purpose.Refuse(w, r, ErrDenied)
	case r.Method == http.MethodPost:
		f.submit(w, r, pending, p)
	default:
		f.show(w, r, http.StatusOK, pending, page.SecondFactor{})
	}
}

// show shows the page, with what the person can answer by.
func (f *secondFactor) show(w http.ResponseWriter, r *http.Request, status int, pending *pendingSecondFactor, data page.SecondFactor) {
	held, err := f.factors.Of(r.Context(), pending.user)
	data.Factor, data.Code = pending.sealed, !pending.PasskeyOnly
	if err == nil && len(held.Passkeys) > 0 && f.factors.Passkeys != nil {
		var c *factor.Ceremony
		c, err = f.factors.Passkeys.BeginSecondFactor(w, r, pending.user)
		data.Passkey = passkeyPrompt(c)
	}
	if err != nil {
		pending.req.Purpose.Refuse(w, r, err)
		return
	}
	data.App, data.Recovery = held.HasApp(), len(held.Recovery) > 0
	data.Client = pending.req.To.Title
	f.frame.Show(w, r, pending.req, page.View{Template: "secondfactor", Status: status, Script: passkeyScript(data.Passkey), Data: data})
}

// proof is a right second factor.
type proof struct {
	amr     []string                  // how it was proved (RFC 8176)
	release func(ctx context.Context) // lets it be used again, if the sign-in fails through our fault
}

// prove checks the answer.
func (f *secondFactor) prove(r *http.Request, pending *pendingSecondFactor, p oauth2.Parameters) (proof, error) {
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

func (f *secondFactor) submit(w http.ResponseWriter, r *http.Request, pending *pendingSecondFactor, p oauth2.Parameters) {
	right, err := f.prove(r, pending, p)
	event := audit.Event{Kind: audit.SignIn, ClientID: pending.req.To.ClientID, User: pending.user.ID, Person: pending.Session.Upstream(), Err: err}
	var wait *lockout.WaitError
	switch {
	case errors.As(err, &wait):
		f.frame.Trail.RecordLockout(r.Context(), event)
		lockout.SetRetryAfter(w, wait.Wait)
		f.show(w, r, http.StatusTooManyRequests, pending, page.SecondFactor{Wait: wait.Wait})
	case errors.Is(err, people.ErrWrongCode):
		f.frame.Trail.Record(r.Context(), event)
		f.show(w, r, http.StatusForbidden, pending, page.SecondFactor{Wrong: true})
	case errors.Is(err, factor.ErrPasskey):
		f.frame.Trail.Record(r.Context(), event)
		f.show(w, r, http.StatusForbidden, pending, page.SecondFactor{WrongPasskey: true})
	case errors.Is(err, context.Canceled): // the browser has disconnected
	case err != nil:
		pending.req.Purpose.Refuse(w, r, err)
	default:
		f.finish(w, r, pending, right)
	}
}

// finish starts the session, or steps it up.
func (f *secondFactor) finish(w http.ResponseWriter, r *http.Request, pending *pendingSecondFactor, right proof) {
	for _, method := range append(right.amr, "mfa") {
		if !slices.Contains(pending.Session.AMR, method) {
			pending.Session.AMR = append(pending.Session.AMR, method)
		}
	}
	done := false
	pending.req.Once = f.pending.completing(pending, func() error { done = true; return nil })
	if f.start.session(w, r, pending.req, pending.user, pending.Session); !done {
		right.release(r.Context())
	}
}

// stillSignedIn reports whether the session that is to be stepped up is still this browser's, and
// reads it: the further factor alone signs nobody in.
func (f *secondFactor) stillSignedIn(r *http.Request, pending *pendingSecondFactor) (bool, error) {
	if pending.SID == "" {
		return true, nil
	}
	stored, err := f.sessions.Stored(r)
	if stored == nil || stored.SID != pending.SID || err != nil {
		return false, err
	}
	pending.Session = *stored
	return true, nil
}
