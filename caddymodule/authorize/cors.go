package authorize

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/internal/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/internal/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/crossorigin"
)

// clientEndpoints are called by clients, with their secret, their code or a token. Only scripts at the origin of a client's
// redirect URI may call them.
var clientEndpoints = []string{
	endpoint.PushedAuthorization, endpoint.Token, endpoint.Revoke, endpoint.Introspect, endpoint.Userinfo,
}

// crossOrigins has the CORS policy of each path that scripts of other origins may call. Paths that browsers are sent to, such
// as authorize, rely on cookies and have none.
type crossOrigins struct {
	origins  map[string]bool // of the clients' redirect URIs
	local    bool            // a client may have any origin on the person's own computer
	policies map[string]*crossorigin.Policy
}

func newCrossOrigins(clients []client.Client, routes map[string]http.Handler) *crossOrigins {
	o := &crossOrigins{
		origins: clientOrigins(clients), policies: map[string]*crossorigin.Policy{},
		local: slices.ContainsFunc(clients, func(c client.Client) bool { return c.Local }),
	}
	ofClients := crossorigin.Restricted(o.AllowsOrigin)
	for path := range routes {
		switch {
		case slices.Contains(clientEndpoints, path):
			o.policies[path] = ofClients
		case isPublic(path):
			o.policies[path] = crossorigin.Public
		}
	}
	return o
}

// isPublic reports whether scripts of every origin may call a path: documents, and registration, whose clients have no
// registered origin yet and must send the initial access token.
func isPublic(path string) bool {
	return strings.Contains(path, "/.well-known/") || path == endpoint.SMARTStyle || path == endpoint.Register
}

// AllowsOrigin is [Server.AllowsOrigin].
func (o *crossOrigins) AllowsOrigin(origin string) bool {
	return o.origins[origin] || o.local && client.IsLocal(origin)
}

func clientOrigins(clients []client.Client) map[string]bool {
	origins := map[string]bool{}
	for _, client := range clients {
		for _, uri := range client.RedirectURIs {
			if origin := originOf(uri); origin != "" {
				origins[origin] = true
			}
		}
	}
	return origins
}

// originOf writes the origin of a URL as browsers do (RFC 6454 §6.2): in lower case, without
// the default port. It is "" for other schemes than http and https: their origin is "null",
// which any site can have.
func originOf(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return ""
	}
	host := strings.ToLower(u.Host)
	port := map[string]string{"https": ":443", "http": ":80"}[u.Scheme]
	return u.Scheme + "://" + strings.TrimSuffix(host, port)
}
