package bearer

import (
	"context"
	"net/http"

	"github.com/go-jose/go-jose/v4/json"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// protectedResource serves the metadata of a FHIR API whose tokens are other issuers' (RFC 9728): below the base, which is what
// fhir_bearer gets of a site, and at the well-known place if the site sends that here too. A nil one serves nothing.
type protectedResource struct {
	base    string // the path of the API
	url     string // of the API; empty until it is known
	issuers []string
}

// newProtectedResource describes an API; nil with the app, which does, or without an issuer that is known.
func newProtectedResource(at address, trusted []TrustedIssuer, asked *Introspection) *protectedResource {
	p := &protectedResource{base: at.path}
	for _, t := range trusted {
		p.issuers = append(p.issuers, t.Issuer)
	}
	if asked != nil && asked.Issuer != "" {
		p.issuers = append(p.issuers, asked.Issuer)
	}
	if at.issuer != "" || len(p.issuers) == 0 {
		return nil
	}
	return p
}

func (p *protectedResource) serves(r *http.Request) bool {
	return p != nil && p.url != "" && (r.URL.Path == p.base+oauth2.ProtectedResourcePath || r.URL.Path == oauth2.ProtectedResourcePath+p.base)
}

func (p *protectedResource) serve(w http.ResponseWriter, r *http.Request) error {
	return serveDocument(w, r, func(context.Context) ([]byte, error) {
		return json.Marshal(map[string]any{"resource": p.url, "authorization_servers": p.issuers, "bearer_methods_supported": []string{"header"}})
	})
}

// locate has challenges name the metadata, once the URL of the API is known.
func (g *gate) locate(url string) {
	if g.resource != nil && url != "" {
		g.resource.url, g.at.resource = url, url+oauth2.ProtectedResourcePath
	}
}
