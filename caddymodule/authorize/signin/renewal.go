package signin

import (
	"errors"
	"net/http"
	"slices"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// Renewal confirms a session with a provider that issued no refresh token, once its access token has expired. It redirects the
// browser there and back with prompt=none (OpenID Connect Core §3.1.2.1), which shows no page.
type Renewal struct {
	frame    *Frame
	accounts *people.Accounts
	sessions *session.Sessions
	begin    func(http.ResponseWriter, *http.Request, *Request) // the ordinary sign-in
}

// Needed redirects the browser if a session must be renewed, and reports whether it has responded. The callback continues the
// request.
func (n *Renewal) Needed(w http.ResponseWriter, r *http.Request, req *Request, signedIn *session.SignedIn) bool {
	p := n.accounts.Providers[signedIn.Provider]
	if !signedIn.Renewable || p == nil {
		return false
	}
	may, err := n.sessions.SignIns.TryRenewal(r.Context(), signedIn.SID, p)
	if err != nil {
		req.Purpose.Refuse(w, r, err)
		return true
	}
	pending := newPending(p, req.Query)
	pending.SID, pending.Renewal = signedIn.SID, true
	pending.Request.Prompt, pending.Request.LoginHint, pending.Request.UILocales = "none", signedIn.User.ProviderName(), req.How.UILocales
	return may && pending.redirect(n.frame.Sealer, w, r, p, req)
}

// returned continues the request of a renewal after the provider's response.
func (n *Renewal) returned(w http.ResponseWriter, r *http.Request, p *people.Provider, req *Request, response *authenticationResponse, begun session.Session, failed error) {
	signedIn, err := n.settle(r, p, req, response, begun, failed)
	switch {
	case err != nil:
		req.Purpose.Refuse(w, r, err)
	case signedIn == nil:
		n.begin(w, r, req)
	default:
		req.Renewed = true
		req.Purpose.Continue(w, r, signedIn)
	}
}

// settle renews or ends the session that a response belongs to. It returns the session that goes on; nil if a sign-in is needed.
func (n *Renewal) settle(r *http.Request, p *people.Provider, req *Request, response *authenticationResponse, begun session.Session, failed error) (*session.SignedIn, error) {
	stored, err := n.sessions.Stored(r)
	if err != nil || stored == nil || stored.SID != response.pending.SID || stored.Provider != p.Key || !n.accounts.Ways(req.To.Providers).Has(p.Key) {
		return nil, err
	}
	if failed != nil {
		n.frame.Trail.Record(r.Context(), audit.Event{Kind: audit.SignIn, ClientID: req.To.ClientID, User: stored.User, Person: stored.Upstream(), Err: failed})
	}
	same := failed == nil && begun.User == stored.User && begun.UpstreamSubject == stored.UpstreamSubject
	switch {
	case same && begun.UpstreamSession != stored.UpstreamSession: // a new sign-in there needs one here
		return nil, nil
	case same:
		err = n.sessions.SignIns.Renew(r.Context(), stored.SID, p.Key, begun.Held)
	case failed == nil, endsSession(failed):
		audit.NoteSessionEndReason(r.Context(), "the identity provider did not confirm the person")
		return nil, n.sessions.End(r.Context(), stored)
	}
	if err != nil {
		return nil, err
	}
	return n.sessions.Current(r)
}

// endsSession reports whether a response to prompt=none means that the person is no longer signed in at the provider, or not
// admitted here. Any other error is an outage.
func endsSession(failed error) bool {
	code := oauth2.AsError(failed).Code
	return slices.Contains(forwardedErrors, code) && code != "temporarily_unavailable" && !errors.Is(failed, people.ErrNotForgotten)
}
