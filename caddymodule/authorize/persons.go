package authorize

import (
	"maps"
	"slices"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/launch"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/revalidation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/scopelimit"
)

type (
	// User is a local user, or a person of an identity provider.
	User = people.User

	// IdentityProvider configures an OpenID Connect provider by which people may sign in.
	IdentityProvider = people.IdentityProvider

	// Revalidation asks an [IdentityProvider] again about people who signed in there.
	Revalidation = people.Revalidation

	// FHIRUserSearch says how a person's own resource is found at the FHIR server.
	FHIRUserSearch = launch.PersonSearch

	// ScopeLimit gives scopes to the people whom it matches.
	ScopeLimit = scopelimit.Row

	// ProviderState is how an [IdentityProvider] answers whether people may still come.
	ProviderState = revalidation.ProviderState

	// ProviderChecks are the latest checks of each [IdentityProvider] at this gateway. The zero value has none.
	ProviderChecks = revalidation.Checks

	// AllowRule is one way to be allowed in by an [IdentityProvider].
	AllowRule = people.AllowRule
)

// CheckResults are what can come of a check of an [IdentityProvider].
var CheckResults = revalidation.Results

// ErrAmbiguous says that what an operator calls somebody may mean several people, and lists their subs.
var ErrAmbiguous = people.ErrAmbiguous

// LocalUsers names the users of this server in a client's list of identity providers.
const LocalUsers = people.Local

// CheckClaim returns an error if a user cannot have a claim with this value.
func CheckClaim(name, value string) error { return people.CheckClaim(name, value) }

// CheckMappedClaim returns an error if a claim of an identity provider cannot be mapped to this one.
func CheckMappedClaim(claim string) error { return people.CheckMappedClaim(claim) }

// CheckMappedACR returns an error if an acr of an identity provider cannot stand for a class of ours.
func CheckMappedACR(theirs, class string) error { return people.CheckMappedACR(theirs, class) }

// CheckEmail returns an error if a text is not an e-mail address.
func CheckEmail(address string) error { return people.CheckEmail(address) }

// CheckDomain returns an error if a text is not a domain of e-mail addresses.
func CheckDomain(domain string) error { return people.CheckDomain(domain) }

// CheckFHIRUser returns an error if a reference is not to a resource for a person (SMART App Launch 2.2).
func CheckFHIRUser(reference string) error { return people.CheckFHIRUser(reference) }

// CheckProviderKey returns an error if a text cannot be the key of an identity provider.
func CheckProviderKey(key string) error { return people.CheckProviderKey(key) }

func tokenClaims(c *Config, users *people.Directory) map[string][]string {
	names := map[string][]string{}
	if users.Len() > 0 {
		names[LocalUsers] = nil
	}
	for _, p := range c.IdentityProviders {
		names[p.Key] = slices.Collect(maps.Keys(p.TokenClaims))
	}
	return names
}
