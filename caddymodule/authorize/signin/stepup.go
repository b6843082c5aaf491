package signin

import (
	"net/http"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/factor"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

var errUnmet = &oauth2.Error{Code: "unmet_authentication_requirements", Description: "the person has no factor that the client requires"}

// StepUp asks people who are signed in for a further factor.
type StepUp struct {
	frame    *Frame
	pending  *pendingFactors
	factors  *factor.Factors
	sessions *session.Sessions
	accounts *people.Accounts
}

// Needed reports whether a further factor is needed, and then asks for it, or refuses. The
// acr_values are asked for only once: they need not be met (OpenID Connect Core §3.1.2.1). A
// session of before the person had a second factor gives nothing more without one, but for that in which they set it up.
func (s *StepUp) Needed(w http.ResponseWriter, r *http.Request, req *Request, signedIn *session.SignedIn) bool {
	required, asked := req.requiredACR(), weakestACR(strings.Fields(req.How.ACRValues))
	has := func(class string) bool { return class == "" || oauth2.MeetsACR(signedIn.ACR(), class) }
	if has(required) && has(asked) && (has(oauth2.ACRMultiFactor) || req.justSignedIn) {
		return false
	}
	held, err := s.factors.Of(r.Context(), signedIn.User)
	if err == nil && held.Lacking(factor.BySession(signedIn.SID, signedIn.ACR())) && !oauth2.MeetsACR(required, oauth2.ACRMultiFactor) {
		required = oauth2.ACRMultiFactor
	}
	can := func(class string) bool { return held.Any() && (class != oauth2.ACRPhishing || len(held.Passkeys) > 0) }
	silent := req.How.Prompts("none")
	switch {
	case err != nil:
		req.Purpose.Refuse(w, r, err)
	case has(required) && has(asked):
		return false
	case !has(asked) && can(asked) && !req.AskedFactor && !silent:
		s.ask(w, r, req, required == oauth2.ACRPhishing)
	case s.providerMay(req, signedIn, !has(required) && !can(required), !has(asked) && !can(asked)):
		s.frame.RedirectToPage(w, r, req, endpoint.Login+"/"+signedIn.Provider, loginPurpose, req.Query)
	case has(required):
		return false
	case can(required) && silent:
		s.refuse(w, r, req, signedIn, &oauth2.Error{Code: "login_required", Description: "a further factor needs a page, and prompt is none"})
	case can(required):
		s.ask(w, r, req, required == oauth2.ACRPhishing)
	default:
		s.refuse(w, r, req, signedIn, errUnmet)
	}
	return true
}

// providerMay reports whether a person's identity provider may show what they lack here: what is
// required, or what is only asked for, if the provider has a word for it. Who just came from there
// is not sent again.
func (s *StepUp) providerMay(req *Request, signedIn *session.SignedIn, lacksRequired, lacksAsked bool) bool {
	p := s.accounts.Providers[signedIn.Provider]
	switch {
	case p == nil || req.justSignedIn:
		return false
	case lacksRequired:
		return oauth2.MeetsACR(oauth2.ACRMultiFactor, req.requiredACR())
	}
	known := len(p.ACRMap.Words(weakestACR(strings.Fields(req.How.ACRValues)))) > 0
	return lacksAsked && known && !req.AskedFactor && !req.How.Prompts("none")
}

func (s *StepUp) refuse(w http.ResponseWriter, r *http.Request, req *Request, signedIn *session.SignedIn, err error) {
	s.frame.Trail.Record(r.Context(), audit.Event{Kind: audit.SignIn, ClientID: req.To.ClientID, User: signedIn.User.ID, Person: audit.Person{Provider: signedIn.Provider, Subject: signedIn.Subject}, Err: err})
	req.Purpose.Refuse(w, r, err)
}

// ask sends the browser to the page for the second factor. The session is kept as it is
// until that was right.
func (s *StepUp) ask(w http.ResponseWriter, r *http.Request, req *Request, passkeyOnly bool) {
	stored, err := s.sessions.Stored(r)
	if err == nil && stored == nil {
		err = ErrPageExpired
	}
	if err != nil {
		req.Purpose.Refuse(w, r, err)
		return
	}
	s.pending.redirect(w, r, req, pendingSecondFactor{
		SID: stored.SID, Query: req.Query, PasskeyOnly: passkeyOnly,
	})
}
