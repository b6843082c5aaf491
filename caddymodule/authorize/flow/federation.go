package flow

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/browser"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/upstream"
)

var (
	errNotAway      = oauth2.StartAgain("This sign-in was not begun in this browser, took too long, or is already over. Go back to the app and sign in from there again.")
	errDoubleSignIn = oauth2.StartAgain("This sign-in is already over. Go back to the app.")
)

// federation signs people in by identity providers.
type federation struct {
	*step
	accounts     *people.Accounts
	secondFactor *secondFactorStep
	returned     *store.Memory // states that came back from providers
	identified   *identities   // of those whose sign-in failed here after that
}

func newFederation(step *step, accounts *people.Accounts, secondFactor *secondFactorStep) *federation {
	return &federation{
		step: step, accounts: accounts, secondFactor: secondFactor,
		returned: store.NewMemory(0, 0), identified: newIdentities(),
	}
}

// leave sends the browser to a provider. The sealed request comes from the
// sign-in page's link, or from askToSignIn.
func (f *federation) leave(p *people.Provider) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		audit.FromContext(r.Context()).Provider = p.Key
		sealed := r.URL.Query().Get("request")
		req, err := f.pending(r, sealed)
		switch {
		case f.responses.failed(w, r, req, err):
		case !f.accounts.Ways(req.client.IdentityProviders).Has(p.Key):
			f.responses.redirectError(w, r, req, &oauth2.Error{Code: "access_denied", Description: "the client does not allow this identity provider"})
		default:
			f.leaveWith(w, r, p, req)
		}
	}
}

func (f *federation) leaveWith(w http.ResponseWriter, r *http.Request, p *people.Provider, req *authorizationRequest) {
	hint := req.loginHint
	if typed := r.URL.Query().Get("login_hint"); typed != "" {
		hint = typed
	}
	a := away{Provider: p.Key, Issuer: p.Issuer, Query: ascii(req.query), Request: upstream.AuthenticationRequest{
		State: oauth2.RandomToken(), Nonce: oauth2.RandomToken(), Verifier: oauth2.RandomToken(),
		LoginHint: hint, Prompt: req.prompt, MaxAge: req.maxAge, UILocales: req.uiLocales, ACRValues: req.acrValues,
	}}
	target, down := p.Client.AuthenticationURL(r.Context(), a.Request)
	err := down
	if err == nil {
		err = f.keepAway(w, r, a)
	}
	switch {
	case left(r, err):
	case down != nil && req.hasOther(f.accounts.Ways(req.client.IdentityProviders), p):
		f.showProviderDown(w, r, p, req, down)
	case err != nil:
		f.responses.redirectError(w, r, req, explain(p, err))
	default:
		w.Header().Set("Location", target)
		w.WriteHeader(http.StatusFound)
	}
}

// showProviderDown brings the person back to the sign-in page where a provider cannot
// be reached, as there are other ways to sign in. The interface has its errors go to
// the client for a provider that fails once it has been asked.
func (f *federation) showProviderDown(w http.ResponseWriter, r *http.Request, p *people.Provider, req *authorizationRequest, err error) {
	f.trail.Record(r.Context(), audit.Event{Kind: audit.SignIn, Provider: p.Key, ClientID: req.client.ID, Err: explain(p, err)})
	f.pages.showSignIn(w, r, http.StatusServiceUnavailable, req, signInPage{
		Request: r.URL.Query().Get("request"), Username: f.requests.likely(req), Down: p.Name,
	})
}

// comeBack takes a provider's answer (OpenID Connect Core §3.1.2.5).
func (f *federation) comeBack(p *people.Provider) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		audit.FromContext(r.Context()).Provider = p.Key
		q, err := oauth2.QueryParameters(r.URL.RawQuery)
		var a away
		if err == nil {
			a, err = f.readAway(r, q.Get("state"))
		}
		if err == nil && (a.Provider != p.Key || a.Issuer != p.Issuer) {
			err = errNotAway // another provider's answer: mix-up (RFC 9700 §4.4.2)
		}
		if err != nil {
			f.responses.refuse(w, r, err)
			return
		}
		req, err := f.requests.authorizationRequest(r.Context(), a.Query)
		back := &homecoming{away: a, answer: q}
		if req != nil {
			req.spend = func(context.Context) error {
				back.over = true
				browser.RemovePieces(w, r, awayCookie(a.Request.State))
				return nil
			}
		}
		if !f.responses.failed(w, r, req, err) {
			f.signInBy(w, r, p, req, back)
		}
	}
}

// homecoming is a browser that comes back from a provider.
type homecoming struct {
	away   away
	answer oauth2.Parameters  // the provider's
	from   *upstream.Identity // what it was exchanged for; nil while it was not
	over   bool               // it came to an end, good or bad, and counts no more
}

// signInBy signs the person in whom the provider's answer is about. Where that fails
// by our fault, the answer can be sent again, though the provider would not take it.
func (f *federation) signInBy(w http.ResponseWriter, r *http.Request, p *people.Provider, req *authorizationRequest, back *homecoming) {
	user, session, err := f.federatedSession(r, p, req, back)
	if left(r, err) {
		return
	}
	defer func() {
		if back.from != nil && !back.over {
			f.identified.keep(back.away.Request.State, back.from)
		}
	}()
	if err != nil {
		err = explain(p, err)
		f.trail.Record(r.Context(), audit.Event{Kind: audit.SignIn, ClientID: req.client.ID, Err: err})
	}
	switch {
	case errors.Is(err, errDoubleSignIn):
		f.responses.refuse(w, r, err)
	case err != nil:
		f.responses.redirectError(w, r, req, err)
	default:
		f.secondFactor.admitted(w, r, req, user, session)
	}
}

// left says whether an error is nothing but that the browser has gone while the
// provider was asked. There is nobody to answer then, and no fault to be logged.
func left(r *http.Request, err error) bool {
	return errors.Is(err, context.Canceled) && r.Context().Err() != nil
}

// federatedSession is who a provider's answer is about, and the session that
// they may have.
func (f *federation) federatedSession(r *http.Request, p *people.Provider, req *authorizationRequest, back *homecoming) (user *people.User, begun session.Session, err error) {
	if !f.accounts.Ways(req.client.IdentityProviders).Has(p.Key) {
		return nil, begun, people.ErrNotAllowed
	}
	from, err := f.identify(r.Context(), p, back.away, back.answer)
	if err != nil {
		return nil, begun, err
	}
	back.from = from
	audit.NoteAuthenticated(r.Context())
	user, err = f.accounts.Admit(r.Context(), p, p.Identity(from))
	if err != nil {
		return nil, begun, err
	}
	begun = session.Session{Provider: p.Key, At: from.AuthTime, AMR: people.Words(from.Claims["amr"]), UpstreamSubject: from.Subject}
	if sid, _ := from.Claims["sid"].(string); len(sid) <= session.MaxUpstreamSession {
		begun.UpstreamSession = sid
	}
	if p.KeepUpstreamToken {
		begun.UpstreamIDToken = from.IDToken
	}
	return user, begun, nil
}

// identify makes an identity of a provider's answer, once for each state; once more
// where the sign-in failed here after that.
func (f *federation) identify(ctx context.Context, p *people.Provider, a away, q oauth2.Parameters) (*upstream.Identity, error) {
	if from := f.identified.take(a.Request.State); from != nil {
		return from, nil
	}
	// Before the provider is asked: it may take a code that comes twice for a
	// stolen one, and revoke what it gave for the first. Where there is no room, it
	// alone sees to that: a flood must not keep the others from signing in.
	if err := f.returned.Add(ctx, a.Request.State, nil, awayTime); errors.Is(err, store.ErrExists) {
		return nil, errDoubleSignIn
	}
	from, err := p.Client.Exchange(ctx, upstream.Callback{
		Code: q.Get("code"), Issuer: q.Get("iss"), Error: q.Get("error"), ErrorDescription: q.Get("error_description"),
	}, a.Request)
	if err != nil {
		// It signed nobody in. To keep it would let answers that are made up, for
		// which nobody need have an account, take up the room for good ones.
		_ = f.returned.Delete(ctx, a.Request.State) // in memory: never fails
	}
	return from, err
}

// passedOn are the refusals of a provider that are the client's to know
// (RFC 6749 §4.1.2.1, OpenID Connect Core §3.1.2.6, and OpenID Connect Core Error
// Code unmet_authentication_requirements §2 for the acr_values that are passed on).
var passedOn = []string{
	"access_denied", "login_required", "interaction_required", "consent_required",
	"account_selection_required", "temporarily_unavailable", "unmet_authentication_requirements",
}

// explain gives an error of a provider the words of the interface's §7, or
// passes on what it refused for the person's sake. What neither has words for is
// a server_error, told in the log alone.
func explain(p *people.Provider, err error) error {
	var own *oauth2.Error
	var theirs *upstream.Error
	if errors.As(err, &own) || !errors.As(err, &theirs) {
		return err
	}
	if text, ok := theirs.Description(p.Name, p.Google); ok {
		return &oauth2.Error{Code: "invalid_request", Description: text, Shown: true, Err: err}
	}
	if theirs.Kind == upstream.Declined && slices.Contains(passedOn, theirs.Code) {
		return &oauth2.Error{Code: theirs.Code, Description: "refused by the identity provider", Err: err}
	}
	return err
}
