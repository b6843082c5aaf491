package access

import (
	"slices"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

// terminologyTypes are the types of definitions, which are about nobody.
var terminologyTypes = []string{"CodeSystem", "ConceptMap", "NamingSystem", "ValueSet"}

// Terminology are the grants of any valid token: to read and search definitions, which [Rights.Add] adds.
func Terminology() []Grant {
	grants := make([]Grant, 0, len(terminologyTypes))
	for _, t := range terminologyTypes {
		grants = append(grants, Grant{Type: t, Permission: smart.Read | smart.Search})
	}
	return grants
}

// HasOne reports whether the token's scopes cover one of the given ones whole.
func (r *Rights) HasOne(scopes []string) bool {
	return slices.ContainsFunc(scopes, func(scope string) bool {
		granted, err := smart.Grant([]string{scope}, r.Scopes)
		return err == nil && slices.Equal(granted, []string{scope})
	})
}
