package keycloakrealm

// Convert returns the fhir block of a Caddyfile with the people and apps of an exported realm, for
// an authorization server with this issuer. Its error says that the export cannot be read.
func Convert(export []byte, issuer string) (string, error) {
	r, err := read(export)
	if err != nil {
		return "", err
	}
	b := new(block)
	b.raw("# The realm " + commented(r.Realm) + " of Keycloak. This file holds the hashes of passwords and the secrets of apps: keep it from others.")
	b.raw("# The sub of a person's tokens is the name here, where Keycloak had an id.")
	b.raw("{")
	b.indent++
	b.raw("fhir {")
	b.indent++
	b.line("issuer", issuer)
	c := conversion{b, r, r.groupPaths()}
	c.users()
	c.clients()
	for _, p := range r.IdentityProviders {
		b.remark("the identity provider %s: its secret is not exported; name it in an idp block", p.Alias)
	}
	b.indent--
	b.raw("}")
	b.indent--
	b.raw("}")
	return b.String(), nil
}
