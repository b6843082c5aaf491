package keycloakrealm

// Convert returns the fhir block of a Caddyfile with the people and apps of an exported realm, for
// an authorization server with this issuer. Its error says that the export cannot be read.
func Convert(export []byte, issuer string) (string, error) {
	r, err := read(export)
	if err != nil {
		return "", err
	}
	c := &conversion{realm: r, sharedNames: r.sharedNames()}
	c.raw("# The realm " + commented(r.Realm) + " of Keycloak. This file holds the hashes of passwords and the secrets of apps: keep it from others.")
	c.raw("# The sub of a person's tokens is the name here, where Keycloak had an id.")
	c.within("", func() {
		c.within("fhir", func() {
			c.option("issuer", nil, issuer)
			c.users()
			c.clients()
			for _, p := range r.IdentityProviders {
				c.remark("the identity provider %s: its secret is not exported; name it in an idp block", p.Alias)
			}
		})
	})
	return c.String(), nil
}
