package keycloakrealm

import (
	"fmt"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

// ownClients are Keycloak's own.
var ownClients = []string{"account", "account-console", "admin-cli", "broker", "realm-management", "security-admin-console"}

// quietScopes are Keycloak's own that every client has here, or that mean nothing here.
var quietScopes = []string{"acr", "basic", "email", "microprofile-jwt", "openid", "organization", "phone", "profile", "roles", "role_list", "saml_organization", "service_account", "web-origins"}

func (c conversion) clients() {
	for _, app := range c.realm.Clients {
		if slices.Contains(ownClients, app.ClientID) {
			continue
		}
		if reason := app.untakeable(); reason != "" {
			c.out.remark("the client %s: %s", app.ClientID, reason)
			continue
		}
		c.client(app)
	}
}

// isOn reads a member that is true unless it says otherwise.
func isOn(b *bool) bool { return b == nil || *b }

func (app client) untakeable() string {
	switch {
	case app.Protocol != "" && app.Protocol != "openid-connect":
		return "its protocol is " + app.Protocol
	case !isOn(app.Enabled):
		return "it is disabled"
	case app.BearerOnly:
		return "it only takes tokens, and needs no registration here"
	case app.ClientID == "" || isReplaced(app.ClientID):
		return "the client_id is empty, or has braces"
	case app.usesKeys() && app.Attributes["jwks.url"] == "":
		return "its keys are not in the export; give them in jwks or jwks_uri"
	case !app.Public && !app.usesKeys() && !app.hasSecret():
		return "its secret is masked in this export, or has braces; without it, it would be a public client"
	case !app.usesCodes() && !app.usesCredentials():
		return "it has no redirect URI that can be taken over, and no service account"
	}
	return ""
}

func (app client) usesCodes() bool {
	return isOn(app.StandardFlow) && slices.ContainsFunc(app.redirectURIs(), func(uri string) bool { return checkRedirectURI(uri) == nil })
}

// usesCredentials reports whether the client gets tokens of its own.
func (app client) usesCredentials() bool { return app.ServiceAccount && !app.Public }

// usesKeys reports whether the client authenticates by private_key_jwt.
func (app client) usesKeys() bool { return !app.Public && app.Authenticator == "client-jwt" }

// hasSecret reports whether the export has the client's secret, which the admin console masks.
func (app client) hasSecret() bool {
	return strings.Trim(app.Secret, "*") != "" && !isReplaced(app.Secret)
}

// redirectURIs are absolute ones.
func (app client) redirectURIs() []string { return app.absolute(app.RedirectURIs) }

func (app client) absolute(uris []string) []string {
	all := make([]string, 0, len(uris))
	for _, uri := range uris {
		if strings.HasPrefix(uri, "/") {
			uri = strings.TrimSuffix(app.RootURL, "/") + uri
		}
		all = append(all, uri)
	}
	return all
}

// client writes the block of an app.
func (c conversion) client(app client) {
	c.out.within("client", app.ClientID, func() {
		c.out.line("name", app.Name)
		switch {
		case app.usesKeys():
			c.out.line("jwks_uri", app.Attributes["jwks.url"])
		case !app.Public:
			c.out.line("secret", app.Secret)
		}
		if isOn(app.StandardFlow) {
			c.out.words("redirect_uri", c.taken("redirect_uri", app.redirectURIs(), checkRedirectURI))
		}
		c.out.words("scope", c.scopes(app))
		if app.usesCredentials() {
			c.out.line("grant_type", "client_credentials")
		}
		if app.ImplicitFlow {
			c.out.remark("the implicit flow; response_type allows it")
		}
		if app.DirectGrants {
			c.out.remark("direct access grants: apps do not get people's passwords here")
		}
		if app.ConsentRequired {
			c.out.line("consent", "required")
		}
		c.addresses(app)
		for _, mapper := range app.Mappers {
			c.out.remark("the mapper %s", mapper.Name)
		}
	})
}

// scopes are those that mean something here.
func (c conversion) scopes(app client) (scopes []string) {
	for _, scope := range slices.Concat(app.DefaultScopes, app.OptionalScopes) {
		_, isResource := smart.ParseResourceScope(scope)
		switch {
		case slices.Contains(quietScopes, scope), slices.Contains(scopes, scope):
		case isResource || slices.Contains(knownScopes, scope):
			scopes = append(scopes, scope)
		default:
			c.out.remark("the scope %s, which means nothing on a FHIR API", scope)
		}
	}
	return scopes
}

var knownScopes = []string{"address", "fhirUser", "groups", "launch", "launch/patient", "launch/encounter", "offline_access", "online_access"}

func (c conversion) addresses(app client) {
	logout := app.Attributes["post.logout.redirect.uris"]
	if logout == "+" {
		c.out.words("post_logout_redirect_uri", slices.DeleteFunc(app.redirectURIs(), func(uri string) bool { return checkRedirectURI(uri) != nil }))
	} else if logout != "" && logout != "-" {
		c.out.words("post_logout_redirect_uri", c.taken("post_logout_redirect_uri", app.absolute(strings.Split(logout, "##")), checkRedirectURI))
	}
	if uri := app.Attributes["backchannel.logout.url"]; uri != "" {
		c.out.words("backchannel_logout_uri", c.taken("backchannel_logout_uri", []string{uri}, authorize.CheckBackchannelLogoutURI))
	}
}

// checkRedirectURI also refuses Keycloak's wildcards.
func checkRedirectURI(uri string) error {
	if strings.Contains(uri, "*") {
		return fmt.Errorf("%q: addresses must match exactly here; list each", uri)
	}
	return authorize.CheckRedirectURI(uri)
}
