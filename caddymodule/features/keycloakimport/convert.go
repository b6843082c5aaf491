package keycloakimport

import (
	"cmp"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
)

// Convert returns the fhir block of a Caddyfile with the people and apps of an exported realm, for an authorization server with
// this issuer, and a summary of what was omitted or changed, one line each. An entry whose lines check rejects is omitted; check
// gets a fhir block with that entry alone. Convert fails if the export cannot be parsed or converted.
func Convert(export []byte, issuer string, check func(caddyfile string) error) (caddyfile string, summary []string, err error) {
	r, err := read(export)
	if err != nil {
		return "", nil, err
	}
	c := &conversion{
		realm: r, issuer: issuer, check: check, entry: "realm", clientIDs: map[string]bool{}, userNames: map[string]bool{},
		sharedNames: r.sharedNames(), required: r.Flows.signIn(r.BrowserFlow), byRole: r.scopesByRole(),
	}
	c.raw("# The realm " + commented(r.Realm) + " of Keycloak. This file holds the hashes of passwords and the secrets of apps: keep it from others.")
	c.raw("# The sub of a person's tokens is the name here, where Keycloak had an id.")
	c.within("", func() { c.within("fhir", c.block) })
	return c.text.String(), c.summary, check(c.text.String())
}

// block writes what is in the fhir block. Clients come first, because a user with the name of a client is omitted.
func (c *conversion) block() {
	c.option("issuer", nil, c.issuer)
	c.lifetimes()
	c.signIn()
	c.clients()
	c.groupRoles(c.realm.Groups)
	c.users()
	for _, p := range c.realm.IdentityProviders {
		c.changed("identity provider %s omitted: its secret is not exported; name it in an idp block", p.Alias)
	}
}

// signIn notes what the browser flow requires and sign-in here does not.
func (c *conversion) signIn() {
	if c.required.secondFactor {
		c.changed("the browser flow requires a second factor, so each client gets acr mfa")
	}
	for _, step := range c.required.foreign {
		c.changed("the step %s of the browser flow has no counterpart", step)
	}
}

// lifetimes writes the realm's lifetimes.
func (c *conversion) lifetimes() {
	r := c.realm.lifespans
	c.lifetime("access_token_lifetime", r.AccessToken)
	session := c.lifetime("session_lifetime", r.sessionMax())
	if idle := r.sessionIdle(); idle > 0 && idle < int(cmp.Or(session, authorize.DefaultSessionLifetime)/time.Second) {
		c.lifetime("session_idle", idle)
	}
	refresh := c.lifetime("refresh_token_lifetime", r.offlineMax())
	idle := shortest(r.OfflineIdle, r.ClientOfflineIdle)
	if maximum := int(cmp.Or(refresh, authorize.DefaultRefreshTokenLifetime) / time.Second); idle > maximum {
		c.changed("refresh_token_idle_lifetime is shorter than the %s there", seconds(idle))
		idle = maximum
	}
	c.lifetime("refresh_token_idle_lifetime", idle)
}

// lifetime writes a lifetime, at most the longest that is possible here, and returns it.
func (c *conversion) lifetime(name string, length int) time.Duration {
	if length <= 0 {
		c.changed("%s is this server's default: the realm has none", name)
		return 0
	}
	lifetime := time.Duration(length) * time.Second
	if maximum := authorize.MaxLifetime(name); lifetime > maximum {
		c.changed("%s is %v, the maximum here, and not %s", name, maximum, seconds(length))
		lifetime = maximum
	}
	c.raw(name + " " + lifetime.String())
	return lifetime
}

func seconds(s int) string { return (time.Duration(s) * time.Second).String() }
