package api

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/boundedcache"
	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/expansion"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/budget"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
	"github.com/caddy-fhir/caddy-fhir/terminology/negotiation"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/parameters"
)

// Call is one call of an operation.
type Call struct {
	*http.Request

	// Budget limits the cost of the request.
	Budget budget.Budget

	handler *Handler
	library *terminology.Library // library that serves the request
}

func (h *Handler) newCall(r *http.Request) *Call {
	l := h.currentLibrary()
	return &Call{Request: r, handler: h, library: l, Budget: budget.New(r.Context(), l.Definitions().Bounds.VisitedCodes, h.AcquireSlot)}
}

func (c *Call) readRequest(w http.ResponseWriter, bodyParameter string) ([]parameters.Input, error) {
	switch c.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost:
		return c.readInputs(w, bodyParameter)
	}
	return nil, &outcome.Error{Status: http.StatusMethodNotAllowed, Code: "not-supported", Text: "operations support only GET, HEAD and POST"}
}

// parseInstancePath returns the type and ID in a path [base]/Type/id/$operation, or empty strings for other paths.
func parseInstancePath(path string) (kind, id string) {
	path = path[:max(0, strings.LastIndexByte(path, '/'))]
	if kind, id = parseTypeAndID(path); !definitions.IsResourceType(kind) {
		return "", ""
	}
	return kind, id
}

// Parameters returns the parameters common to all operations, read from inputs, the path and the headers.
func (c *Call) Parameters(inputs []parameters.Input) (*Parameters, error) {
	p := new(Parameters)
	return p, c.readParameters(p, inputs)
}

func (c *Call) readParameters(p *Parameters, inputs []parameters.Input) error {
	if err := p.read(inputs); err != nil {
		return err
	}
	p.isGET = c.Method != http.MethodPost
	_, p.ID = parseInstancePath(c.URL.Path)
	p.Language.Accept = negotiation.NormalizeLanguages(c.Header["Accept-Language"])
	p.cacheKey, p.hasCacheKey = cacheKey(c, p.cacheID)
	p.Limits = c.handler.Limits
	p.Limits.Entries = c.maxCodes()
	return nil
}

// maxCodes returns the maximum number of codes in the response. Clients can lower it with X-Too-Costly-Threshold to test the
// too-costly error.
func (c *Call) maxCodes() int {
	limit := c.handler.Limits.MaxEntries()
	if header := c.Header.Get("X-Too-Costly-Threshold"); header != "" {
		if n, err := strconv.Atoi(header); err == nil && n > 0 {
			limit = min(limit, n)
		}
	}
	return limit
}

// WithRequestResources returns l with the resources sent in the request or, with a cache-id, in earlier requests.
func (c *Call) WithRequestResources(l *terminology.Library, p *Parameters) (*terminology.Library, error) {
	if len(p.Resources) == 0 && !p.hasCacheKey {
		return l, nil
	}
	if err := c.Budget.ChargeRead(totalSize(p.Resources)); err != nil {
		return nil, err
	}
	if len(p.Resources) > maxResources {
		return nil, &outcome.Error{Status: http.StatusRequestEntityTooLarge, Code: "too-costly", Text: fmt.Sprintf("at most %d tx-resource parameters are allowed", maxResources)}
	}
	if !p.hasCacheKey {
		return l.WithResources(p.Resources...)
	}
	return c.handler.resourceCache.libraryFor(l, p.cacheKey, p.Resources, &c.Budget)
}

func (c *Call) expand(l *terminology.Library, p *Parameters) (*expansion.Expansion, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	l, err := c.WithRequestResources(l, p)
	if err != nil {
		return nil, err
	}
	return l.Expand(&c.Budget, p.Query)
}

// cacheKey returns the cache key for the cache-id of a request. It includes the credentials or the principal, so that clients
// cannot access each other's resources. ok is false if the request has no cache-id.
func cacheKey(c *Call, id string) (key [sha256.Size]byte, ok bool) {
	if id == "" {
		id = c.Header.Get("X-Cache-Id")
	}
	if id == "" {
		return key, false
	}
	return sha256.Sum256([]byte(id + "\x00" + c.senderID())), true
}

// senderID identifies the sender by the Authorization header or, if it is absent, by the principal.
func (c *Call) senderID() string {
	if len(c.Header["Authorization"]) > 0 || c.handler.Principal == nil {
		return c.Header.Get("Authorization")
	}
	return c.handler.Principal(c.Context())
}

// fetchInstance returns l or, for an instance-level call, a library that also contains the fetched resource. If definitions are
// fetched, an ID in the path refers to the source first and to the library second.
func (c *Call) fetchInstance(l *terminology.Library) (*terminology.Library, error) {
	kind, id := parseInstancePath(c.URL.Path)
	if id == "" || c.handler.FetchedDefinitions == nil {
		return l, nil
	}
	return c.handler.FetchedDefinitions.Complete(c.Context(), []outcome.MissingDefinition{{ResourceType: kind, ID: id}})
}

// Fetch calls try with a library. While try reports missing definitions that can be fetched, Fetch adds them and calls try
// again. try also returns the missing definitions that could change its result.
func Fetch[T any](c *Call, l *terminology.Library, try func(*terminology.Library) (T, []outcome.MissingDefinition, error)) (T, error) {
	l, err := c.fetchInstance(l)
	if err != nil {
		return *new(T), err
	}
	for round := 0; ; round++ {
		result, newlyMissing, err := try(l)
		if c.handler.FetchedDefinitions == nil || len(newlyMissing) == 0 || round == terminology.MaxFetches {
			return result, err
		}
		c.Budget.ReleaseSlot()
		more, failure := c.handler.FetchedDefinitions.Complete(c.Context(), newlyMissing)
		if failure != nil {
			return *new(T), failure
		}
		if more == l {
			return result, err
		}
		l = more
	}
}

// MissingDefinitions returns the missing definitions that caused an error.
func MissingDefinitions(err error) []outcome.MissingDefinition {
	if failed, ok := errors.AsType[*outcome.Error](err); ok && failed.Provisional == nil {
		return failed.Missing
	}
	return nil
}

// readInputs reads the parameters of the query string and of the body of a POST. The body is a form, a Parameters
// resource in JSON or XML, or another resource, which becomes the value of the parameter bodyParameter.
func (c *Call) readInputs(w http.ResponseWriter, bodyParameter string) ([]parameters.Input, error) {
	r := c.Request
	inputs, err := parameters.ParseQuery(r.URL.RawQuery)
	if err != nil || r.Method != http.MethodPost {
		return inputs, err
	}
	body, err := c.readBody(w, r)
	if err != nil || len(body) == 0 {
		return inputs, err
	}
	if err := c.Budget.ChargeRead(len(body)); err != nil {
		return nil, err
	}
	return parameters.AppendBody(inputs, r.Header.Get("Content-Type"), body, bodyParameter)
}

// maxPreallocated is the maximum number of bytes allocated for a body, based on its Content-Length, before the body arrives.
const maxPreallocated = 256 << 10

// readBody reads the body of a POST and then restores it, because the request may be forwarded.
func (c *Call) readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	var body bytes.Buffer
	if n := r.ContentLength; n > 0 && n <= maxBody {
		body.Grow(min(int(n), maxPreallocated) + bytes.MinRead)
	}
	_, err := body.ReadFrom(http.MaxBytesReader(w, r.Body, maxBody))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, &outcome.Error{Status: http.StatusRequestEntityTooLarge, Code: "too-long", Err: err, Text: "the body is larger than the limit of " + fhirjson.FormatSize(maxBody)}
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, &outcome.Error{Status: http.StatusRequestTimeout, Code: "timeout", Err: err, Text: "timeout while reading the body"}
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, &outcome.Error{Status: http.StatusBadRequest, Code: "incomplete", Err: err, Text: "the body could not be read completely"}
	}
	r.Body = io.NopCloser(bytes.NewReader(body.Bytes()))
	return body.Bytes(), nil
}

// maxParameterLength is the maximum length of a parameter in bytes.
const maxParameterLength = 8 << 10

// Parameters contains the parameters common to all operations. [Call.Parameters] returns it.
type Parameters struct {
	expansion.Query

	// Resources are the definitions sent with the request (tx-resource).
	Resources []jsontext.Value

	cacheID     string
	cacheKey    [sha256.Size]byte
	hasCacheKey bool // cacheKey is set
	isGET       bool // GET: the expansion is a list unless a tree is requested, and always has an offset (docs/evidence/interface.md)
}

// read reads the parameters. It ignores unknown parameters, as R4 specifies for operations.
func (p *Parameters) read(inputs []parameters.Input) error {
	p.Parameters = inputs
	for i := range inputs {
		in := &inputs[i]
		if len(in.Value) > maxParameterLength {
			return outcome.BadRequest("too-long", "a parameter is longer than %d bytes", maxParameterLength)
		}
		if !isText(in.Value) {
			return outcome.BadRequest("invalid", "a parameter contains a character that is invalid in a FHIR string")
		}
		known, err := p.set(in)
		if err != nil {
			return err
		}
		if known && !p.isRepeatable(in.Name) && parameters.Find(inputs[:i], in.Name) != nil {
			return outcome.BadRequest("invalid", "the parameter %s must not be repeated", in.Name)
		}
	}
	return nil
}

// isRepeatable reports whether a parameter may be repeated. Repeating any other parameter is an error because its value would
// be ambiguous.
func (p *Parameters) isRepeatable(name string) bool {
	return p.ListField(name) != nil || name == "tx-resource" || name == "_elements"
}

// isText reports whether a value is a valid FHIR string: UTF-8 without control characters except tab, line feed and
// carriage return (R4 §2.24.0.1).
func isText(value string) bool {
	return utf8.ValidString(value) && !strings.ContainsFunc(value, func(r rune) bool {
		return r < ' ' && r != '\t' && r != '\n' && r != '\r'
	})
}

// set reads a parameter and reports whether its name is known.
func (p *Parameters) set(in *parameters.Input) (known bool, err error) {
	switch in.Name {
	case "cache-id":
		p.cacheID = in.Value
	case "tx-resource":
		if in.Resource != nil {
			p.Resources = append(p.Resources, in.Resource)
		}
	default:
		return p.Query.Set(in)
	}
	return true, nil
}

// Coding returns the concept that the request specifies as a Coding (such as codingA) or as a code (codeA, with system and
// version). suffix is the end of these names, such as A (R4 CodeSystem/$lookup, $subsumes).
func (p *Parameters) Coding(suffix string) (c parameters.Coding, err error) {
	code, whole := "code"+suffix, "coding"+suffix
	if in := parameters.Find(p.Parameters, whole); in != nil {
		if p.HasParameter(code) {
			return c, outcome.BadRequest("invalid", "the parameters %s and %s must not be combined", code, whole)
		}
		return parameters.ParseCoding(in.Complex, whole)
	}
	for i := range p.Parameters {
		switch in := &p.Parameters[i]; in.Name {
		case code:
			c.Code = in.Value
		case "system":
			c.System = in.Value
		case "version":
			c.Version = in.Value
		}
	}
	return c, nil
}

// resourceCache caches, per cache-id and client, the resources sent in requests and the libraries that contain them.
type resourceCache struct {
	maxBytes int64 // maximum bytes of JSON, which need several times as much memory once loaded; default: 16 MiB
	mu       sync.Mutex
	items    boundedcache.Cache[[sha256.Size]byte, *cachedResources]
}

// cachedResources contains the resources sent with one cache-id.
type cachedResources struct {
	resources []jsontext.Value
	hashes    map[[sha256.Size]byte]bool // SHA-256 of each resource
	overlay
	size int64
}

// overlay is a library that adds resources to a base library.
type overlay struct{ base, library *terminology.Library }

const maxCacheIDs = 200

// libraryFor returns base with all resources sent under a key so far, including those in sent.
func (c *resourceCache) libraryFor(base *terminology.Library, key [sha256.Size]byte, sent []jsontext.Value, b *budget.Budget) (*terminology.Library, error) {
	for {
		item, existing, fresh := c.lookUp(key, sent)
		if len(fresh) == 0 && existing.library != nil && existing.base == base {
			return existing.library, nil
		}
		resources := append(slices.Clip(item.resources), fresh...)
		if err := b.ChargeRead(totalSize(resources)); err != nil {
			return nil, err
		}
		library, err := base.WithResources(resources...) // the lock is not held here
		if err != nil || c.add(key, item, existing, overlay{base, library}, fresh) {
			return library, err
		}
	}
}

// lookUp returns the item for a key, its current library, and those resources in sent that the item lacks.
func (c *resourceCache) lookUp(key [sha256.Size]byte, sent []jsontext.Value) (item *cachedResources, current overlay, fresh []jsontext.Value) {
	c.mu.Lock()
	defer c.mu.Unlock()
	item, found := c.items.Get(key)
	if !found {
		item = &cachedResources{hashes: make(map[[sha256.Size]byte]bool)}
	}
	fresh = slices.DeleteFunc(slices.Clone(sent), func(resource jsontext.Value) bool { return item.hashes[sha256.Sum256(resource)] })
	return item, item.overlay, fresh
}

// add adds fresh and now, the library that contains them, to an item. It returns false if another request changed the item
// concurrently. If fresh would exceed the size limit, it is not stored.
func (c *resourceCache) add(key [sha256.Size]byte, item *cachedResources, existing, now overlay, fresh []jsontext.Value) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cached, found := c.items.Get(key); item.overlay != existing || found && cached != item {
		return false
	}
	size, limit := int64(totalSize(fresh)), cmp.Or(c.maxBytes, 16<<20)
	if item.size+size > limit {
		return true
	}
	for _, resource := range fresh {
		item.hashes[sha256.Sum256(resource)] = true
	}
	item.resources = append(slices.Clip(item.resources), fresh...)
	item.overlay, item.size = now, item.size+size
	c.items.MaxEntries, c.items.MaxCost = maxCacheIDs, limit
	c.items.Put(key, item, item.size)
	return true
}

func totalSize(resources []jsontext.Value) (size int) {
	for _, resource := range resources {
		size += len(resource)
	}
	return size
}
