package front

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/remote"
)

// backend is the FHIR server behind the next handler, as a source of definitions. It is asked without the credentials
// of any user.
type backend struct {
	fetched *terminology.Fetched
	server  remote.Handler
	next    atomic.Pointer[NextHandler]

	mu         sync.Mutex
	references map[string]string // canonicals of what was fetched, by type and id
	lost       bool              // there may be responses made of other definitions
}

func newBackend(fetched *terminology.Fetched, handler remote.Handler, backoff *remote.Backoff) *backend {
	b := &backend{fetched: fetched, references: map[string]string{}}
	handler.Backoff = backoff
	handler.Serve = func(w http.ResponseWriter, r *http.Request) error { return (*b.next.Load()).ServeHTTP(w, r) }
	b.server = handler
	fetched.Source = b
	return b
}

// learn stores the next handler, which comes with each request.
func (b *backend) learn(server Server, r *http.Request, next NextHandler) {
	if b == nil {
		return
	}
	handler := server.Background(r, next)
	b.next.Store(&handler)
	b.fetched.Renew()
}

const maxReferences = 100_000

// Definitions implements terminology.Source. It notes the id of each definition, so that a write to the id can be matched
// with the definition it replaces.
func (b *backend) Definitions(ctx context.Context, m outcome.Missing) ([]jsontext.Value, error) {
	list, err := b.server.Definitions(ctx, m)
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, resource := range list {
		switch d, ok := readHead(resource); {
		case !ok:
		case len(b.references) < maxReferences:
			b.references[d.reference()] = d.URL
		default:
			b.lost = true
		}
	}
	return list, err
}

// begin drops the references. What is fetched from then on is noted even before the definitions are forgotten.
func (b *backend) begin() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.references)
	b.lost = false
}

// forget drops a definition, by its canonical or by type and id; all if name is empty. For a type and id it returns the
// canonical, and false if that may have been lost.
func (b *backend) forget(name string) (url string, known bool) {
	if b == nil {
		return "", true
	}
	if name == "" {
		b.begin()
	}
	b.fetched.Forget(name)
	if !strings.Contains(name, "/") {
		return "", true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	url, known = b.references[name]
	return url, known || !b.lost
}

var _ terminology.Source = (*backend)(nil)

var definitionTypes = []string{"ValueSet", "CodeSystem", "ConceptMap"}

type resourceHead struct {
	Type string `json:"resourceType"`
	ID   string `json:"id"`
	URL  string `json:"url"`
}

func (h resourceHead) reference() string { return h.Type + "/" + h.ID }

// readHead reads the head of a resource. It reports whether the resource is a definition.
func readHead(resource []byte) (h resourceHead, ok bool) {
	err := json.Unmarshal(resource, &h, jsontext.AllowDuplicateNames(true))
	return h, err == nil && slices.Contains(definitionTypes, h.Type)
}
