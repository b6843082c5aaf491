package flow

import (
	"slices"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
)

// pick chooses the provider without asking the person: the one the request
// names, the one of the hinted address's domain, or the only way there is.
func (req *authorizationRequest) pick(o people.Ways) *people.Provider {
	if req.identityProvider == people.Local {
		return nil
	}
	for _, p := range o.Providers {
		if p.Key == req.identityProvider {
			return p
		}
	}
	if p := o.ByDomain(req.loginHint); p != nil {
		return p
	}
	if !o.Local && len(o.Providers) == 1 {
		return o.Providers[0]
	}
	return nil
}

// hasOther reports whether a person may choose another way than a provider: neither
// the client nor the request allows that one alone.
func (req *authorizationRequest) hasOther(o people.Ways, p *people.Provider) bool {
	other := slices.ContainsFunc(o.Providers, func(other *people.Provider) bool { return other != p })
	return req.identityProvider == "" && !req.prompts("none") && (o.Local || other)
}

// unable says why nobody can sign in to a request, if so: there is no way to, or
// the client wants no page shown and there is no provider to pass that on to.
func (req *authorizationRequest) unable(o people.Ways, by *people.Provider) error {
	switch {
	case !o.Local && len(o.Providers) == 0:
		return &oauth2.Error{Code: "access_denied", Description: "there is no user, and no idp, to sign in by"}
	case by == nil && req.prompts("none"):
		return &oauth2.Error{Code: "login_required"}
	}
	return nil
}

// serves says whether an earlier sign-in will do for a request: it must be one
// that the client allows, of a person and by a way that the request does not rule out, and
// fresh enough.
func (req *authorizationRequest) serves(o people.Ways, earlier *session.SignedIn) bool {
	named := req.identityProvider == "" || req.identityProvider == earlier.Way()
	return o.Has(earlier.Provider) && named && req.freshEnough(earlier.At) && req.isFor(earlier.User.ID)
}
