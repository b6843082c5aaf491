package flow

import (
	"encoding/json"
	"slices"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/strictjson"
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

// readClaims collects the requested claims that the client may have, and reads who has to
// sign in.
func (req *authorizationRequest) readClaims(claims map[string]*claimRequest, names *[]string) error {
	for name, claim := range claims {
		wanted := claim.wanted()
		switch {
		case name == "sub" && wanted != nil:
			if err := req.restrictTo(wanted); err != nil {
				return err
			}
		case name == "acr":
			if err := req.readACR(claim); err != nil {
				return err
			}
		case mayClaim(req.client, name):
			*names = append(*names, name)
		}
	}
	slices.Sort(*names)
	return nil
}

// restrictTo lets only people with these subs sign in.
func (req *authorizationRequest) restrictTo(subjects []any) error {
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

func (req *authorizationRequest) isFor(subject string) bool {
	return req.subjects == nil || slices.Contains(req.subjects, subject)
}

// mayClaim reports whether the client may request a claim, because it may request its scope.
func mayClaim(c *client.Client, claim string) bool {
	scope := people.ScopeOf(claim)
	return scope != "" && (slices.Contains(client.ReservedScopes, scope) || slices.Contains(c.Scopes, scope))
}
