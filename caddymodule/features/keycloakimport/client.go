package keycloakimport

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/namecheck"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

var (
	// builtInClients are Keycloak's built-in clients.
	builtInClients = []string{"account", "account-console", "admin-cli", "broker", "realm-management", "security-admin-console"}

	// ignoredScopes are built-in scopes of Keycloak that the gateway either does not use or grants to every client.
	ignoredScopes = []string{"acr", "basic", "email", "microprofile-jwt", "openid", "organization", "phone", "profile", "roles", "role_list", "saml_organization", "service_account", "web-origins"}

	supportedScopes = []string{"address", "fhirUser", "groups", "launch", "launch/patient", "launch/encounter", "offline_access", "online_access"}
)

func (c *converter) writeClients() {
	for _, app := range c.realm.Clients {
		if slices.Contains(builtInClients, app.ClientID) {
			continue
		}
		reason := cmp.Or(c.clientSkipReason(app), c.realm.unsupportedRequirement(app), c.realm.lifespans.shorterLifetimeReason(app.Attributes))
		if c.writeEntry("client", app.ClientID, reason, func() { c.writeClient(app) }) {
			c.clientIDs[app.ClientID] = true
		}
	}
}

// trueByDefault returns the value of a JSON member that is true if missing.
func trueByDefault(b *bool) bool { return b == nil || *b }

// clientSkipReason returns the reason why a client cannot be converted, or "". The admin console exports masked secrets.
func (c *converter) clientSkipReason(app keycloakClient) string {
	hasSecret := strings.Trim(app.Secret, "*") != "" && !isAlteredByCaddy(app.Secret)
	switch {
	case app.Protocol != "" && app.Protocol != "openid-connect":
		return "unsupported protocol " + app.Protocol
	case !trueByDefault(app.Enabled):
		return "the client is disabled"
	case app.BearerOnly:
		return "bearer-only clients need no registration at this server"
	case app.ClientID == "" || isAlteredByCaddy(app.ClientID):
		return "the client_id is empty or contains braces"
	case namecheck.CheckConfigured(app.ClientID) != nil:
		return fmt.Sprintf("the client_id %v", namecheck.CheckConfigured(app.ClientID))
	case c.clientIDs[app.ClientID]:
		return "duplicate client_id"
	case !app.IsPublic && !app.usesKeys() && app.Authenticator != "" && app.Authenticator != "client-secret":
		return "unsupported authentication method " + app.Authenticator + "; configure the client with keys (jwks, jwks_uri)"
	case app.usesKeys() && app.jwks() == "" && app.jwksURI() == "":
		return "the client's key is missing or a certificate; configure the client with jwks or jwks_uri"
	case app.usesKeys() && app.jwks() != "" && !isLiteralJSON(app.jwks()):
		return "jwks.string is not JSON that can be written in a Caddyfile; configure the client with jwks in a file"
	case !app.IsPublic && !app.usesKeys() && !hasSecret:
		return "the client secret is masked in this export or contains braces; without the secret, the client would be public"
	case len(app.validRedirectURIs()) == 0 && !app.usesClientCredentials():
		return "the client has neither a valid redirect URI nor a service account"
	}
	return ""
}

// usesClientCredentials reports whether the client uses the client credentials grant.
func (app keycloakClient) usesClientCredentials() bool { return app.ServiceAccount && !app.IsPublic }

// usesKeys reports whether the client authenticates with private_key_jwt.
func (app keycloakClient) usesKeys() bool { return !app.IsPublic && app.Authenticator == "client-jwt" }

// redirectURIs returns the redirect URIs of a client, or nil if it doesn't use the authorization code flow.
func (app keycloakClient) redirectURIs() []string {
	if !trueByDefault(app.StandardFlow) {
		return nil
	}
	return app.absoluteURIs(app.RedirectURIs)
}

func (app keycloakClient) validRedirectURIs() []string {
	return slices.DeleteFunc(app.redirectURIs(), func(uri string) bool { return checkRedirectURI(uri) != nil })
}

func (app keycloakClient) absoluteURIs(uris []string) (all []string) {
	for _, uri := range uris {
		if strings.HasPrefix(uri, "/") {
			uri = strings.TrimSuffix(app.RootURL, "/") + uri
		}
		all = append(all, uri)
	}
	return all
}

// jwks returns the JWK Set in a client's export, on one line; "" if there is none.
func (app keycloakClient) jwks() string {
	text := app.Attributes["jwks.string"]
	if app.Attributes["use.jwks.url"] == "true" || app.Attributes["use.jwks.string"] != "true" {
		return ""
	}
	var line bytes.Buffer
	if json.Compact(&line, []byte(text)) != nil {
		return text
	}
	return line.String()
}

func (app keycloakClient) jwksURI() string {
	if app.Attributes["use.jwks.url"] != "true" {
		return ""
	}
	return app.Attributes["jwks.url"]
}

// isLiteralJSON reports whether text is JSON that the Caddyfile parser leaves unchanged between backquotes.
func isLiteralJSON(text string) bool {
	return json.Valid([]byte(text)) && !strings.Contains(text, "`") && !strings.Contains(text, "{$")
}

func (c *converter) writeClient(app keycloakClient) {
	c.writeOption("name", nil, app.Name)
	switch {
	case app.usesKeys() && app.jwks() != "":
		c.writeLine("jwks", app.jwks())
	case app.usesKeys():
		c.writeOption("jwks_uri", nil, app.jwksURI())
	case !app.IsPublic:
		c.writeOption("secret", nil, app.Secret)
	}
	c.writeOption("redirect_uri", checkRedirectURI, app.redirectURIs()...)
	c.writeOption("scope", nil, c.convertScopes(app)...)
	if app.usesClientCredentials() {
		c.writeRaw("grant_type client_credentials")
	}
	c.writeRequirements(app)
	c.writeOption("post_logout_redirect_uri", checkRedirectURI, app.logoutURIs()...)
	c.writeOption("backchannel_logout_uri", client.CheckBackchannelLogoutURI, app.Attributes["backchannel.logout.url"])
	c.writeNative(slices.Concat(app.redirectURIs(), app.logoutURIs()))
	c.reportDifferences(app)
}

// writeNative writes the option that clients with redirect URIs of native apps need.
func (c *converter) writeNative(uris []string) {
	uris = slices.DeleteFunc(uris, func(uri string) bool { return !isNative(uri) })
	if len(uris) > 0 {
		c.writeRaw("native")
	}
	for _, uri := range uris {
		if u, err := url.Parse(uri); err == nil && u.Port() != "" {
			c.reportChange("%s matches any port (RFC 8252 section 7.3)", uri)
		}
	}
}

func (app keycloakClient) logoutURIs() []string {
	switch uris := app.Attributes["post.logout.redirect.uris"]; uris {
	case "+":
		return app.validRedirectURIs()
	case "", "-":
		return nil
	default:
		return app.absoluteURIs(strings.Split(uris, "##"))
	}
}

// isNative reports whether a URI is allowed only for native apps: a loopback address or a private-use scheme (RFC 8252 §7).
func isNative(uri string) bool {
	u, err := url.Parse(uri)
	return err == nil && checkRedirectURI(uri) == nil && u.Scheme != "https" && u.Hostname() != "localhost"
}

// reportDifferences notes client settings without a counterpart at the gateway, including those of later Keycloak versions.
func (c *converter) reportDifferences(app keycloakClient) {
	for _, difference := range []struct {
		text string
		is   bool
	}{
		{"the implicit flow is disabled; enable it with response_type", app.ImplicitFlow},
		{"direct access grants are not supported: apps must not handle passwords", app.DirectGrants},
		{"authorization services (resources, policies, permissions) are not enforced", app.Authorization},
	} {
		if difference.is {
			c.reportChange("%s", difference.text)
		}
	}
	for _, mapper := range app.Mappers {
		c.reportChange("mapper omitted: %s", mapper.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(app.Attributes)) {
		if value := app.Attributes[name]; !slices.Contains(handledAttributes, name) && !slices.Contains([]string{"", "false", "any"}, value) {
			c.reportChange("unsupported setting omitted: %s (%s)", name, value)
		}
	}
}

// convertScopes returns the scopes that the gateway uses, without scopes restricted to roles: these would be open to every user
// of the gateway.
func (c *converter) convertScopes(app keycloakClient) (scopes []string) {
	for _, scope := range slices.Concat(app.DefaultScopes, app.OptionalScopes) {
		_, isResource := smart.ParseResourceScope(scope)
		switch {
		case slices.Contains(ignoredScopes, scope), slices.Contains(scopes, scope):
		case c.restrictedScopes[scope]:
			c.reportChange("scope %s omitted: Keycloak restricts it to a role; add the scope with a scope_limit", scope)
		case slices.Contains([]string{"offline_access", "online_access"}, scope) && app.Attributes["use.refresh.tokens"] == "false":
			c.reportChange("scope %s omitted: use.refresh.tokens is false", scope)
		case isResource || slices.Contains(supportedScopes, scope):
			scopes = append(scopes, scope)
		default:
			c.reportChange("scope %s omitted: it has no meaning for a FHIR API", scope)
		}
	}
	return scopes
}

// checkRedirectURI also rejects Keycloak's wildcards.
func checkRedirectURI(uri string) error {
	if strings.Contains(uri, "*") {
		return fmt.Errorf("%q: wildcards are not supported; list each redirect URI", uri)
	}
	return client.CheckAnyRedirectURI(uri)
}

var (
	// unsupportedSettings are protective client settings without a counterpart at the gateway: without them, the client would
	// be weaker.
	unsupportedSettings = []struct {
		attribute, reason string
		noEffect          []string // values without effect
	}{
		{"tls.client.certificate.bound.access.tokens", "certificate-bound tokens (mTLS) are not supported", nil},
		{"dpop.bound.access.tokens", "DPoP-bound tokens are not supported", nil},
		{"id.token.encrypted.response.alg", "encrypted ID tokens are not supported", nil},
		{"user.info.encrypted.response.alg", "encrypted userinfo responses are not supported", nil},
		{"user.info.response.signature.alg", "signed userinfo responses are not converted", []string{"unsigned", "none"}},
		{"authorization.signed.response.alg", "signed authorization responses (JARM) are not supported", nil},
		{"authorization.encrypted.response.alg", "encrypted authorization responses (JARM) are not supported", nil},
		{"minimum.acr.value", "a minimum acr is not converted; configure the client with acr", nil},
		{"default.acr.values", "default acr values are not converted; configure the client with acr", nil},
		{"acr.loa.map", "client-specific levels of authentication are not converted; configure the client with acr", []string{"{}"}},
		{"client.secret.rotated", "a secret rotation is in progress; convert the client after the rotation", nil},
		{"client.secret.expiration.time", "expiring client secrets are not supported; use a secret that does not expire, or keys", []string{"0"}},
	}

	// convertedAttributes are settings that are converted elsewhere or have no effect on security.
	convertedAttributes = []string{
		"realm_client", "client.secret.creation.time", "post.logout.redirect.uris", "backchannel.logout.url", "backchannel.logout.session.required",
		"pkce.code.challenge.method", "require.pushed.authorization.requests", "request.object.required",
		"request.object.signature.alg", "use.jwks.url", "jwks.url", "use.jwks.string", "jwks.string", "use.refresh.tokens", "id.token.signed.response.alg",
		"access.token.lifespan", "client.session.idle.timeout", "client.session.max.lifespan", "client.offline.session.idle.timeout",
		"client.offline.session.max.lifespan", "display.on.consent.screen", "frontchannel.logout.session.required", "jwt.credential.certificate",
	}

	handledAttributes = slices.Concat(convertedAttributes, unsupportedAttributes())
)

func unsupportedAttributes() (names []string) {
	for _, u := range unsupportedSettings {
		names = append(names, u.attribute)
	}
	return names
}

// unsupportedRequirement returns the requirement or protection of a client that this server cannot provide, or "".
func (r *realm) unsupportedRequirement(app keycloakClient) string {
	for _, u := range unsupportedSettings {
		value := app.Attributes[u.attribute]
		if value != "" && value != "false" && !slices.Contains(u.noEffect, value) {
			return u.reason
		}
	}
	for _, p := range r.ClientPolicies.Policies {
		if p.Enabled && len(p.Profiles) > 0 {
			return fmt.Sprintf("the client policy %s may add requirements that are not converted; set them on the client, and disable the policy", p.Name)
		}
	}
	for flow, id := range app.FlowOverrides {
		if id != "" {
			return fmt.Sprintf("an authentication flow override (%s) is not supported", flow)
		}
	}
	return app.requestObjectProblem()
}

// requestObjectProblem returns the reason why a request object requirement cannot be converted, or "".
func (app keycloakClient) requestObjectProblem() string {
	switch requirement := app.Attributes["request.object.required"]; {
	case requirement == "" || requirement == "not required":
	case requirement == "request_uri only":
		return "the client must use request_uri, which is not supported for configured clients"
	case !app.usesKeys():
		return "the client must use request objects, which require jwks or jwks_uri"
	}
	return ""
}

// writeRequirements writes the options that correspond to Keycloak's requirements for a client.
func (c *converter) writeRequirements(app keycloakClient) {
	for _, option := range []struct {
		line string
		is   bool
	}{
		{"pkce required", app.Attributes["pkce.code.challenge.method"] != "" && !app.IsPublic},
		{"par required", app.Attributes["require.pushed.authorization.requests"] == "true"},
		{"request_objects required", !slices.Contains([]string{"", "not required"}, app.Attributes["request.object.required"])},
		{"consent required", app.ConsentRequired},
		{"acr mfa", c.signIn.secondFactor && len(app.redirectURIs()) > 0},
	} {
		if option.is {
			c.writeRaw(option.line)
		}
	}
	switch alg := app.Attributes["id.token.signed.response.alg"]; alg {
	case "", "any":
	case "RS256", "ES256":
		c.writeOption("id_token_alg", nil, alg)
	default:
		c.reportChange("ID tokens are signed with RS256 instead of %s", alg)
	}
}
