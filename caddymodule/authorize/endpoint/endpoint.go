package endpoint

import (
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// names are those of the core and, by [Register], of features.
var names = []string{
	"authorize", "login", "callback", "select_account", "select_patient", "select_encounter", "consent", "account",
	"launch", "style.json", "par", "client_logo",
	"token", "revoke", "introspect", "userinfo", "logout", "backchannel_logout",
	"jwks.json", "openid-configuration", "oauth-authorization-server", "smart-configuration", "oauth-protected-resource",
}

// Register adds the name of a feature's endpoint to [Names]. It must be called from init.
func Register(name string) { names = append(names, name) }

// Names returns all that [Name] returns.
func Names() []string { return names }

// Name is the name of a path's endpoint in metrics: the word after /oauth2/, or a document's
// name.
func Name(path string) string {
	if below, ok := strings.CutPrefix(path, "/oauth2/"); ok {
		name, _, _ := strings.Cut(below, "/") // the key of an identity provider follows
		return name
	}
	if strings.HasPrefix(path, oauth2.ProtectedResourcePath) {
		return "oauth-protected-resource"
	}
	return path[strings.LastIndexByte(path, '/')+1:]
}
