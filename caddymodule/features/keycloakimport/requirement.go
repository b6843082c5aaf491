package keycloakimport

import (
	"fmt"
	"slices"
)

var (
	// unsupported are settings that protect a client and have no counterpart here: without them, the client would be weaker.
	unsupported = []struct {
		attribute, reason string
		harmless          []string // values
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

	// convertedAttributes are settings that are read elsewhere, or that neither protect nor open anything.
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

// requirement returns what Keycloak requires of a client, or protects it by, and this server cannot; "" if there is nothing.
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

// requestObjects returns the reason why required request objects cannot be required here; "" if they can, or are not.
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

// requirements writes what Keycloak requires of the requests of a client.
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
