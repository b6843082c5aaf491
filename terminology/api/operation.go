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

func (h *Handler) begin(r *http.Request) *operation {
	l := h.now()
	return &operation{Request: r, handler: h, library: l, budget: budget.New(r.Context(), l.Definitions().Bounds.Gathered, h.Turn)}
}

func (o *operation) read(w http.ResponseWriter, bare string) ([]parameters.Input, error) {
	switch o.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost:
		return o.readInputs(w, bare)
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

// fill adds what the path and the headers say to the parameters.
func (o *operation) fill(p *common) {
	r := o.Request
	p.get = r.Method != http.MethodPost
	_, p.ID = instance(r.URL.Path)
	p.Language.Accept = negotiation.Languages(r.Header["Accept-Language"])
	p.cacheKey, p.cached = cacheKey(o, p.cacheID)
	p.Limits = o.handler.Limits
	p.Limits.Entries = o.limit()
}

// limit returns how many codes the answer may hold. X-Too-Costly-Threshold lowers it, so that clients can test the
// error.
func (o *operation) limit() int {
	limit := o.handler.Limits.Most()
	if header := o.Header.Get("X-Too-Costly-Threshold"); header != "" {
		if n, err := strconv.Atoi(header); err == nil && n > 0 {
			limit = min(limit, n)
		}
	}
	return limit
}

// libraryWith returns l with the resources of the request added.
func (o *operation) libraryWith(l *terminology.Library, p *common) (*terminology.Library, error) {
	if len(p.resources) == 0 && !p.cached {
		return l, nil
	}
	if err := o.budget.Read(sizeOf(p.resources)); err != nil {
		return nil, err
	}
	if len(p.resources) > maxResources {
		return nil, &outcome.Error{Status: http.StatusRequestEntityTooLarge, Code: "too-costly", Text: fmt.Sprintf("there may be at most %d tx-resource parameters", maxResources)}
	}
	if !p.cached {
		return l.With(p.resources...)
	}
	return o.handler.remembered.library(l, p.cacheKey, p.resources, &o.budget)
}

func (o *operation) expand(l *terminology.Library, p *common) (*expansion.Expansion, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	l, err := o.libraryWith(l, p)
	if err != nil {
		return nil, err
	}
	return l.Expand(&o.budget, p.Query)
}

// orProvisional returns body. If definitions were missing and other servers may have them, it returns an error that
// holds body instead.
func (o *operation) orProvisional(body []byte, missed []outcome.Missing) ([]byte, error) {
	if !o.handler.Others || len(missed) == 0 {
		return body, nil
	}
	e := outcome.Incomplete("not-found", "the answer rests on what is not here: %v", missed[0])
	e.Missing, e.Provisional = missed, &outcome.Provisional{Body: body}
	return nil, e
}

// cacheKey returns the key for a request's cache-id, if it has one. It includes the credentials or the principal, so
// that no client is answered from what another one sent.
func cacheKey(o *operation, id string) (key [sha256.Size]byte, ok bool) {
	if id == "" {
		id = o.Header.Get("X-Cache-Id")
	}
	if id == "" {
		return key, false
	}
	return sha256.Sum256([]byte(id + "\x00" + o.holder())), true
}

// holder identifies the sender by its credentials or else by the principal.
func (o *operation) holder() string {
	if len(o.Header["Authorization"]) > 0 || o.handler.Principal == nil {
		return o.Header.Get("Authorization")
	}
	return o.handler.Principal(o.Context())
}
