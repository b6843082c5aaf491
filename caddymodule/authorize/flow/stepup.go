package flow

import (
	"net/http"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/factor"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
)

var errUnmet = &oauth2.Error{Code: "unmet_authentication_requirements", Description: "the person has no factor that the client requires"}

// readACR reads a request for the claim acr (OpenID Connect Core §5.5.1.1): an essential one
// must be met, any other is as good as acr_values.
func (req *authorizationRequest) readACR(claim *claimRequest) error {
	var words []string
	for _, v := range claim.wanted() {
		if word, ok := v.(string); ok {
			words = append(words, word)
		}
	}
	class := weakestACR(words)
	switch {
	case !claim.isEssential():
		req.acrValues = strings.TrimSpace(req.acrValues + " " + class)
	case class == "" && claim.wanted() != nil:
		return &oauth2.Error{Code: "unmet_authentication_requirements", Description: "no acr that is asked for is known here"}
	default:
		req.essentialACR = class
	}
	return nil
}

// weakestACR returns the weakest class of those that are known, or "".
func weakestACR(words []string) string {
	i := slices.IndexFunc(oauth2.ACRValues, func(class string) bool { return slices.Contains(words, class) })
	if i < 0 {
		return ""
	}
	return oauth2.ACRValues[i]
}

// requiredACR is the class that must be met, or "".
func (req *authorizationRequest) requiredACR() string {
	if oauth2.MeetsACR(req.client.ACR, req.essentialACR) {
		return req.client.ACR
	}
	return req.essentialACR
}

// stepUp asks people who are signed in for a further factor.
type stepUp struct {
	*step
	pending  *pendingFactors
	factors  *factor.Factors
	sessions *session.Sessions
}

// needed reports whether a further factor is needed, and then asks for it, or refuses. The
// acr_values are asked for only once: they need not be met (OpenID Connect Core §3.1.2.1). A
// session of before the person had a second factor gives nothing more without one, but for that in which they set it up.
func (s *stepUp) needed(w http.ResponseWriter, r *http.Request, req *authorizationRequest, signedIn *session.SignedIn) bool {
	required, asked := req.requiredACR(), weakestACR(strings.Fields(req.acrValues))
	has := func(class string) bool { return class == "" || oauth2.MeetsACR(signedIn.ACR(), class) }
	if has(required) && has(asked) && (has(oauth2.ACRMultiFactor) || req.justSignedIn) {
		return false
	}
	held, err := s.factors.Of(r.Context(), signedIn.User)
	if err == nil && held.Any() && held.Session != signedIn.SID && !oauth2.MeetsACR(required, oauth2.ACRMultiFactor) {
		required = oauth2.ACRMultiFactor
	}
	can := func(class string) bool { return held.Any() && (class != oauth2.ACRPhishing || len(held.Passkeys) > 0) }
	silent := req.prompts("none")
	switch {
	case err != nil:
		s.responses.redirectError(w, r, req, err)
	case has(required) && has(asked):
		return false
	case !has(asked) && can(asked) && !req.askedFactor && !silent:
		s.ask(w, r, req, required == oauth2.ACRPhishing)
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

func (s *stepUp) refuse(w http.ResponseWriter, r *http.Request, req *authorizationRequest, signedIn *session.SignedIn, err error) {
	s.trail.Record(r.Context(), audit.Event{Kind: audit.SignIn, ClientID: req.client.ID, User: signedIn.User.ID, Provider: signedIn.Provider, Err: err})
	s.responses.redirectError(w, r, req, err)
}

// ask sends the browser to the page for the second factor. The session is kept as it is
// until that was right.
func (s *stepUp) ask(w http.ResponseWriter, r *http.Request, req *authorizationRequest, passkeyOnly bool) {
	stored, err := s.sessions.Stored(r)
	if err == nil && stored == nil {
		err = errPageExpired
	}
	if err != nil {
		s.responses.redirectError(w, r, req, err)
		return
	}
	s.pending.redirect(w, r, req, pendingSecondFactor{
		SID: stored.SID, Query: req.query, PasskeyOnly: passkeyOnly,
	})
}

// stillSignedIn reports whether the session that is to be stepped up is still this browser's, and
// reads it: the further factor alone signs nobody in.
func (f *secondFactorStep) stillSignedIn(r *http.Request, pending *pendingSecondFactor) (bool, error) {
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
