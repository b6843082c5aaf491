package authorize

import (
	"maps"
	"slices"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

// maxScopes are listed in scopes_supported, which need not be complete (SMART App Launch 2.2,
// Conformance).
const maxScopes = 200

// supportedScopes are those that some client may be granted: first those with a meaning of
// their own, then wildcards, then all others.
func (o *offer) supportedScopes() []string {
	scopes := append(slices.Clone(smart.ReservedScopes), "fhirUser")
	for _, well := range []struct {
		scope string
		known bool
	}{
		{"launch", o.launchesFromEHR && o.allows("launch")},
		{"launch/encounter", o.allows("launch/encounter") && (o.hasRecords || o.launchesFromEHR)},
		{client.OfflineAccess, o.allowsRefresh(client.OfflineAccess)},
		{client.OnlineAccess, o.allowsRefresh(client.OnlineAccess)},
	} {
		if well.known {
			scopes = append(scopes, well.scope)
		}
	}
	wildcards, others := o.clientScopes()
	for _, scope := range slices.Concat(wildcards, others) {
		if len(scopes) < maxScopes && !slices.Contains(scopes, scope) {
			scopes = append(scopes, scope)
		}
	}
	return scopes
}

// clientScopes are the scopes of all clients, and the wildcards of which these are parts:
// who asks for a wildcard is granted what is listed for the client.
func (o *offer) clientScopes() (wildcards, others []string) {
	wild, other := map[string]bool{}, map[string]bool{}
	o.clients.Any(func(c *client.Client) bool {
		for _, scope := range c.Scopes {
			resource, isResource := smart.ParseResourceScope(scope)
			switch {
			case hasCondition(scope):
				continue
			case isResource:
				resource.Type, resource.Query = smart.AnyType, ""
				wild[resource.String()] = true
			}
			other[scope] = true
		}
		return false // go on to the next client
	})
	return slices.Sorted(maps.Keys(wild)), slices.Sorted(maps.Keys(other))
}

// hasCondition reports whether a scope needs more than to be listed for a client.
func hasCondition(scope string) bool {
	return slices.Contains([]string{"launch", "launch/encounter", client.OfflineAccess, client.OnlineAccess}, scope)
}
