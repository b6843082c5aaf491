package flow

import (
	"encoding/json"
	"slices"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/signin"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/strictjson"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

// claimRequest is the request for one claim (OpenID Connect Core §5.5.1). Claims that we do
// not have are omitted, even essential ones.
type claimRequest struct {
	Essential bool  `json:"essential"`
	Value     any   `json:"value"`
	Values    []any `json:"values"`
}

// wanted returns the acceptable values, or nil if any is.
func (c *claimRequest) wanted() []any {
	switch {
	case c == nil:
		return nil
	case c.Value != nil:
		return []any{c.Value}
	}
	return c.Values
}

func (c *claimRequest) isEssential() bool { return c != nil && c.Essential }

var errBadClaims = oauth2.InvalidRequest("claims must be a JSON object as in OpenID Connect Core §5.5")

// requestedClaims are the claims that a request names (OpenID Connect Core §5.5).
type requestedClaims struct {
	userinfo, idToken []string
}

// read reads the parameter claims: those that the client may have, and who has to sign in.
func (cs *requestedClaims) read(parameter string, c *client.Client, how *signin.Parameters) error {
	if parameter == "" {
		return nil
	}
	var asked map[string]json.RawMessage
	if strictjson.Unmarshal([]byte(parameter), &asked) != nil || asked == nil {
		return errBadClaims
	}
	for member, names := range map[string]*[]string{"userinfo": &cs.userinfo, "id_token": &cs.idToken} {
		if asked[member] == nil {
			continue
		}
		var claims map[string]*claimRequest
		if strictjson.Unmarshal(asked[member], &claims) != nil || claims == nil {
			return errBadClaims
		}
		var err error
		if *names, err = readClaims(claims, c, how); err != nil {
			return err
		}
	}
	return nil
}

// readClaims collects the requested claims that the client may have, and reads who has to
// sign in.
func readClaims(claims map[string]*claimRequest, c *client.Client, how *signin.Parameters) (names []string, err error) {
	for name, claim := range claims {
		wanted := claim.wanted()
		switch {
		case name == "sub" && wanted != nil:
			err = how.RestrictTo(wanted)
		case name == "acr":
			err = how.WantACR(wanted, claim.isEssential())
		case mayClaim(c, name):
			names = append(names, name)
		}
		if err != nil {
			return nil, err
		}
	}
	slices.Sort(names)
	return names, nil
}

// mayClaim reports whether the client may request a claim, because it may request its scope.
func mayClaim(c *client.Client, claim string) bool {
	scope := people.ScopeOf(claim)
	return scope != "" && (slices.Contains(smart.ReservedScopes, scope) || slices.Contains(c.Scopes, scope))
}
