package keycloakrealm

import (
	"fmt"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/subject"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

var (
	// ownClients are Keycloak's own.
	ownClients = []string{"account", "account-console", "admin-cli", "broker", "realm-management", "security-admin-console"}

	// quietScopes are Keycloak's own that every client has here, or that mean nothing here.
	quietScopes = []string{"acr", "basic", "email", "microprofile-jwt", "openid", "organization", "phone", "profile", "roles", "role_list", "saml_organization", "service_account", "web-origins"}

	knownScopes = []string{"address", "fhirUser", "groups", "launch", "launch/patient", "launch/encounter", "offline_access", "online_access"}
)

func (c *conversion) clients() {
	for _, app := range c.realm.Clients {
		if slices.Contains(ownClients, app.ClientID) {
			continue
		}
		if reason := app.untakeable(); reason != "" {
			c.remark("the client %s: %s", app.ClientID, reason)
			continue
		}
		c.within("client "+quote(app.ClientID), func() { c.client(app) })
	}
}

// isOn reads a member that is true unless it says otherwise.
func isOn(b *bool) bool { return b == nil || *b }

// untakeable says why an app cannot be taken over; "" if it can. The admin console masks secrets.
func (app client) untakeable() string {
	hasSecret := strings.Trim(app.Secret, "*") != "" && !isReplaced(app.Secret)
	switch {
	case app.Protocol != "" && app.Protocol != "openid-connect":
		return "its protocol is " + app.Protocol
	case !isOn(app.Enabled):
		return "it is disabled"
	case app.BearerOnly:
		return "it only takes tokens, and needs no registration here"
	case app.ClientID == "" || isReplaced(app.ClientID):
		return "the client_id is empty, or has braces"
	case subject.CheckConfigured(app.ClientID) != nil:
		return fmt.Sprintf("the client_id %v", subject.CheckConfigured(app.ClientID))
	case app.usesKeys() && app.Attributes["jwks.url"] == "":
		return "its keys are not in the export; give them in jwks or jwks_uri"
	case !app.Public && !app.usesKeys() && !hasSecret:
		return "its secret is masked in this export, or has braces; without it, it would be a public client"
	case len(app.goodRedirectURIs()) == 0 && !app.usesCredentials():
		return "it has no redirect URI that can be taken over, and no service account"
	}
	return ""
}

// usesCredentials reports whether the client gets tokens of its own.
func (app client) usesCredentials() bool { return app.ServiceAccount && !app.Public }

// usesKeys reports whether the client authenticates by private_key_jwt.
func (app client) usesKeys() bool { return !app.Public && app.Authenticator == "client-jwt" }

// redirectURIs are those of a client that has the authorization code flow.
func (app client) redirectURIs() []string {
	if !isOn(app.StandardFlow) {
		return nil
	}
	return app.absolute(app.RedirectURIs)
}

func (app client) goodRedirectURIs() []string {
	return slices.DeleteFunc(app.redirectURIs(), func(uri string) bool { return checkRedirectURI(uri) != nil })
}

func (app client) absolute(uris []string) (all []string) {
	for _, uri := range uris {
		if strings.HasPrefix(uri, "/") {
			uri = strings.TrimSuffix(app.RootURL, "/") + uri
		}
		all = append(all, uri)
	}
	return all
}

func (c *conversion) client(app client) {
	c.option("name", nil, app.Name)
	switch {
	case app.usesKeys():
		c.option("jwks_uri", nil, app.Attributes["jwks.url"])
	case !app.Public:
		c.option("secret", nil, app.Secret)
	}
	c.option("redirect_uri", checkRedirectURI, app.redirectURIs()...)
	c.option("scope", nil, c.scopes(app)...)
	if app.usesCredentials() {
		c.raw("grant_type client_credentials")
	}
	if app.ImplicitFlow {
		c.remark("the implicit flow; response_type allows it")
	}
	if app.DirectGrants {
		c.remark("direct access grants: apps do not get people's passwords here")
	}
	if app.ConsentRequired {
		c.raw("consent required")
	}
	switch logout := app.Attributes["post.logout.redirect.uris"]; logout {
	case "+":
		c.option("post_logout_redirect_uri", nil, app.goodRedirectURIs()...)
	case "", "-":
	default:
		c.option("post_logout_redirect_uri", checkRedirectURI, app.absolute(strings.Split(logout, "##"))...)
	}
	c.option("backchannel_logout_uri", authorize.CheckBackchannelLogoutURI, app.Attributes["backchannel.logout.url"])
	for _, mapper := range app.Mappers {
		c.remark("the mapper %s", mapper.Name)
	}
}

// scopes are those that mean something here.
func (c *conversion) scopes(app client) (scopes []string) {
	for _, scope := range slices.Concat(app.DefaultScopes, app.OptionalScopes) {
		_, isResource := smart.ParseResourceScope(scope)
		switch {
		case slices.Contains(quietScopes, scope), slices.Contains(scopes, scope):
		case isResource || slices.Contains(knownScopes, scope):
			scopes = append(scopes, scope)
		default:
			c.remark("the scope %s, which means nothing on a FHIR API", scope)
		}
	}
	return scopes
}

// checkRedirectURI also refuses Keycloak's wildcards.
func checkRedirectURI(uri string) error {
	if strings.Contains(uri, "*") {
		return fmt.Errorf("%q: addresses must match exactly here; list each", uri)
	}
	return authorize.CheckRedirectURI(uri)
}
