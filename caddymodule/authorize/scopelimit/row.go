package scopelimit

import (
	"fmt"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// Row gives scopes to the people whom it matches.
type Row struct {
	// The provider that must say so, or `local` for users here. Default: any of these.
	IDP string `json:"idp,omitempty"`

	// Whom it matches: people by their `group` or a `claim`, or `any`. Required.
	By string `json:"by,omitempty"`

	// The name of a `token_claim` of some provider. Required for `claim`.
	Claim string `json:"claim,omitempty"`

	// The group, or a value of the claim. Required, except for `any`.
	Value string `json:"value,omitempty"`

	// The scopes for records that people may have, such as `user/*.rs`, and those of the site's own. Required.
	Scopes []string `json:"scopes,omitempty"`
}

// Check refuses a row that matches nobody, or gives what no row gives.
func (r Row) Check() error {
	byClaim := r.By == "claim"
	switch {
	case !byClaim && r.By != "group" && r.By != "any":
		return fmt.Errorf("scope_limit %q: use group, claim or any", r.By)
	case (r.Value == "") != (r.By == "any"), (r.Claim == "") == byClaim:
		return fmt.Errorf("scope_limit %s: use group <name>, claim <name> <value>, or any, and then the scopes", r.By)
	case len(r.Scopes) == 0:
		return fmt.Errorf("scope_limit %s needs at least one scope: who has no row gets none", r.By)
	}
	for _, scope := range r.Scopes {
		if err := checkScope(scope); err != nil {
			return fmt.Errorf("scope_limit %s: %w", r.By, err)
		}
	}
	return nil
}

func checkScope(scope string) error {
	if err := smart.CheckScope(scope); err != nil {
		return err
	}
	resource, ok := smart.ParseResourceScope(scope)
	switch {
	case isFree(scope):
		return fmt.Errorf("scope %q is not limited: everybody may have it", scope)
	case client.IsSystemScope(scope):
		return fmt.Errorf("scope %q is no person's", scope)
	case ok && resource.Type != smart.AnyType && !interaction.IsType(resource.Type):
		return fmt.Errorf("scope %q: FHIR R4 has no type %s", scope, resource.Type)
	}
	return nil
}

// CheckSiteScope refuses what is no scope of the site's own that a row can give.
func CheckSiteScope(scope string) error {
	if _, resource := smart.ParseResourceScope(scope); resource {
		return fmt.Errorf("scope %q is for records: name one of the site's own", scope)
	}
	return checkScope(scope)
}

// isFree reports whether a scope opens no records and is none of the site's own.
func isFree(scope string) bool {
	return isHelper(scope) ||
		slices.Contains([]string{"openid", "profile", "email", "phone", "address", "fhirUser", "groups"}, scope)
}

// isHelper reports whether a scope says only how others are used.
func isHelper(scope string) bool {
	return scope == client.OfflineAccess || scope == client.OnlineAccess || scope == "launch" || strings.HasPrefix(scope, "launch/")
}
