package flow

import (
	"encoding/json"
	"slices"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/strictjson"
)

// claimRequest is how one claim is asked for (OpenID Connect Core §5.5.1). A claim
// that we do not have is left out, essential or not, but for those that say who
// signs in and how.
type claimRequest struct {
	Essential bool  `json:"essential"`
	Value     any   `json:"value"`
	Values    []any `json:"values"`
}

// wanted are the values that will do; none where all will.
func (c *claimRequest) wanted() []any {
	if c == nil {
		return nil
	}
	if c.Value != nil {
		return []any{c.Value}
	}
	return c.Values
}

var errBadClaims = oauth2.InvalidRequest("claims must be a JSON object as in OpenID Connect Core §5.5")

// checkClaims reads the parameter claims (OpenID Connect Core §5.5).
func checkClaims(req *authorizationRequest, p oauth2.Parameters) error {
	if p.Get("claims") == "" {
		return nil
	}
	var asked map[string]json.RawMessage
	if strictjson.Unmarshal([]byte(p.Get("claims")), &asked) != nil || asked == nil {
		return errBadClaims
	}
	for member, names := range map[string]*[]string{"userinfo": &req.userinfoClaims, "id_token": &req.idTokenClaims} {
		if asked[member] == nil {
			continue
		}
		var claims map[string]*claimRequest
		if strictjson.Unmarshal(asked[member], &claims) != nil || claims == nil {
			return errBadClaims
		}
		if err := req.readClaims(claims, names); err != nil {
			return err
		}
	}
	return nil
}

// readClaims keeps the names that the client may ask for, and what the request
// says of the person and of the way to sign in.
func (req *authorizationRequest) readClaims(claims map[string]*claimRequest, names *[]string) error {
	for name, claim := range claims {
		wanted := claim.wanted()
		switch {
		case name == "sub" && wanted != nil:
			if err := req.narrow(wanted); err != nil {
				return err
			}
		case name == "acr" && wanted != nil && claim.Essential:
			// Which class of authentication ours is, we do not claim to know (§5.5.1.1).
			return &oauth2.Error{Code: "unmet_authentication_requirements", Description: "no acr is known here"}
		case mayClaim(req.client, name):
			*names = append(*names, name)
		}
	}
	slices.Sort(*names)
	return nil
}

// narrow lets nobody sign in but the people with these subs.
func (req *authorizationRequest) narrow(subjects []any) error {
	var both []string
	for _, v := range subjects {
		if sub, ok := v.(string); ok && req.isFor(sub) {
			both = append(both, sub)
		}
	}
	if req.subjects = both; len(both) == 0 {
		return &oauth2.Error{Code: "login_required", Description: "no person has the sub that is asked for"}
	}
	return nil
}

// isFor says whether the person with this sub will do.
func (req *authorizationRequest) isFor(subject string) bool {
	return req.subjects == nil || slices.Contains(req.subjects, subject)
}

// mayClaim says whether the client may ask for a claim by its name: if it may ask
// for the scope that holds it.
func mayClaim(c *client.Client, claim string) bool {
	scope := people.ScopeOf(claim)
	return scope != "" && (slices.Contains(client.ReservedScopes, scope) || slices.Contains(c.Scopes, scope))
}
