package endpoint

import (
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// Names are all that [Name] returns.
var Names = []string{
	"authorize", "login", "callback", "select_account", "select_patient", "select_encounter", "consent", "account", "admin",
	"launch", "launch_page", "sandbox_app", "style.json", "par", "register", "client_logo",
	"token", "revoke", "introspect", "userinfo", "logout", "backchannel_logout", "events", "scim",
	"jwks.json", "openid-configuration", "oauth-authorization-server", "smart-configuration", "oauth-protected-resource", "user-access-brands",
}

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
