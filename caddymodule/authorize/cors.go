package authorize

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/rs/cors"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/internal/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/internal/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/httporigin"
)

// clientMethods are the endpoints that clients' scripts may call, and their methods. Those
// that browsers are sent to, such as authorize, are not among them.
var clientMethods = map[string][]string{
	endpoint.PushedAuthorization: {http.MethodPost},
	endpoint.Token:               {http.MethodPost},
	endpoint.Revoke:              {http.MethodPost},
	endpoint.Introspect:          {http.MethodPost},
	endpoint.Userinfo:            {http.MethodGet, http.MethodPost},
}

// crossOrigins decides which answers scripts of other origins may read.
type crossOrigins struct {
	origins map[string]bool       // of the clients' redirect URIs
	local   bool                  // a client may have any origin on the person's own computer
	rules   map[string]*cors.Cors // by path
}

// newCrossOrigins returns the rules (Fetch §3.2): every origin may read documents, but only
// those of redirect URIs may call the clients' endpoints. Credentials are never allowed, so
// cookies do not count.
func newCrossOrigins(clients []client.Client, routes map[string]http.Handler) *crossOrigins {
	o := &crossOrigins{
		origins: clientOrigins(clients), rules: map[string]*cors.Cors{},
		local: slices.ContainsFunc(clients, func(c client.Client) bool { return c.Local }),
	}
	for path := range routes {
		options := cors.Options{AllowedHeaders: []string{"Authorization", "Content-Type"}, MaxAge: httporigin.PreflightMaxAge}
		methods, ofClients := clientMethods[path]
		switch {
		case ofClients:
			options.AllowedMethods, options.AllowOriginFunc = methods, o.AllowsOrigin
			options.ExposedHeaders = []string{"WWW-Authenticate", "Retry-After", "RateLimit", "RateLimit-Policy"}
		case isDocument(path):
			options.AllowedMethods = []string{http.MethodGet, http.MethodHead}
			options.AllowedHeaders = []string{"*"} // such as MCP-Protocol-Version, which agents send
		default:
			continue
		}
		o.rules[path] = cors.New(options)
	}
	return o
}

// answer sets the headers of a path's rules. It reports whether the request was a preflight,
// which it has then answered.
func (o *crossOrigins) answer(w http.ResponseWriter, r *http.Request) bool {
	rules := o.rules[r.URL.Path]
	switch {
	case rules == nil:
		return false
	case isDocument(r.URL.Path) && !httporigin.IsPreflight(r):
		w.Header().Set("Access-Control-Allow-Origin", "*") // the same for all, so that caches need no Vary
	default:
		rules.HandlerFunc(w, r)
	}
	return httporigin.IsPreflight(r)
}

func isDocument(path string) bool {
	return strings.Contains(path, "/.well-known/") || path == endpoint.SMARTStyle
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
