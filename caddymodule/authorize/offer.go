package authorize

import (
	"slices"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
)

// offer is how a person can sign in to a client.
type offer struct {
	local     bool
	providers []*provider
}

// offer lists the ways that a client allows, in the order of its list or else of
// the configuration.
func (a *accounts) offer(client *Client) offer {
	keys := client.IdentityProviders
	if len(keys) == 0 {
		keys = append([]string{Local}, a.providerKeys...)
	}
	var o offer
	for _, key := range keys {
		if p := a.providers[key]; p != nil {
			o.providers = append(o.providers, p)
		}
	}
	o.local = slices.Contains(keys, Local) && len(a.directory.users) > 0
	return o
}

// has says whether one can sign in by the provider with this key, or locally.
func (o offer) has(key string) bool {
	if key == "" || key == Local {
		return o.local
	}
	return slices.ContainsFunc(o.providers, func(p *provider) bool { return p.Key == key })
}

// byDomain finds the provider whose people have e-mail addresses like this one.
func (o offer) byDomain(address string) *provider {
	domain := emailDomain(address)
	for _, p := range o.providers {
		if domain != "" && slices.Contains(p.Domains, domain) {
			return p
		}
	}
	return nil
}

// pick chooses the provider without asking the person: the one the request
// names, the one of the hinted address's domain, or the only way there is.
func (o offer) pick(req *authorizationRequest) *provider {
	if req.identityProvider == Local {
		return nil
	}
	for _, p := range o.providers {
		if p.Key == req.identityProvider {
			return p
		}
	}
	if p := o.byDomain(req.loginHint); p != nil {
		return p
	}
	if !o.local && len(o.providers) == 1 {
		return o.providers[0]
	}
	return nil
}

// hasOther reports whether a person may choose another way than a provider: neither
// the client nor the request allows that one alone.
func (o offer) hasOther(req *authorizationRequest, p *provider) bool {
	other := slices.ContainsFunc(o.providers, func(other *provider) bool { return other != p })
	return req.identityProvider == "" && !req.prompts("none") && (o.local || other)
}

// unable says why nobody can sign in to a request, if so: there is no way to, or
// the client wants no page shown and there is no provider to pass that on to.
func (o offer) unable(req *authorizationRequest, by *provider) error {
	switch {
	case !o.local && len(o.providers) == 0:
		return &oauth2.Error{Code: "access_denied", Description: "there is no user, and no idp, to sign in by"}
	case by == nil && req.prompts("none"):
		return &oauth2.Error{Code: "login_required"}
	}
	return nil
}

// serves says whether an earlier sign-in will do for a request: it must be one
// that the client allows, of a person and by a way that the request does not rule out, and
// fresh enough.
func (o offer) serves(req *authorizationRequest, earlier *signedIn) bool {
	named := req.identityProvider == "" || req.identityProvider == earlier.way()
	return o.has(earlier.by) && named && req.freshEnough(earlier.at) && req.isFor(earlier.user.ID)
}
