package front

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/remote"
)

// backend is the FHIR server that the next handler leads to, as a source of definitions. It is asked without
// the credentials of any user.
type backend struct {
	fetched *terminology.Fetched
	server  remote.Definitions
	next    atomic.Pointer[NextHandler] // that leads there

	mu         sync.Mutex
	references map[string]string // the URLs of what was fetched, by type and id
	lost       bool              // there are answers made of what is not among them
}

func newBackend(fetched *terminology.Fetched, handler remote.Handler, backoff *remote.Backoff) *backend {
	b := &backend{fetched: fetched, references: map[string]string{}}
	handler.Backoff = backoff
	handler.Serve = func(w http.ResponseWriter, r *http.Request) error { return (*b.next.Load()).ServeHTTP(w, r) }
	b.server.Asker = &handler
	fetched.Source = b
	return b
}

// reach notes how the next handler is reached, which only a request knows.
func (b *backend) reach(server Server, r *http.Request, next NextHandler) {
	if b == nil {
		return
	}
	handler := server.Background(r, next)
	b.next.Store(&handler)
	b.fetched.Renew()
}

// maxReferences bounds how many references are remembered.
const maxReferences = 100_000

// Definitions implements terminology.Source. It remembers what has which id, so that a write there tells what it
// replaces.
func (b *backend) Definitions(ctx context.Context, m terminology.Missing) ([]jsontext.Value, error) {
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

// begin forgets the references, as no answers will be left that are made of what they name.
func (b *backend) begin() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.references)
	b.lost = false
}

// loseReferences notes that there are answers from before a restart: which ids the definitions had that they
// were made of is not known.
func (b *backend) loseReferences() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lost = true
}

// forget lets go of a definition, by its canonical or by type and id; an empty name means all. It returns the
// canonical that was known for a type and id, and false where one may have been forgotten.
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
