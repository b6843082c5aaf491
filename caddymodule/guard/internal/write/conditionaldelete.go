package write

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/fhirserver"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// ConditionalDeletes are the types of which the FHIR server deletes what matches criteria, as its CapabilityStatement says.
// The zero value asks for the statement when it is needed, and caches the answer. It is safe for concurrent use and must
// not be copied.
type ConditionalDeletes struct {
	mu      sync.Mutex
	types   map[string]bool
	expires time.Time
}

const (
	// capabilitiesTTL is how long a CapabilityStatement is relied on.
	capabilitiesTTL = time.Hour
	// capabilitiesRetry is the time until it is requested again if it could not be read.
	capabilitiesRetry = time.Minute
)

// supports reports whether the FHIR server has conditional deletes of a type. If the statement cannot be read, it has none.
func (d *ConditionalDeletes) supports(ctx context.Context, server *fhirserver.Server, resourceType string) bool {
	d.mu.Lock()
	types, expires := d.types, d.expires
	d.mu.Unlock()
	if time.Now().Before(expires) {
		return types[resourceType]
	}
	types, err := conditionalDeletes(ctx, server)
	if ctx.Err() != nil {
		return types[resourceType]
	}
	ttl := capabilitiesTTL
	if err != nil {
		ttl = capabilitiesRetry
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.types, d.expires = types, time.Now().Add(ttl)
	return types[resourceType]
}

// conditionalDeletes reads the server's statement.
func conditionalDeletes(ctx context.Context, server *fhirserver.Server) (map[string]bool, error) {
	a, err := server.Ask(ctx, message.Get("metadata", ""))
	if err != nil {
		return nil, err
	}
	if a.Status != http.StatusOK {
		return nil, message.Failed(a)
	}
	var statement struct {
		Rest []struct {
			Mode     string
			Resource []struct{ Type, ConditionalDelete string }
		}
	}
	if err := json.Unmarshal(a.Body, &statement); err != nil {
		return nil, err
	}
	types := map[string]bool{}
	for _, rest := range statement.Rest {
		for _, r := range rest.Resource {
			if rest.Mode == "server" && (r.ConditionalDelete == "single" || r.ConditionalDelete == "multiple") {
				types[r.Type] = true
			}
		}
	}
	return types, nil
}

// confinedDelete is the call that deletes a version only as long as the grant covers it: if somebody moves the resource to
// another patient after it was judged, it no longer matches. Ok is false if the FHIR server or the type has no such call.
func (w *write) confinedDelete(ctx context.Context, g access.Grant, before *version) (c message.Call, ok bool) {
	criteria := w.in.Judge.Rights().Criteria(g, before.Resource)
	if len(criteria) == 0 || !w.in.ConditionalDeletes.supports(ctx, w.in.Server, w.i.Type) {
		return c, false
	}
	criteria = slices.Concat([]smart.Parameter{{Name: "_id", Value: w.i.ID}}, criteria)
	return message.Call{Method: http.MethodDelete, Path: w.i.Type, Query: smart.EncodeParameters(criteria)}, true
}

// checkDeleted reports whether a resource is gone after a confined delete. Servers answer alike whether or not the criteria
// matched.
func (w Result) checkDeleted(ctx context.Context) error {
	a, err := w.server.Ask(ctx, message.Get(w.Confined.String(), ""))
	switch {
	case err != nil:
		return err
	case a.Status == http.StatusNotFound, a.Status == http.StatusGone:
		return nil
	case a.Status/100 == 5, a.Status == http.StatusTooManyRequests:
		return message.Failed(a)
	}
	return conflict(w.C.Header)
}

// isConfined reports whether the write is a confined delete.
func (w Result) isConfined() bool { return w.Confined != interaction.Reference{} }
