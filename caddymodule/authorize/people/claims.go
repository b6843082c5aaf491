package people

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// scopeClaims are the claims of each scope (OpenID Connect Core §5.4; SMART App Launch 2.2
// for fhirUser), in the order of the standard.
var scopeClaims = []struct {
	scope  string
	claims []string
}{
	{"profile", []string{
		"name", "family_name", "given_name", "middle_name", "nickname", "preferred_username", "profile",
		"picture", "website", "gender", "birthdate", "zoneinfo", "locale", "updated_at",
	}},
	{"email", []string{"email", "email_verified"}},
	{"phone", []string{"phone_number", "phone_number_verified"}},
	{"address", []string{"address"}},
	{"fhirUser", []string{"fhirUser"}},
	{"groups", []string{"groups"}}, // not a standard, but common
}

// ClaimsOfScope returns the claims of a granted scope.
func ClaimsOfScope(scope []string) (names []string) {
	for _, s := range scopeClaims {
		if slices.Contains(scope, s.scope) {
			names = append(names, s.claims...)
		}
	}
	return names
}

// ClaimsOfAllScopes returns the claims of all scopes.
func ClaimsOfAllScopes() (names []string) {
	for _, s := range scopeClaims {
		names = append(names, s.claims...)
	}
	return names
}

// ScopeOf returns the scope that has a claim, or "".
func ScopeOf(claim string) string {
	for _, s := range scopeClaims {
		if slices.Contains(s.claims, claim) {
			return s.scope
		}
	}
	return ""
}

// Claims returns those of the named claims that a person has.
func (a *Accounts) Claims(user *User, names []string) map[string]any {
	all := map[string]any{}
	for name, value := range user.Claims {
		putClaim(all, name, value)
	}
	for name, value := range map[string]string{
		"name": user.Name, "preferred_username": user.username, "email": user.Email,
		"phone_number": user.Phone, "fhirUser": a.FHIRUser(user),
	} {
		if value != "" {
			all[name] = value
		}
	}
	if user.Email != "" {
		all["email_verified"] = user.EmailVerified
	}
	if len(user.Groups) > 0 {
		all["groups"] = user.Groups
	}
	if user.Phone == "" {
		delete(all, "phone_number_verified")
	}
	maps.DeleteFunc(all, func(name string, _ any) bool { return !slices.Contains(names, name) })
	return all
}

// putClaim adds a claim in its standard form: a number for updated_at, a boolean for
// phone_number_verified, an object for address.
func putClaim(all map[string]any, name, value string) {
	switch object, member, nested := strings.Cut(name, "."); {
	case nested:
		address, ok := all[object].(map[string]string)
		if !ok {
			address = map[string]string{}
			all[object] = address
		}
		address[member] = value
	case name == "updated_at":
		if seconds, err := strconv.ParseInt(value, 10, 64); err == nil {
			all[name] = seconds
		}
	case name == "phone_number_verified":
		all[name] = value == "true"
	default:
		all[name] = value
	}
}

// FHIRUser is the absolute URL of the person's FHIR resource.
func (a *Accounts) FHIRUser(user *User) string {
	if user.FHIRUser == "" {
		return ""
	}
	return a.FHIRBase + "/" + user.FHIRUser
}
