package authorize

import (
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

// offer is what decides about what this server announces.
type offer struct {
	clients         *client.Registry
	hasRecords      bool // the FHIR server can be asked
	authorizePOST   bool
	launchesFromEHR bool // an EHR may launch, or a person by the launch page
}

// capabilities are those of SMART App Launch 2.2, Conformance, each with what it takes. What
// a client would be registered for is there even if none is registered yet.
var capabilities = []struct {
	name string
	has  func(*offer) bool
}{
	{"launch-standalone", always},
	{"launch-ehr", func(o *offer) bool { return o.launchesFromEHR }},
	{"authorize-post", func(o *offer) bool { return o.authorizePOST }},
	{"client-public", always},
	{"client-confidential-symmetric", always},
	{"client-confidential-asymmetric", always},
	{"sso-openid-connect", always},
	{"context-banner", func(o *offer) bool { return o.launchesFromEHR }},
	{"context-style", func(o *offer) bool { return o.launchesFromEHR }},
	{"context-ehr-patient", func(o *offer) bool { return o.launchesFromEHR }},
	{"context-ehr-encounter", func(o *offer) bool { return o.launchesFromEHR }},
	{"context-standalone-patient", func(o *offer) bool { return o.allows("launch/patient") }},
	{"context-standalone-encounter", func(o *offer) bool { return o.hasRecords && o.allows("launch/encounter") }},
	{"permission-offline", func(o *offer) bool { return o.allowsRefresh(client.OfflineAccess) }},
	{"permission-online", func(o *offer) bool { return o.allowsRefresh(client.OnlineAccess) }},
	{"permission-patient", func(o *offer) bool { return o.allowsLevel("patient") }},
	{"permission-user", func(o *offer) bool { return o.allowsLevel("user") }},
	{"permission-v1", func(o *offer) bool { return o.clients.Any(hasResourceScope) }},
	{"permission-v2", func(o *offer) bool { return o.clients.Any(hasResourceScope) }},
}

func always(*offer) bool { return true }

// capabilityNames are the capabilities of this server.
func (o *offer) capabilityNames() (names []string) {
	for _, c := range capabilities {
		if c.has(o) {
			names = append(names, c.name)
		}
	}
	return names
}

// allows reports whether some client may be granted a scope.
func (o *offer) allows(scope string) bool {
	return o.clients.Any(func(c *client.Client) bool { return slices.Contains(c.Scopes, scope) })
}

func (o *offer) allowsRefresh(scope string) bool {
	return o.clients.Any(func(c *client.Client) bool { return c.CanRefresh() && slices.Contains(c.Scopes, scope) })
}

func (o *offer) allowsLevel(level string) bool {
	return o.clients.Any(func(c *client.Client) bool {
		return slices.ContainsFunc(c.Scopes, func(scope string) bool { return levelOf(scope) == level })
	})
}

func hasResourceScope(c *client.Client) bool {
	return slices.ContainsFunc(c.Scopes, func(scope string) bool { return levelOf(scope) != "" })
}

// levelOf is whose data a resource scope is about, or empty for other scopes.
func levelOf(scope string) string {
	if !strings.Contains(scope, "/") {
		return ""
	}
	resource, _ := smart.ParseResourceScope(scope)
	return resource.Level
}
