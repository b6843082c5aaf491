package keycloakimport

import (
	"maps"
	"slices"
	"strings"
)

// roleMappings are the roles of a realm, and the client scopes that only people with some of them get.
type roleMappings struct {
	Roles struct {
		Realm []role `json:"realm"`
	} `json:"roles"`
	DefaultRole         role                      `json:"defaultRole"`
	ScopeMappings       []scopeMapping            `json:"scopeMappings"`
	ClientScopeMappings map[string][]scopeMapping `json:"clientScopeMappings"` // of roles of clients
}

type role struct {
	Name       string `json:"name"`
	Composites struct {
		Realm []string `json:"realm"`
	} `json:"composites"`
}

type scopeMapping struct {
	ClientScope string   `json:"clientScope"` // "" in mappings of clients, which only limit the roles in tokens
	Roles       []string `json:"roles"`
}

// scopesByRole are the client scopes that a role decides about. A scope that everybody has the role for is not among them.
func (r *realm) scopesByRole() map[string]bool {
	byRole := map[string]bool{}
	everyones := r.everyonesRoles()
	for _, m := range r.ScopeMappings {
		if m.ClientScope != "" && !slices.ContainsFunc(m.Roles, func(role string) bool { return everyones[role] }) {
			byRole[m.ClientScope] = true
		}
	}
	for _, mappings := range r.ClientScopeMappings {
		for _, m := range mappings {
			byRole[m.ClientScope] = m.ClientScope != ""
		}
	}
	return byRole
}

// everyonesRoles are the roles in the realm's default role, if each person has that.
func (r *realm) everyonesRoles() map[string]bool {
	all := map[string]bool{}
	if !slices.ContainsFunc(r.Users, func(u user) bool { return !slices.Contains(u.RealmRoles, r.DefaultRole.Name) }) {
		r.addRole(r.DefaultRole.Name, all)
	}
	return all
}

// addRole adds a role and the roles that it consists of.
func (r *realm) addRole(name string, to map[string]bool) {
	if name == "" || to[name] {
		return
	}
	to[name] = true
	for _, role := range r.Roles.Realm {
		if role.Name == name {
			for _, part := range role.Composites.Realm {
				r.addRole(part, to)
			}
		}
	}
}

// groupRoles notes the groups that give roles to their members.
func (c *conversion) groupRoles(groups []group) {
	for _, g := range groups {
		if roles := c.realm.notableRoles(g.RealmRoles, g.ClientRoles); len(roles) > 0 {
			c.changed("roles of the group %s omitted: %s; use scope_limit", g.Path, strings.Join(roles, ", "))
		}
		c.groupRoles(g.SubGroups)
	}
}

// notableRoles are the roles that Keycloak does not give to everybody.
func (r *realm) notableRoles(realmRoles []string, clientRoles map[string][]string) (roles []string) {
	for _, role := range realmRoles {
		if !slices.Contains([]string{r.DefaultRole.Name, "default-roles-" + r.Realm, "offline_access", "uma_authorization"}, role) {
			roles = append(roles, role)
		}
	}
	for _, client := range slices.Sorted(maps.Keys(clientRoles)) {
		if client != "account" {
			for _, role := range clientRoles[client] {
				roles = append(roles, client+"/"+role)
			}
		}
	}
	return roles
}
