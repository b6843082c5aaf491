package expand

import (
	"net/http"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/span"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/terminology/front"
)

// traced has a span made of a request for an operation, if somebody records one. The outcome is what is counted.
func traced(r *http.Request, by *front.Front, base string) (*http.Request, span.Span) {
	if !span.Recording(r.Context()) || !by.Serves(r) {
		return r, span.Span{}
	}
	r, s := span.Request(r, span.Expand)
	path := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, base), "/")
	if i, err := interaction.Parse(r.Method, path, r.URL.RawQuery, nil); err == nil {
		s.Interaction(i)
	}
	return r, s
}
