package api

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/expansion"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/budget"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
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
	return p, c.readParameters(p, inputs)
}

func (c *Call) readParameters(p *Parameters, inputs []parameters.Input) error {
	if err := p.read(inputs); err != nil {
		return err
	}
	p.get = c.Method != http.MethodPost
	_, p.ID = instance(c.URL.Path)
	p.Language.Accept = negotiation.Languages(c.Header["Accept-Language"])
	p.cacheKey, p.cached = cacheKey(c, p.cacheID)
	p.Limits = c.handler.Limits
	p.Limits.Entries = c.limit()
	return nil
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

// fetchInstance returns the library with the resource that the path names by its id. Where definitions are fetched, ids are
// those of the source: only what it does not have is found by the ids of the library.
func (c *Call) fetchInstance(l *terminology.Library) (*terminology.Library, error) {
	kind, id := instance(c.URL.Path)
	if id == "" || c.handler.Fetched == nil {
		return l, nil
	}
	return c.handler.Fetched.Complete(c.Context(), []outcome.Missing{{Kind: kind, ID: id}})
}

// Fetch tries to answer from a library, and again after fetching the definitions that it lacked, as long as there are more to
// fetch. The function returns which definitions could change its result.
func Fetch[T any](c *Call, l *terminology.Library, try func(*terminology.Library) (T, []outcome.Missing, error)) (T, error) {
	l, err := c.fetchInstance(l)
	if err != nil {
		return *new(T), err
	}
	for round := 0; ; round++ {
		result, missed, err := try(l)
		if c.handler.Fetched == nil || len(missed) == 0 || round == terminology.MaxFetches {
			return result, err
		}
		c.Budget.Rest()
		more, failure := c.handler.Fetched.Complete(c.Context(), missed)
		if failure != nil {
			return *new(T), failure
		}
		if more == l {
			return result, err
		}
		l = more
	}
}

// MissingIn returns the missing definitions that caused an error.
func MissingIn(err error) []outcome.Missing {
	if failed, ok := errors.AsType[*outcome.Error](err); ok && failed.Provisional == nil {
		return failed.Missing
	}
	return nil
}

// readInputs reads the parameters of the query string and, in a POST, of the body: a form, a Parameters resource in JSON or
// XML, or another resource, which is the value of the parameter called bare.
func (c *Call) readInputs(w http.ResponseWriter, bare string) ([]parameters.Input, error) {
	r := c.Request
	inputs, err := parameters.QueryInputs(r.URL.RawQuery)
	if err != nil || r.Method != http.MethodPost {
		return inputs, err
	}
	body, err := c.readBody(w, r)
	if err != nil || len(body) == 0 {
		return inputs, err
	}
	if err := c.Budget.Read(len(body)); err != nil {
		return nil, err
	}
	return parameters.AddBody(inputs, r.Header.Get("Content-Type"), body, bare)
}

// maxTrusted bounds the memory allocated for a Content-Length before its body has come.
const maxTrusted = 256 << 10

// readBody reads the body of a POST, and puts it back for another server that may be asked.
func (c *Call) readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	var body bytes.Buffer
	if n := r.ContentLength; n > 0 && n <= maxBody {
		body.Grow(min(int(n), maxTrusted) + bytes.MinRead)
	}
	_, err := body.ReadFrom(http.MaxBytesReader(w, r.Body, maxBody))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, &outcome.Error{Status: http.StatusRequestEntityTooLarge, Code: "too-long", Err: err, Text: "the body is larger than the limit of " + fhirjson.SizeText(maxBody)}
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, &outcome.Error{Status: http.StatusRequestTimeout, Code: "timeout", Err: err, Text: "the body came too slowly"}
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, &outcome.Error{Status: http.StatusBadRequest, Code: "incomplete", Err: err, Text: "the body could not be read whole"}
	}
	r.Body = io.NopCloser(bytes.NewReader(body.Bytes()))
	return body.Bytes(), nil
}
