package flow

import (
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/consent"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/signin"
)

const (
	claimItem = "claim:" // begins an item that is a claim
	itemField = "may "   // begins the name of an item's checkbox
)

// items are what a person can allow: scopes, and claims requested by name.
func (req *authorizationRequest) items() []string {
	items := slices.Clone(req.scope)
	ofScope := people.ClaimsOfScope(req.scope)
	for _, name := range slices.Concat(req.claims.userinfo, req.claims.idToken) {
		if item := claimItem + name; !slices.Contains(ofScope, name) && !slices.Contains(items, item) {
			items = append(items, item)
		}
	}
	return items
}

// limit leaves of the request what the person gives, as SMART App Launch 2.2 permits. Its
// error means that nothing is left.
func (req *authorizationRequest) limit(a consent.Answer) error {
	items := req.items()
	refused := func(item string) bool { return slices.Contains(items, item) && len(a.Of(item)) == 0 }
	refusedClaim := func(name string) bool {
		return refused(claimItem+name) || refused(people.ScopeOf(name))
	}
	req.claims.userinfo = slices.DeleteFunc(slices.Clone(req.claims.userinfo), refusedClaim)
	req.claims.idToken = slices.DeleteFunc(slices.Clone(req.claims.idToken), refusedClaim)
	req.scope, req.until = givenScope(req.scope, a), a.Until
	if len(req.scope) == 0 {
		return signin.ErrDenied
	}
	return nil
}

// givenScope is what was given of a scope, each once.
func givenScope(scope []string, a consent.Answer) (given []string) {
	for _, item := range scope {
		for _, s := range a.Of(item) {
			if !slices.Contains(given, s) {
				given = append(given, s)
			}
		}
	}
	return given
}

// isFixed reports whether a request makes no sense without an item: who signs in, and which
// patient it is about.
func isFixed(item string) bool {
	return item == "openid" || item == "launch" || strings.HasPrefix(item, "launch/")
}
