package signin

import (
	"slices"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// provider returns the provider to use without asking the person: the one that the request
// names, that of the hinted address, or the only way to sign in. It returns nil if the person
// has to choose.
func (req *Request) provider(ways people.Ways) *people.Provider {
	if req.How.IdentityProvider == people.Local {
		return nil
	}
	for _, p := range ways.Providers {
		if p.Key == req.How.IdentityProvider {
			return p
		}
	}
	if p := ways.ByDomain(req.How.LoginHint); p != nil {
		return p
	}
	if !ways.Local && len(ways.Providers) == 1 {
		return ways.Providers[0]
	}
	return nil
}

// hasOther reports whether the client and the request allow another way than a provider.
func (req *Request) hasOther(ways people.Ways, p *people.Provider) bool {
	other := slices.ContainsFunc(ways.Providers, func(other *people.Provider) bool { return other != p })
	return req.How.IdentityProvider == "" && !req.How.Prompts("none") && (ways.Local || other)
}

// checkWays returns an error if nobody can sign in: there is no way to, or the client allows
// no page and there is no provider to go to.
func (req *Request) checkWays(ways people.Ways, p *people.Provider) error {
	switch {
	case !ways.Local && len(ways.Providers) == 0:
		return &oauth2.Error{Code: "access_denied", Description: "there is no user, and no idp, to sign in by"}
	case p == nil && req.How.Prompts("none"):
		return &oauth2.Error{Code: "login_required", Description: "the person must sign in on a page, and prompt is none"}
	}
	return nil
}

// accepts reports whether a sign-in satisfies the request: the client allows its way, and
// person, provider and time are as requested.
func (req *Request) accepts(ways people.Ways, signedIn *session.SignedIn) bool {
	return req.permits(ways, signedIn) && req.How.freshEnough(signedIn.Age) && req.How.IsFor(signedIn.User.ID)
}

// permits reports whether client and request allow the way that somebody signed in.
func (req *Request) permits(ways people.Ways, signedIn *session.SignedIn) bool {
	return ways.Has(signedIn.Provider) && (req.How.IdentityProvider == "" || req.How.IdentityProvider == signedIn.Way())
}
