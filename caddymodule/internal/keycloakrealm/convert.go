package keycloakrealm

import (
	"slices"
	"strings"
)

// Convert returns the fhir block of a Caddyfile with the people and apps of an exported realm, for
// an authorization server with this issuer. Its error says that the export cannot be read.
func Convert(export []byte, issuer string) (string, error) {
	r, err := read(export)
	if err != nil {
		return "", err
	}
	b := new(block)
	b.raw("# The realm " + quote(r.Realm) + " of Keycloak. This file holds the hashes of passwords and the secrets of apps: keep it from others.")
	b.raw("# The sub of a person's tokens is the name here, where Keycloak had an id.")
	b.raw("{")
	b.indent++
	b.raw("fhir {")
	b.indent++
	b.line("issuer", issuer)
	c := conversion{b, r}
	c.users()
	c.clients()
	c.rest()
	b.indent--
	b.raw("}")
	b.indent--
	b.raw("}")
	return b.String(), nil
}

// conversion writes the parts of a realm.
type conversion struct {
	*block
	realm *realm
}

func (c conversion) rest() {
	for _, p := range c.realm.IdentityProviders {
		c.remark("the identity provider %s: its secret is not exported; name it in an idp block", p.Alias)
	}
}

// taken returns the words that a check accepts, and remarks on the others.
func (c conversion) taken(option string, words []string, check func(string) error) []string {
	return slices.DeleteFunc(slices.Clone(words), func(word string) bool {
		err := check(word)
		switch {
		case err != nil:
			c.remark("%s %v", option, err)
		case isReplaced(word):
			c.remark("%s %q, which has braces", option, word)
			return true
		}
		return err != nil
	})
}

// first returns the first value of an attribute with one of the names.
func first(attributes map[string][]string, names ...string) string {
	for _, name := range names {
		if values := attributes[name]; len(values) > 0 {
			return strings.TrimSpace(values[0])
		}
	}
	return ""
}
