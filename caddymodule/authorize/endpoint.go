package authorize

import "strings"

// Endpoints are all that [Endpoint] returns.
var Endpoints = []string{
	"authorize", "login", "callback", "select_account", "consent", "par", "register",
	"token", "revoke", "introspect", "userinfo", "logout", "backchannel_logout",
	"jwks.json", "openid-configuration", "oauth-authorization-server", "smart-configuration",
}

// Endpoint names the endpoint that a path which a [Server] serves belongs to, for
// metrics: the word after /oauth2/, or a document's name.
func Endpoint(path string) string {
	if below, ok := strings.CutPrefix(path, "/oauth2/"); ok {
		name, _, _ := strings.Cut(below, "/") // the key of an identity provider follows
		return name
	}
	return path[strings.LastIndexByte(path, '/')+1:]
}
