package api

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/expansion"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/budget"
	"github.com/caddy-fhir/caddy-fhir/terminology/negotiation"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/parameters"
)

// Call is one request for an operation.
type Call struct {
	*http.Request

	// Budget bounds what the request may cost.
	Budget budget.Budget

	handler *Handler
	library *terminology.Library // to answer from
}

func (h *Handler) begin(r *http.Request) *Call {
	l := h.now()
	return &Call{Request: r, handler: h, library: l, Budget: budget.New(r.Context(), l.Definitions().Bounds.Gathered, h.Turn)}
}

func (c *Call) read(w http.ResponseWriter, bare string) ([]parameters.Input, error) {
	switch c.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost:
		return c.readInputs(w, bare)
	}
	return nil, &outcome.Error{Status: http.StatusMethodNotAllowed, Code: "not-supported", Text: "operations are answered to GET, HEAD and POST only"}
}

// instance returns the type and id in a path [base]/Type/id/$operation, or "".
func instance(path string) (kind, id string) {
	path = path[:max(0, strings.LastIndexByte(path, '/'))]
	if kind, id = typeAndID(path); !definitions.IsResourceType(kind) {
		return "", ""
	}
	return kind, id
}

// Parameters reads the parameters that operations share, from the inputs, the path and the headers.
func (c *Call) Parameters(inputs []parameters.Input) (*Parameters, error) {
	p := new(Parameters)
	if err := p.read(inputs); err != nil {
		return nil, err
	}
	p.get = c.Method != http.MethodPost
	_, p.ID = instance(c.URL.Path)
	p.Language.Accept = negotiation.Languages(c.Header["Accept-Language"])
	p.cacheKey, p.cached = cacheKey(c, p.cacheID)
	p.Limits = c.handler.Limits
	p.Limits.Entries = c.limit()
	return p, nil
}

// limit returns how many codes the answer may hold. X-Too-Costly-Threshold lowers it, so that clients can test the
// error.
func (c *Call) limit() int {
	limit := c.handler.Limits.Most()
	if header := c.Header.Get("X-Too-Costly-Threshold"); header != "" {
		if n, err := strconv.Atoi(header); err == nil && n > 0 {
			limit = min(limit, n)
		}
	}
	return limit
}

// Library returns l with the resources of the request added.
func (c *Call) Library(l *terminology.Library, p *Parameters) (*terminology.Library, error) {
	if len(p.Resources) == 0 && !p.cached {
		return l, nil
	}
	if err := c.Budget.Read(sizeOf(p.Resources)); err != nil {
		return nil, err
	}
	if len(p.Resources) > maxResources {
		return nil, &outcome.Error{Status: http.StatusRequestEntityTooLarge, Code: "too-costly", Text: fmt.Sprintf("there may be at most %d tx-resource parameters", maxResources)}
	}
	if !p.cached {
		return l.With(p.Resources...)
	}
	return c.handler.remembered.library(l, p.cacheKey, p.Resources, &c.Budget)
}

func (c *Call) expand(l *terminology.Library, p *Parameters) (*expansion.Expansion, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	l, err := c.Library(l, p)
	if err != nil {
		return nil, err
	}
	return l.Expand(&c.Budget, p.Query)
}

// cacheKey returns the key for a request's cache-id, if it has one. It includes the credentials or the principal, so
// that no client is answered from what another one sent.
func cacheKey(c *Call, id string) (key [sha256.Size]byte, ok bool) {
	if id == "" {
		id = c.Header.Get("X-Cache-Id")
	}
	if id == "" {
		return key, false
	}
	return sha256.Sum256([]byte(id + "\x00" + c.holder())), true
}

// holder identifies the sender by its credentials or else by the principal.
func (c *Call) holder() string {
	if len(c.Header["Authorization"]) > 0 || c.handler.Principal == nil {
		return c.Header.Get("Authorization")
	}
	return c.handler.Principal(c.Context())
}
