package authorize

import (
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

// capabilities are those of SMART App Launch 2.2, Conformance, each with what it takes. What
// a client would be registered for is there even if none is registered yet.
var capabilities = []struct {
	name string
	has  func(*discovery) bool
}{
	{"launch-standalone", always},
	{"launch-ehr", (*discovery).launchesFromEHR},
	{"authorize-post", func(d *discovery) bool { return d.authorizePOST }},
	{"client-public", always},
	{"client-confidential-symmetric", always},
	{"client-confidential-asymmetric", always},
	{"sso-openid-connect", always},
	{"context-banner", (*discovery).launchesFromEHR},
	{"context-style", (*discovery).launchesFromEHR},
	{"context-ehr-patient", (*discovery).launchesFromEHR},
	{"context-ehr-encounter", (*discovery).launchesFromEHR},
	{"context-standalone-patient", func(d *discovery) bool { return d.allows("launch/patient") }},
	{"context-standalone-encounter", func(d *discovery) bool { return d.hasRecords && d.allows("launch/encounter") }},
	{"permission-offline", func(d *discovery) bool { return d.allowsRefresh(client.OfflineAccess) }},
	{"permission-online", func(d *discovery) bool { return d.allowsRefresh(client.OnlineAccess) }},
	{"permission-patient", func(d *discovery) bool { return d.allowsLevel("patient") }},
	{"permission-user", func(d *discovery) bool { return d.allowsLevel("user") }},
	{"permission-v1", func(d *discovery) bool { return d.clients.Any(hasResourceScope) }},
	{"permission-v2", func(d *discovery) bool { return d.clients.Any(hasResourceScope) }},
}

func always(*discovery) bool { return true }

// capabilityNames are the capabilities of this server.
func (d *discovery) capabilityNames() (names []string) {
	for _, c := range capabilities {
		if c.has(d) {
			names = append(names, c.name)
		}
	}
	return names
}

// launchesFromEHR reports whether an EHR may launch, or a person by the launch page.
func (d *discovery) launchesFromEHR() bool {
	return d.serves(endpoint.Launch) || d.serves(endpoint.LaunchPage)
}

// allows reports whether some client may be granted a scope.
func (d *discovery) allows(scope string) bool {
	return d.clients.Any(func(c *client.Client) bool { return slices.Contains(c.Scopes, scope) })
}

func (d *discovery) allowsRefresh(scope string) bool {
	return d.clients.Any(func(c *client.Client) bool { return c.CanRefresh() && slices.Contains(c.Scopes, scope) })
}

func (d *discovery) allowsLevel(level string) bool {
	return d.clients.Any(func(c *client.Client) bool {
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
