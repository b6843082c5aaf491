package access

import (
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

// Lacking are the scopes of which each would give the permissions on a type (empty: all types), the smallest at each
// level that the token has, separated by spaces; with whole on all its resources. Empty if no scope would: for this
// holder those of the level grant nothing, or not this. It depends on the token alone, and on nothing that is stored.
func (r *Rights) Lacking(resourceType string, p smart.Permission, whole bool) string {
	if resourceType == "" {
		resourceType = smart.AnyType
	}
	var lacking []string
	for _, scope := range r.Scopes {
		had, ok := smart.ParseResourceScope(scope)
		wanted := smart.ResourceScope{Level: had.Level, Type: resourceType, Permission: p}.String()
		if !ok || p == 0 || slices.Contains(lacking, wanted) {
			continue
		}
		if slices.ContainsFunc(r.holder.grants(wanted), func(g Grant) bool { return r.suffices(&g, whole) }) {
			lacking = append(lacking, wanted)
		}
	}
	return strings.Join(lacking, " ")
}

// suffices reports whether a grant that names a type and permissions would be one for them.
func (r *Rights) suffices(g *Grant, whole bool) bool {
	return g.Patient == "" || !whole && (g.Type == smart.AnyType || r.isAbout(g, g.Type, g.Permission))
}
