package authorize

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/rs/cors"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/httporigin"
)

// clientMethods are the endpoints that scripts of the clients call, and how. What
// a browser itself is sent to (authorize, login, logout) is for no script.
var clientMethods = map[string][]string{
	endpoint.PushedAuthorization: {http.MethodPost},
	endpoint.Token:               {http.MethodPost},
	endpoint.Revoke:              {http.MethodPost},
	endpoint.Introspect:          {http.MethodPost},
	endpoint.Userinfo:            {http.MethodGet, http.MethodPost},
}

// crossOrigins are the rules by which scripts of other origins may read answers.
type crossOrigins struct {
	origins map[string]bool       // of the clients' redirect URIs
	rules   map[string]*cors.Cors // by path
}

// newCrossOrigins makes the rules by which scripts of other origins may read the
// answers (Fetch §3.2): documents are for every origin, the clients' endpoints for
// those of their redirect URIs alone. Cookies count nowhere: credentials are never
// allowed.
func newCrossOrigins(clients []client.Client, routes map[string]http.Handler) *crossOrigins {
	o := &crossOrigins{origins: clientOrigins(clients), rules: map[string]*cors.Cors{}}
	for path := range routes {
		options := cors.Options{AllowedHeaders: []string{"Authorization", "Content-Type"}, MaxAge: httporigin.PreflightMaxAge}
		methods, ofClients := clientMethods[path]
		switch {
		case ofClients:
			options.AllowedMethods, options.AllowOriginFunc = methods, o.AllowsOrigin
			options.ExposedHeaders = []string{"WWW-Authenticate"}
		case isDocument(path):
			options.AllowedMethods = []string{http.MethodGet, http.MethodHead}
		default:
			continue
		}
		o.rules[path] = cors.New(options)
	}
	return o
}

// answer sets what the rules of a path say, and says whether the request was
// a preflight, which is thereby answered.
func (o *crossOrigins) answer(w http.ResponseWriter, r *http.Request) bool {
	rules := o.rules[r.URL.Path]
	switch {
	case rules == nil:
		return false
	case isDocument(r.URL.Path) && !httporigin.IsPreflight(r):
		w.Header().Set("Access-Control-Allow-Origin", "*") // whoever asks, so that caches need not Vary
	default:
		rules.HandlerFunc(w, r)
	}
	return httporigin.IsPreflight(r)
}

func isDocument(path string) bool { return strings.Contains(path, "/.well-known/") }

// AllowsOrigin says whether an origin, as a browser writes it, is that of a
// redirect URI of a client.
func (o *crossOrigins) AllowsOrigin(origin string) bool { return o.origins[origin] }

// clientOrigins are the origins of the redirect URIs.
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

// originOf writes the origin of a URL as browsers do (RFC 6454 §6.2): in lower
// case, without the scheme's own port. Only http and https have one; all others
// are "null" together, which would be everybody's.
func originOf(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return ""
	}
	host := strings.ToLower(u.Host)
	port := map[string]string{"https": ":443", "http": ":80"}[u.Scheme]
	return u.Scheme + "://" + strings.TrimSuffix(host, port)
}
