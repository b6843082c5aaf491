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
	// ownClients are Keycloak's built-in clients.
	ownClients = []string{"account", "account-console", "admin-cli", "broker", "realm-management", "security-admin-console"}

	// quietScopes are built-in scopes of Keycloak that every client of the gateway has, or that the gateway does not use.
	quietScopes = []string{"acr", "basic", "email", "microprofile-jwt", "openid", "organization", "phone", "profile", "roles", "role_list", "saml_organization", "service_account", "web-origins"}

	knownScopes = []string{"address", "fhirUser", "groups", "launch", "launch/patient", "launch/encounter", "offline_access", "online_access"}
)

func (c *conversion) clients() {
	for _, app := range c.realm.Clients {
		if slices.Contains(ownClients, app.ClientID) {
			continue
		}
		reason := cmp.Or(c.unconvertible(app), c.realm.requirement(app), c.realm.lifespans.shorter(app.Attributes))
		if c.add("client", app.ClientID, reason, func() { c.client(app) }) {
			c.clientIDs[app.ClientID] = true
		}
	}
}

// isOn returns the value of a member with the default true.
func isOn(b *bool) bool { return b == nil || *b }

// unconvertible returns the reason why an app cannot be converted, or "". The admin console masks secrets.
func (c *conversion) unconvertible(app keycloakClient) string {
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
	case namecheck.CheckConfigured(app.ClientID) != nil:
		return fmt.Sprintf("the client_id %v", namecheck.CheckConfigured(app.ClientID))
	case c.clientIDs[app.ClientID]:
		return "another client has its client_id"
	case !app.Public && !app.usesKeys() && app.Authenticator != "" && app.Authenticator != "client-secret":
		return "it authenticates by " + app.Authenticator + ", which this server does not support; register it with keys (jwks, jwks_uri)"
	case app.usesKeys() && app.jwks() == "" && app.jwksURI() == "":
		return "its key is a certificate, or missing; register it with jwks or jwks_uri"
	case app.usesKeys() && app.jwks() != "" && !isLiteralJSON(app.jwks()):
		return "its jwks.string is not JSON that can stand in a Caddyfile; register it with jwks in a file"
	case !app.Public && !app.usesKeys() && !hasSecret:
		return "its secret is masked in this export, or has braces; without it, it would be a public client"
	case len(app.goodRedirectURIs()) == 0 && !app.usesCredentials():
		return "it has no redirect URI that is valid here, and no service account"
	}
	return ""
}

// usesCredentials reports whether the client uses the client credentials grant.
func (app keycloakClient) usesCredentials() bool { return app.ServiceAccount && !app.Public }

// usesKeys reports whether the client authenticates with private_key_jwt.
func (app keycloakClient) usesKeys() bool { return !app.Public && app.Authenticator == "client-jwt" }

// redirectURIs returns the redirect URIs of a client with the authorization code flow.
func (app keycloakClient) redirectURIs() []string {
	if !isOn(app.StandardFlow) {
		return nil
	}
	return app.absolute(app.RedirectURIs)
}

func (app keycloakClient) goodRedirectURIs() []string {
	return slices.DeleteFunc(app.redirectURIs(), func(uri string) bool { return checkRedirectURI(uri) != nil })
}

func (app keycloakClient) absolute(uris []string) (all []string) {
	for _, uri := range uris {
		if strings.HasPrefix(uri, "/") {
			uri = strings.TrimSuffix(app.RootURL, "/") + uri
		}
		all = append(all, uri)
	}
	return all
}

// jwks returns the JWK Set in a client's export, in one line, or "".
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

// isLiteralJSON reports whether text is JSON that Caddy does not change between back-quotes.
func isLiteralJSON(text string) bool {
	return json.Valid([]byte(text)) && !strings.Contains(text, "`") && !strings.Contains(text, "{$")
}

func (c *conversion) client(app keycloakClient) {
	c.option("name", nil, app.Name)
	switch {
	case app.usesKeys() && app.jwks() != "":
		c.line("jwks", app.jwks())
	case app.usesKeys():
		c.option("jwks_uri", nil, app.jwksURI())
	case !app.Public:
		c.option("secret", nil, app.Secret)
	}
	c.option("redirect_uri", checkRedirectURI, app.redirectURIs()...)
	c.option("scope", nil, c.scopes(app)...)
	if app.usesCredentials() {
		c.raw("grant_type client_credentials")
	}
	c.requirements(app)
	c.option("post_logout_redirect_uri", checkRedirectURI, app.logoutURIs()...)
	c.option("backchannel_logout_uri", client.CheckBackchannelLogoutURI, app.Attributes["backchannel.logout.url"])
	c.native(slices.Concat(app.redirectURIs(), app.logoutURIs()))
	c.differences(app)
}

// native writes the option that clients with redirect URIs of native apps need.
func (c *conversion) native(uris []string) {
	uris = slices.DeleteFunc(uris, func(uri string) bool { return !isNative(uri) })
	if len(uris) > 0 {
		c.raw("native")
	}
	for _, uri := range uris {
		if u, err := url.Parse(uri); err == nil && u.Port() != "" {
			c.changed("%s matches with any port (RFC 8252 section 7.3)", uri)
		}
	}
}

func (app keycloakClient) logoutURIs() []string {
	switch uris := app.Attributes["post.logout.redirect.uris"]; uris {
	case "+":
		return app.goodRedirectURIs()
	case "", "-":
		return nil
	default:
		return app.absolute(strings.Split(uris, "##"))
	}
}

// isNative reports whether a URI is allowed only for native apps: a loopback address or a private-use scheme (RFC 8252 §7).
func isNative(uri string) bool {
	u, err := url.Parse(uri)
	return err == nil && checkRedirectURI(uri) == nil && u.Scheme != "https" && u.Hostname() != "localhost"
}

// differences notes client settings without a counterpart at the gateway, including those of later Keycloak versions.
func (c *conversion) differences(app keycloakClient) {
	for _, difference := range []struct {
		text string
		is   bool
	}{
		{"the implicit flow is off; response_type allows it", app.ImplicitFlow},
		{"direct access grants are off: apps do not get people's passwords here", app.DirectGrants},
		{"authorization services (resources, policies, permissions) are not enforced", app.Authorization},
	} {
		if difference.is {
			c.changed("%s", difference.text)
		}
	}
	for _, mapper := range app.Mappers {
		c.changed("mapper omitted: %s", mapper.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(app.Attributes)) {
		if value := app.Attributes[name]; !slices.Contains(readAttributes, name) && !slices.Contains([]string{"", "false", "any"}, value) {
			c.changed("setting omitted, without counterpart: %s (%s)", name, value)
		}
	}
}

// scopes returns the scopes that the gateway uses, without scopes restricted to roles: these would be open to every user of the
// gateway.
func (c *conversion) scopes(app keycloakClient) (scopes []string) {
	for _, scope := range slices.Concat(app.DefaultScopes, app.OptionalScopes) {
		_, isResource := smart.ParseResourceScope(scope)
		switch {
		case slices.Contains(quietScopes, scope), slices.Contains(scopes, scope):
		case c.byRole[scope]:
			c.changed("scope %s omitted: it depends on a role there; add it, and a scope_limit", scope)
		case slices.Contains([]string{"offline_access", "online_access"}, scope) && app.Attributes["use.refresh.tokens"] == "false":
			c.changed("scope %s omitted: use.refresh.tokens is false", scope)
		case isResource || slices.Contains(knownScopes, scope):
			scopes = append(scopes, scope)
		default:
			c.changed("scope %s omitted: it means nothing on a FHIR API", scope)
		}
	}
	return scopes
}

// checkRedirectURI also rejects Keycloak's wildcards.
func checkRedirectURI(uri string) error {
	if strings.Contains(uri, "*") {
		return fmt.Errorf("%q: addresses must match exactly here; list each", uri)
	}
	return client.CheckAnyRedirectURI(uri)
}

var (
	// unsupported are protective client settings without a counterpart at the gateway: without them, the client would be weaker.
	unsupported = []struct {
		attribute, reason string
		harmless          []string // values without effect
	}{
		{"tls.client.certificate.bound.access.tokens", "its tokens are bound to its certificate (mTLS)", nil},
		{"dpop.bound.access.tokens", "its tokens are bound to its key (DPoP)", nil},
		{"id.token.encrypted.response.alg", "its ID tokens are encrypted", nil},
		{"user.info.encrypted.response.alg", "its userinfo is encrypted", nil},
		{"user.info.response.signature.alg", "its userinfo is signed", []string{"unsigned", "none"}},
		{"authorization.signed.response.alg", "its authorization responses are signed (JARM)", nil},
		{"authorization.encrypted.response.alg", "its authorization responses are encrypted (JARM)", nil},
		{"minimum.acr.value", "it requires an acr; register it with acr", nil},
		{"default.acr.values", "it has an acr by default; register it with acr", nil},
		{"acr.loa.map", "it has its own levels of authentication; register it with acr", []string{"{}"}},
		{"client.secret.rotated", "it has a second secret, which expires; register it again after the rotation", nil},
		{"client.secret.expiration.time", "its secret expires; give it one that does not, or keys", []string{"0"}},
	}

	// convertedAttributes are settings that are converted elsewhere or have no effect on security.
	convertedAttributes = []string{
		"realm_client", "client.secret.creation.time", "post.logout.redirect.uris", "backchannel.logout.url", "backchannel.logout.session.required",
		"pkce.code.challenge.method", "require.pushed.authorization.requests", "request.object.required",
		"request.object.signature.alg", "use.jwks.url", "jwks.url", "use.jwks.string", "jwks.string", "use.refresh.tokens", "id.token.signed.response.alg",
		"access.token.lifespan", "client.session.idle.timeout", "client.session.max.lifespan", "client.offline.session.idle.timeout",
		"client.offline.session.max.lifespan", "display.on.consent.screen", "frontchannel.logout.session.required", "jwt.credential.certificate",
	}

	readAttributes = slices.Concat(convertedAttributes, unsupportedAttributes())
)

func unsupportedAttributes() (names []string) {
	for _, u := range unsupported {
		names = append(names, u.attribute)
	}
	return names
}

// requirement returns the requirement or protection of a client that this server cannot provide, or "".
func (r *realm) requirement(app keycloakClient) string {
	for _, u := range unsupported {
		value := app.Attributes[u.attribute]
		if value != "" && value != "false" && !slices.Contains(u.harmless, value) {
			return u.reason
		}
	}
	for _, p := range r.ClientPolicies.Policies {
		if p.Enabled && len(p.Profiles) > 0 {
			return fmt.Sprintf("the client policy %s may require more of it than its own settings; make the settings there, and disable the policy", p.Name)
		}
	}
	for flow, id := range app.FlowOverrides {
		if id != "" {
			return fmt.Sprintf("it has its own %s flow", flow)
		}
	}
	return app.requestObjects()
}

// requestObjects returns the reason why a request object requirement cannot be converted, or "".
func (app keycloakClient) requestObjects() string {
	switch required := app.Attributes["request.object.required"]; {
	case required == "" || required == "not required":
	case required == "request_uri only":
		return "it must use request_uri, which this server does not support for it"
	case !app.usesKeys():
		return "it must use request objects, which need jwks or jwks_uri here"
	}
	return ""
}

// requirements writes the options that correspond to Keycloak's requirements for a client.
func (c *conversion) requirements(app keycloakClient) {
	for _, option := range []struct {
		line string
		is   bool
	}{
		{"pkce required", app.Attributes["pkce.code.challenge.method"] != "" && !app.Public},
		{"par required", app.Attributes["require.pushed.authorization.requests"] == "true"},
		{"request_objects required", !slices.Contains([]string{"", "not required"}, app.Attributes["request.object.required"])},
		{"consent required", app.ConsentRequired},
		{"acr mfa", c.required.secondFactor && len(app.redirectURIs()) > 0},
	} {
		if option.is {
			c.raw(option.line)
		}
	}
	switch alg := app.Attributes["id.token.signed.response.alg"]; alg {
	case "", "any":
	case "RS256", "ES256":
		c.option("id_token_alg", nil, alg)
	default:
		c.changed("its ID tokens are signed by RS256, and not by %s", alg)
	}
}
