package expand

import (
	"net/http"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/span"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// traced has a span made of a request for an operation, if somebody records one. The outcome is what is counted.
func (h *Expand) traced(r *http.Request) (*http.Request, span.Span) {
	if !span.Recording(r.Context()) || !h.front.Serves(r) {
		return r, span.Span{}
	}
	r, s := span.Request(r, span.Expand)
	path := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, h.FHIRBase), "/")
	if i, err := interaction.Parse(r.Method, path, r.URL.RawQuery, nil); err == nil {
		s.Interaction(i)
	}
	return r, s
}
