package signin

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/browser"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/factor"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/lockout"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// signInPage handles sign-in by name and password or by passkey, and redirects to identity providers.
type signInPage struct {
	renderer      *Renderer
	requests      *requestRestorer
	accounts      *people.Accounts
	limiter       *lockout.Limiter
	secondFactor  *secondFactor
	passkeys      *factor.Passkeys // nil if passkeys are disabled
	start         *sessionStarter
	accountSwitch *accountSwitch

	switchPerson func(w http.ResponseWriter, r *http.Request, sealed string) // handles the button "Not you?" of any page
}

// signInURL returns the URL of the sign-in page for a request. If no choice is needed, it returns the URL of the sign-in at the
// identity provider. further contains additional parameters.
func (e *signInPage) signInURL(w http.ResponseWriter, r *http.Request, req *Request, further url.Values) (string, error) {
	methods := e.accounts.SignInMethods(req.Destination.Providers)
	p := req.provider(methods)
	if err := req.checkMethods(methods, p); err != nil {
		return "", err
	}
	path := endpoint.Login
	if p != nil {
		path += "/" + p.Key
	}
	sealed, err := e.renderer.sealRequest(w, r, req)
	q := signInParameters(sealed, req.byOtherPerson)
	maps.Copy(q, further)
	return path + "?" + q.Encode(), err
}

func (e *signInPage) serve(w http.ResponseWriter, r *http.Request) {
	p, err := PageParameters(w, r)
	if err != nil {
		e.renderer.ShowError(w, r, err)
		return
	}
	switch {
	case p.Get("factor") != "":
		e.secondFactor.serve(w, r, p)
	case r.Method == http.MethodPost && p.Get("switch") != "":
		e.switchPerson(w, r, p.Get("switch"))
	default:
		e.serveRequest(w, r, p)
	}
}

// serveRequest handles the page of a sealed request.
func (e *signInPage) serveRequest(w http.ResponseWriter, r *http.Request, p oauth2.Parameters) {
	req, err := e.requests.unseal(r, p.Get("request"))
	switch {
	case e.renderer.RejectIfError(w, r, req, err):
	case p.Get("decision") == "deny":
		req.Purpose.Reject(w, r, ErrDenied)
	case p.Get("decision") == "unavailable":
		req.Purpose.Reject(w, r, errProviderUnavailable)
	case r.Method == http.MethodPost && p.Get("assertion") != "":
		e.submitPasskey(w, r, req, p)
	case r.Method == http.MethodPost:
		e.submit(w, r, req, p)
	default:
		e.show(w, r, http.StatusOK, req, page.SignIn{Request: p.Get("request"), Username: e.initialUsername(req, p)})
	}
}

// submit handles the form. An e-mail address in a provider's domain redirects to the provider, regardless of the password.
// Other names identify local users.
func (e *signInPage) submit(w http.ResponseWriter, r *http.Request, req *Request, p oauth2.Parameters) {
	methods := e.accounts.SignInMethods(req.Destination.Providers)
	address := strings.TrimSpace(p.Get("username")) // phone keyboards append a space
	if provider := methods.ByDomain(address); provider != nil {
		e.redirectByEmail(w, r, req, provider, url.Values{"request": {p.Get("request")}, "login_hint": {address}})
		return
	}
	user, err := e.checkPassword(r, methods, p)
	data := page.SignIn{Request: p.Get("request"), Username: p.Get("username")}
	event := audit.Event{
		Kind: audit.KindSignIn, ClientID: req.Destination.ClientID, User: e.accounts.Directory.ResolveName(p.Get("username")),
		Err: err, Anonymous: true, // entering a name does not authenticate anyone
	}
	var wait *lockout.WaitError
	switch {
	case errors.As(err, new(lockout.BusyError)):
		e.renderer.Trail.Record(r.Context(), event)
		lockout.SetRetryAfter(w, lockout.BusyWait)
		data.Problem.BusyWait = lockout.BusyWait
		e.show(w, r, http.StatusServiceUnavailable, req, data)
	case errors.As(err, &wait):
		e.renderer.Trail.RecordLockout(r.Context(), event)
		lockout.SetRetryAfter(w, wait.Wait)
		data.Problem.Wait = wait.Wait
		e.show(w, r, http.StatusTooManyRequests, req, data)
	case errors.Is(err, people.ErrWrongPassword):
		e.renderer.Trail.Record(r.Context(), event)
		data.Problem.Failed = true
		e.show(w, r, http.StatusForbidden, req, data)
	case errors.Is(err, context.Canceled): // browser has disconnected
	case err != nil:
		req.Purpose.Reject(w, r, err)
	default:
		e.secondFactor.require(w, r, req, user, session.Session{AMR: []string{"pwd"}})
	}
}

// redirectByEmail redirects the browser to the provider of an e-mail address. If another person has
// a session at the provider, they are signed out first.
func (e *signInPage) redirectByEmail(w http.ResponseWriter, r *http.Request, req *Request, p *people.Provider, q url.Values) {
	current, err := e.accountSwitch.sessions.CurrentPerson(r)
	replacesPerson := current != nil && current.Provider == p.Key && !matchesHint(current, q.Get("login_hint"))
	if err == nil && replacesPerson {
		req.byOtherPerson = true
		var sealed string
		sealed, err = e.renderer.sealRequest(w, r, req)
		q.Set("request", sealed)
	}
	next := endpoint.Login + "/" + p.Key + "?" + q.Encode()
	if err == nil && replacesPerson {
		next, err = e.accountSwitch.endSession(w, r, next)
	}
	if err != nil {
		req.Purpose.Reject(w, r, err)
		return
	}
	endpoint.Redirect(w, http.StatusSeeOther, next)
}

// checkPassword returns the user with the submitted name and password.
func (e *signInPage) checkPassword(r *http.Request, methods people.SignInMethods, p oauth2.Parameters) (*people.User, error) {
	if !methods.Local {
		return nil, people.ErrWrongPassword
	}
	return e.accounts.Directory.CheckPassword(r, e.limiter, p.Get("username"), p.Get("password"))
}

// initialUsername returns the initial user name on the sign-in page. For another person, it is the login_hint in the page's URL,
// because the request may name the previous person.
func (e *signInPage) initialUsername(req *Request, p oauth2.Parameters) string {
	if req.byOtherPerson {
		return p.Get("login_hint")
	}
	return e.username(req)
}

// username returns the user name that the request suggests.
func (e *signInPage) username(req *Request) string {
	if req.Parameters.LoginHint == "" && len(req.Parameters.Subjects) == 1 && e.accounts.Directory.User(req.Parameters.Subjects[0]) != nil {
		return req.Parameters.Subjects[0]
	}
	return req.Parameters.LoginHint
}

// show shows the sign-in page, with a passkey challenge if local users may sign in and any passkey is enrolled.
func (e *signInPage) show(w http.ResponseWriter, r *http.Request, status int, req *Request, data page.SignIn) {
	c, err := e.passkeyChallenge(w, r, req)
	if err != nil {
		req.Purpose.Reject(w, r, err)
		return
	}
	data.Passkey, data.Client, data.Links = pagePasskey(c), req.Destination.Title, req.Destination.Links
	methods := e.accounts.SignInMethods(req.Destination.Providers)
	present := e.renderer.Header.person(r)
	data.Problem.OtherPerson = present != nil && !req.Parameters.PermitsSubject(present.User.ID)
	data.OffersPassword, data.ForgotPassword = methods.Local, e.renderer.Site.ForgotPassword()
	for _, p := range methods.Providers {
		data.Providers = append(data.Providers, page.ProviderLink{Name: p.Name, Address: providerURL(p, data.Request, req.byOtherPerson), Icon: e.renderer.Site.IconURL(p.Key)})
		data.AcceptsEmail = data.AcceptsEmail || len(p.Domains) > 0
	}
	e.renderer.Show(w, r, req, page.View{
		Template: "signin", Status: status, Script: passkeyScript(data.Passkey), Data: data, Policy: page.Policy{Images: data.Links.Images()},
	})
}

// providerURL returns the URL that starts a sign-in at a provider with a sealed request.
func providerURL(p *people.Provider, sealed string, otherPerson bool) string {
	return endpoint.Login + "/" + p.Key + "?" + signInParameters(sealed, otherPerson).Encode()
}

// signInParameters returns the parameters of a URL with a sealed request. For another person, login_hint is empty, because the
// request may name the previous person.
func signInParameters(sealed string, otherPerson bool) url.Values {
	q := url.Values{"request": {sealed}}
	if otherPerson {
		q.Set("login_hint", "")
	}
	return q
}

// submitPasskey signs in the user who answered the page's challenge. A second factor is not required, because possession of the
// passkey and user verification are two factors.
func (e *signInPage) submitPasskey(w http.ResponseWriter, r *http.Request, req *Request, p oauth2.Parameters) {
	verified, err := e.verifyPasskey(r, req, p)
	switch {
	case errors.Is(err, factor.ErrPasskeyRejected):
		event := audit.Event{Kind: audit.KindSignIn, ClientID: req.Destination.ClientID, Err: err, Anonymous: true}
		if verified.User != nil {
			event.User = verified.User.ID
		}
		e.renderer.Trail.Record(r.Context(), event)
		e.show(w, r, http.StatusForbidden, req, page.SignIn{Request: p.Get("request"), Problem: page.SignInProblem{Passkey: true}})
	case errors.Is(err, context.Canceled): // browser has disconnected
	case err != nil:
		req.Purpose.Reject(w, r, err)
	default:
		audit.RecordAuthenticated(r.Context())
		e.start.startSession(w, r, req, verified.User, session.Session{AMR: verified.AMR})
	}
}

// acceptsPasskeys reports whether a passkey is a valid sign-in method for a request.
func (e *signInPage) acceptsPasskeys(req *Request) bool {
	return e.passkeys != nil && e.accounts.SignInMethods(req.Destination.Providers).Local
}

// passkeyChallenge starts a sign-in by passkey. It returns nil if no passkey is enrolled.
func (e *signInPage) passkeyChallenge(w http.ResponseWriter, r *http.Request, req *Request) (*factor.Ceremony, error) {
	if !e.acceptsPasskeys(req) {
		return nil, nil
	}
	isEnrolled, err := e.passkeys.AnyEnrolled(r.Context())
	if err != nil || !isEnrolled {
		return nil, err
	}
	return e.passkeys.BeginSignIn(w, r)
}

// verifyPasskey returns the user with the passkey that signed the challenge.
func (e *signInPage) verifyPasskey(r *http.Request, req *Request, p oauth2.Parameters) (*factor.VerifiedPasskey, error) {
	if !e.acceptsPasskeys(req) {
		return new(factor.VerifiedPasskey), factor.ErrPasskeyRejected
	}
	return e.passkeys.VerifySignIn(r, p.Get("passkey"), p.Get("assertion"))
}

// pagePasskey converts a challenge for a page, or returns nil if c is nil.
func pagePasskey(c *factor.Ceremony) *page.Passkey {
	if c == nil {
		return nil
	}
	return &page.Passkey{Options: c.Options, Sealed: c.SealedChallenge}
}

// passkeyScript returns the script of a page with a challenge.
func passkeyScript(challenge *page.Passkey) string {
	if challenge == nil {
		return ""
	}
	return "passkey"
}

// maxLogoutStateSize is the maximum size of the state of a logout request in bytes, because it is part of the provider's URL.
const maxLogoutStateSize = 4 << 10

// accountSwitch lets someone other than the signed-in person sign in at an identity provider. While that person's session
// exists, a provider such as Keycloak would demand that person's password.
type accountSwitch struct {
	renderer *Renderer
	accounts *people.Accounts
	sessions *session.Sessions
	issuer   string
	logger   *slog.Logger
}

// matchesHint reports whether a login_hint identifies the person.
func matchesHint(person *session.SignedInPerson, hint string) bool {
	return hint == person.Subject || person.User.MatchesLoginHint(hint)
}

// endSession ends the browser's session. It returns the next URL, which is the logout URL of the session's provider or next.
func (a *accountSwitch) endSession(w http.ResponseWriter, r *http.Request, next string) (string, error) {
	stored, err := a.sessions.FindEndable(r)
	if stored == nil || err != nil {
		return next, err
	}
	target := ""
	if p := a.accounts.Providers[stored.LogoutProvider()]; p != nil {
		target, err = a.logoutURL(w, r, p, stored.UpstreamIDToken, next)
	}
	if err != nil {
		return "", err
	}
	audit.RecordSessionEndReason(r.Context(), "signed out to let another person sign in")
	if err := a.sessions.End(r.Context(), stored); err != nil {
		return "", err
	}
	browser.RemoveSession(w, r)
	return cmp.Or(target, next), nil
}

// logoutURL returns the provider's logout URL, which leads back to next through the gateway's logout endpoint, or "" if
// unavailable.
func (a *accountSwitch) logoutURL(w http.ResponseWriter, r *http.Request, p *people.Provider, idToken, next string) (target string, err error) {
	state, err := a.renderer.SealSignOut(w, r, p, next)
	if err != nil {
		return "", err
	}
	if len(state) <= maxLogoutStateSize {
		target, err = p.Client.EndSessionURL(r.Context(), idToken, a.issuer+endpoint.Logout+"/"+p.Key, state)
	}
	if err != nil {
		a.logger.WarnContext(r.Context(), "provider logout skipped: logout URL unavailable", "idp", p.Key, "error", err)
	}
	return target, nil
}
