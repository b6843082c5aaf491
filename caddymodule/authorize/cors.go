package authorize

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/crossorigin"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/snapshotmap"
)

// clientEndpoints are called by clients, with their secret, their code or a token. Only scripts at the origin of a client's
// redirect URI may call them.
var clientEndpoints = []string{
	endpoint.PushedAuthorization, endpoint.Token, endpoint.Revoke, endpoint.Introspect, endpoint.Userinfo,
}

// crossOrigins has the CORS policy of each path that scripts of other origins may call. Paths that browsers are sent to, such
// as authorize, rely on cookies and have none.
type crossOrigins struct {
	origins  *origins
	policies map[string]*crossorigin.Policy
}

func newCrossOrigins(of *origins, routes map[string]http.Handler, public []string) *crossOrigins {
	o := &crossOrigins{origins: of, policies: map[string]*crossorigin.Policy{}}
	ofClients := crossorigin.Restricted(of.AllowsOrigin)
	for path := range routes {
		switch {
		case slices.Contains(clientEndpoints, path):
			o.policies[path] = ofClients
		case slices.Contains(public, path):
			o.policies[path] = crossorigin.Public
		}
	}
	return o
}

// origins are those of clients. A clone can be changed; the original must not be then.
type origins struct {
	redirects *snapshotmap.Map[int] // redirect URIs by origin
	local     int                   // clients that may have any origin on the person's own computer
}

func (o *origins) clone() *origins { return &origins{o.redirects.Clone(), o.local} }

// count adds a client's origins n times: 1, or -1 to remove them.
func (o *origins) count(c *client.Client, n int) {
	for _, uri := range c.RedirectURIs {
		origin := originOf(uri)
		if origin == "" {
			continue
		}
		if left := o.redirects.Get(origin) + n; left > 0 {
			o.redirects.Set(origin, left)
		} else {
			o.redirects.Delete(origin)
		}
	}
	if c.Local {
		o.local += n
	}
}

// AllowsOrigin is [Server.AllowsOrigin].
func (o *origins) AllowsOrigin(origin string) bool {
	return o.redirects.Get(origin) > 0 || o.local > 0 && client.IsLocal(origin)
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
