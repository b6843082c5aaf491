// Package bundle answers batches and transactions. Each entry is handled as a separate request.
//
//	bundle.go       a batch: entries are answered one after the other, or forwarded together if nothing needs judging
//	transaction.go  a transaction: all entries are judged before the judged requests are sent
//
// References: FHIR R4, RESTful API (http.html#transaction).
package bundle

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/fhirserver"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/judge"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/write"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/rawjson"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// Handler answers the batch or transaction of one request.
type Handler struct {
	Server           *fhirserver.Server // client of the FHIR server
	Judge            *judge.Judge       // judge of the FHIR server's responses
	Addresses        message.Addresses  // public addresses of the FHIR API
	EntryHandler     entryHandler       // handler of single entries
	MaxEntries       int                // maximum number of entries per bundle
	MaxResponseBytes int64              // maximum total size of the responses in bytes
}

// entryHandler answers the entries of a bundle as separate requests.
type entryHandler interface {
	// Handle answers an entry.
	Handle(ctx context.Context, c message.Call, i interaction.Interaction) (*message.Response, error)
	// CollectWrite is like Handle, but for a write that is not sent yet.
	CollectWrite(ctx context.Context, c message.Call, i interaction.Interaction, to write.Collector) (*message.Response, error)
	// CheckSearch returns the rejection of a search without executing the search.
	CheckSearch(ctx context.Context, c message.Call, i interaction.Interaction) error
	// ForwardsEntry reports whether an entry for a single resource passes unjudged.
	ForwardsEntry(c message.Call, i interaction.Interaction) bool
	// ReportDecision reports the decision for an entry after the entry was answered.
	ReportDecision(i interaction.Interaction, err error)
}

// Handle answers a batch or a transaction.
func (x *Handler) Handle(ctx context.Context, c message.Call, i interaction.Interaction) (*message.Response, error) {
	s, err := parseSubmission(c.Body, x.MaxEntries)
	if err != nil {
		return nil, err
	}
	s.applyPrefer(c, i)
	if x.mayForwardBundle(s) {
		return x.forwardBundle(ctx, s)
	}
	if s.bundleType == "transaction" {
		return x.handleTransaction(ctx, s)
	}
	return x.handleBatch(ctx, s)
}

// applyPrefer applies the client's Prefer header to each entry (R4 http.html#ops), unless it requests an asynchronous response.
func (s *submission) applyPrefer(c message.Call, i interaction.Interaction) {
	if preferences := c.Header.Values("Prefer"); !i.IsAsync && len(preferences) > 0 {
		for _, e := range s.entries {
			e.header["Prefer"] = preferences
		}
	}
}

// handleBatch answers the entries in order (R4 http.html#brules permits any order). Each is handled like a single request, so
// the result does not depend on how the FHIR server implements batches.
func (x *Handler) handleBatch(ctx context.Context, s *submission) (*message.Response, error) {
	out := &message.Bundle{Type: "batch-response", Total: -1}
	var size int64
	for n := range s.entries {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		a, err := x.handleEntry(ctx, &s.entries[n], size)
		e := responseEntry(a, err)
		size += int64(len(e.Resource) + len(e.Response))
		out.Entries = append(out.Entries, e)
	}
	return out.Response(), nil
}

// mayForwardBundle reports whether a batch or transaction passes unjudged: it has entries, with distinct fullUrls, every entry
// would pass as a single request, and no response is a Bundle, because its links would have to be sealed.
func (x *Handler) mayForwardBundle(s *submission) bool {
	for n := range s.entries {
		if c, i, err := s.entries[n].toCall(); err != nil || !x.EntryHandler.ForwardsEntry(c, i) {
			return false
		}
	}
	return s.hasDistinctFullURLs() && len(s.entries) > 0
}

// hasDistinctFullURLs reports whether all values of fullUrl are different.
func (s *submission) hasDistinctFullURLs() bool {
	seen := map[string]bool{}
	for _, e := range s.entries {
		if e.fullURL != "" && seen[e.fullURL] {
			return false
		}
		seen[e.fullURL] = true
	}
	return true
}

// forwardBundle forwards a Bundle without judging it. It re-serializes the Bundle, so that the FHIR server gets exactly the
// entries that were parsed here.
func (x *Handler) forwardBundle(ctx context.Context, s *submission) (*message.Response, error) {
	b := &message.Bundle{Type: s.bundleType, Total: -1}
	for n := range s.entries {
		e := &s.entries[n]
		c, i, err := e.toCall()
		if err != nil {
			return nil, err
		}
		x.EntryHandler.ReportDecision(i, nil)
		b.Entries = append(b.Entries, message.Entry{FullURL: e.fullURL, Resource: e.resourceToForward(c), Request: encodeRequest(c)})
	}
	header := http.Header{"Content-Type": {message.TypeJSON}}
	if prefer := s.entries[0].header["Prefer"]; prefer != nil {
		header["Prefer"] = prefer
	}
	return x.Server.Do(ctx, message.Call{Method: http.MethodPost, Header: header, Body: b.JSON()})
}

// resourceToForward returns the resource to forward with an entry, or nil if the request has no body.
func (e *submittedEntry) resourceToForward(c message.Call) []byte {
	if c.Body == nil {
		return nil
	}
	return e.resource
}

// submission is a batch or transaction that a client POSTs to the base URL.
type submission struct {
	resourceType string
	bundleType   string // Bundle.type
	entries      []submittedEntry
	maxEntries   int
}

// submittedEntry is an entry of a submission. Its resource is not parsed.
type submittedEntry struct {
	fullURL  string
	resource []byte
	method   string
	url      string
	header   http.Header // request headers that correspond to the members of Bundle.entry.request
}

var errTooManyEntries = errors.New("too many entries in the Bundle")

// parseSubmission parses a client's Bundle. Duplicate names in an object are an error, because FHIR servers differ in which one
// they use. Unknown members are dropped.
func parseSubmission(text []byte, limit int) (*submission, error) {
	s := &submission{maxEntries: limit}
	c := rawjson.NewCursor(text)
	err := c.Object(func(name []byte) (err error) {
		switch string(name) {
		case "resourceType":
			s.resourceType, err = c.Text()
		case "type":
			s.bundleType, err = c.Text()
		case "entry":
			err = c.Array(func() error { return s.read(c) })
		default:
			err = c.Skip()
		}
		return err
	})
	if err == nil {
		err = c.CheckEnd()
	}
	return s, s.validate(err)
}

// validate returns an error unless the Bundle is a batch or transaction.
func (s *submission) validate(err error) error {
	switch {
	case errors.Is(err, errTooManyEntries):
		return &guard.Error{
			Status: http.StatusRequestEntityTooLarge, Description: fmt.Sprintf("The Bundle has more than %d entries.", s.maxEntries), Err: err,
		}
	case err != nil:
		return message.InvalidRequest(err, "The body must be a Bundle in valid JSON without duplicate names.")
	case s.resourceType != "Bundle" || s.bundleType != "batch" && s.bundleType != "transaction":
		return message.InvalidRequest(message.ErrInvalidBody, "Only a Bundle of type batch or transaction can be sent to the base.")
	}
	return nil
}

func (s *submission) read(c *rawjson.Cursor) error {
	if len(s.entries) == s.maxEntries {
		return errTooManyEntries
	}
	e := submittedEntry{header: http.Header{}}
	err := c.Object(func(name []byte) (err error) {
		switch string(name) {
		case "fullUrl":
			e.fullURL, err = c.Text()
		case "resource":
			e.resource, err = c.Raw()
		case "request":
			err = e.readRequest(c)
		default:
			err = c.Skip()
		}
		return err
	})
	s.entries = append(s.entries, e)
	return err
}

// conditionHeaders maps members of Bundle.entry.request to headers.
var conditionHeaders = map[string]string{
	"ifMatch": "If-Match", "ifNoneMatch": "If-None-Match", "ifModifiedSince": "If-Modified-Since", "ifNoneExist": "If-None-Exist",
}

func (e *submittedEntry) readRequest(c *rawjson.Cursor) error {
	return c.Object(func(name []byte) (err error) {
		switch header := conditionHeaders[string(name)]; {
		case string(name) == "method":
			e.method, err = c.Text()
		case string(name) == "url":
			e.url, err = c.Text()
		case header != "":
			var value string
			value, err = c.Text()
			e.header.Set(header, value)
		default:
			err = c.Skip()
		}
		return err
	})
}

// entryMethods are the permitted methods of entries. R4's HEAD is excluded, because its response would be an empty entry.
var entryMethods = []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}

// toCall returns the entry as a separate request.
func (e *submittedEntry) toCall() (c message.Call, i interaction.Interaction, err error) {
	if !slices.Contains(entryMethods, e.method) {
		return c, i, message.InvalidRequest(message.ErrInvalidBody, "The entry's request.method must be GET, POST, PUT, PATCH or DELETE.")
	}
	c = message.Call{Method: e.method, Header: e.header}
	if c.Path, c.Query, err = e.splitURL(); err != nil {
		return c, i, err
	}
	if err := e.checkHeader(); err != nil {
		return c, i, err
	}
	if e.method != http.MethodPost {
		e.header.Del("If-None-Exist")
	}
	if i, err = c.Interaction(); err != nil {
		return c, i, err
	}
	if i.Kind == interaction.Bundle {
		return c, i, message.InvalidRequest(message.ErrInvalidBody, "A batch or transaction cannot contain another one.")
	}
	c.Body, err = e.requestBody(i)
	return c, i, err
}

// splitURL returns the path and query of request.url. It must be relative to the base (R4 bundle.html). It is decoded once and
// checked like the path of a request. Absolute URLs are rejected even if they are below the base, because proxies and servers
// can disagree about the base.
func (e *submittedEntry) splitURL() (path, query string, err error) {
	path, query, _ = strings.Cut(e.url, "?")
	if e.url == "" {
		return "", "", message.InvalidRequest(message.ErrInvalidBody, "The entry has no request.url.")
	}
	if strings.HasPrefix(path, "/") || strings.ContainsAny(path, ":#") {
		return "", "", message.InvalidRequest(guard.ErrAmbiguousPath, "The entry's request.url must be relative to the FHIR base.")
	}
	decoded, err := url.PathUnescape(path)
	if err != nil || strings.Contains(strings.ToLower(path), "%2f") {
		return "", "", message.InvalidRequest(guard.ErrAmbiguousPath, "The entry's request.url contains an ambiguous character.")
	}
	r := &http.Request{Method: e.method, URL: &url.URL{Path: "/" + decoded}}
	return decoded, query, guard.CheckPath(r, "")
}

// checkHeader returns an error if a header value is invalid.
func (e *submittedEntry) checkHeader() error {
	for _, values := range e.header {
		if strings.ContainsFunc(values[0], func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return message.InvalidRequest(message.ErrInvalidBody, "A condition in the entry's request contains a control character.")
		}
	}
	return nil
}

// requestBody returns the body of the request, or nil if the interaction has no body.
func (e *submittedEntry) requestBody(i interaction.Interaction) ([]byte, error) {
	switch i.Kind {
	case interaction.Create, interaction.ConditionalCreate, interaction.Update, interaction.ConditionalUpdate:
		return e.newVersion(i)
	case interaction.Patch, interaction.ConditionalPatch:
		return e.patchBody()
	case interaction.Operation:
		if e.method == http.MethodPost && e.resource != nil {
			e.header.Set("Content-Type", message.TypeJSON)
			return e.resource, nil
		}
	}
	return nil, nil
}

// parseResource parses the entry's resource.
func (e *submittedEntry) parseResource() (resource.Resource, error) {
	if e.resource == nil {
		return resource.Resource{}, message.InvalidRequest(message.ErrInvalidBody, "The entry has no resource.")
	}
	res, err := resource.Parse(e.resource)
	if err != nil {
		return res, message.InvalidRequest(err, "The entry's resource must be valid JSON without duplicate names.")
	}
	return res, nil
}

// newVersion returns the resource to write. It must match request.url, because some FHIR servers use the resource's id and
// others the id in the URL.
func (e *submittedEntry) newVersion(i interaction.Interaction) ([]byte, error) {
	res, err := e.parseResource()
	switch {
	case err != nil:
		return nil, err
	case res.Type != i.Type:
		return nil, message.InvalidRequest(message.ErrInvalidBody, "The type of the entry's resource does not match request.url.")
	case i.Kind == interaction.Update && res.ID != i.ID:
		return nil, message.InvalidRequest(message.ErrInvalidBody, "The id of the entry's resource does not match request.url.")
	}
	e.header.Set("Content-Type", message.TypeJSON)
	return e.resource, nil
}

// patchBody returns the body of a patch: a JSON Patch, which is sent in a Binary, or a FHIRPath Patch, which is a Parameters
// resource (R4 http.html#patch).
func (e *submittedEntry) patchBody() ([]byte, error) {
	res, err := e.parseResource()
	if err != nil {
		return nil, err
	}
	if res.Type == "Parameters" {
		e.header.Set("Content-Type", message.TypeJSON)
		return e.resource, nil
	}
	media, _ := res.Member("contentType")
	data, _ := res.Member("data")
	body, err := base64.StdEncoding.DecodeString(resource.Text(data))
	if res.Type != "Binary" || resource.Text(media) != write.TypeJSONPatch || err != nil || len(body) == 0 {
		return nil, message.InvalidRequest(message.ErrInvalidBody, "A patch in a Bundle must be Parameters, or a Binary with data and contentType application/json-patch+json.")
	}
	e.header.Set("Content-Type", write.TypeJSONPatch)
	return body, nil
}

// handleEntry answers one entry, unless the responses to earlier entries have reached the size limit.
func (x *Handler) handleEntry(ctx context.Context, e *submittedEntry, size int64) (*message.Response, error) {
	if size > x.MaxResponseBytes {
		return nil, message.TooCostly("The responses to the preceding entries exceed %d bytes: send fewer entries at once.", x.MaxResponseBytes)
	}
	c, i, err := e.toCall()
	if err != nil {
		x.EntryHandler.ReportDecision(i, err)
		return nil, err
	}
	x.resetForEntry()
	before := x.Server.MemoryInUse()
	a, err := x.EntryHandler.Handle(ctx, c, i)
	x.Server.ReleaseExcept(before, a)
	x.EntryHandler.ReportDecision(i, err)
	if err == nil && c.Method == http.MethodGet && a.Status == http.StatusOK && message.IsNotModified(c.Header, a.Header.Get("Etag")) {
		a = &message.Response{Status: http.StatusNotModified, Header: http.Header{"Etag": a.Header["Etag"]}} // as in [message.Response.Write]
	}
	return a, err
}

// resetForEntry clears the cached resources before an entry, because the previous entry may have changed them.
func (x *Handler) resetForEntry() {
	x.Server.ResetRequestCount()
	x.Judge.ClearAccessCache()
}

// entryResponse is Bundle.entry.response.
type entryResponse struct {
	Status       string          `json:"status"`
	Location     string          `json:"location,omitempty"`
	ETag         string          `json:"etag,omitempty"`
	LastModified string          `json:"lastModified,omitempty"`
	Outcome      json.RawMessage `json:"outcome,omitempty"`
}

// responseEntry returns the entry of a batch-response or transaction-response for a response or an error.
func responseEntry(a *message.Response, err error) message.Entry {
	if err != nil {
		return errorEntry(err)
	}
	r := entryResponse{
		Status: statusLine(a.Status), Location: a.Header.Get("Location"), ETag: a.Header.Get("Etag"),
		LastModified: toInstant(a.Header.Get("Last-Modified")),
	}
	if len(a.Body) == 0 {
		return message.Entry{Response: r.encode()}
	}
	if err := checkObject(a.Body); err != nil {
		return errorEntry(message.NewWithheldError(err))
	}
	if !a.IsSuccess() || a.IsOutcome {
		r.Outcome = a.Body
		return message.Entry{Response: r.encode()}
	}
	return message.Entry{Resource: a.Body, Response: r.encode()}
}

// errorEntry returns the entry for an error, with an OperationOutcome.
func errorEntry(err error) message.Entry {
	rejection, ok := errors.AsType[*guard.Error](err)
	if !ok {
		rejection = &guard.Error{Status: http.StatusBadGateway, Description: "The FHIR server failed to process the request.", Err: err}
	}
	outcome := `{"resourceType":"OperationOutcome","issue":[{"severity":"error","code":` + message.QuoteJSON(rejection.IssueType()) +
		`,"diagnostics":` + message.QuoteJSON(rejection.Diagnostics()) + `}]}`
	r := entryResponse{Status: statusLine(rejection.Status), Outcome: []byte(outcome)}
	return message.Entry{Response: r.encode()}
}

func (r entryResponse) encode() []byte {
	text, _ := json.Marshal(r) // marshaling strings and valid JSON never fails
	return text
}

// statusLine returns the status of an entry, which must begin with the three digits (R4).
func statusLine(status int) string {
	if text := http.StatusText(status); text != "" {
		return strconv.Itoa(status) + " " + text
	}
	return strconv.Itoa(status)
}

// toInstant converts an HTTP date to a FHIR instant; empty if it is invalid.
func toInstant(date string) string {
	t, err := http.ParseTime(date)
	if err != nil {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// toHTTPDate converts a FHIR instant to an HTTP date; empty if invalid.
func toHTTPDate(instant string) string {
	t, err := time.Parse(time.RFC3339, instant)
	if err != nil {
		return ""
	}
	return t.UTC().Format(http.TimeFormat)
}

// checkObject returns an error if a text would break the syntax of the surrounding Bundle.
func checkObject(text []byte) error {
	c := rawjson.NewCursor(text).AllowDuplicates()
	if err := c.Object(func([]byte) error { return c.Skip() }); err != nil {
		return err
	}
	return c.CheckEnd()
}

// encodeRequest returns a call as a Bundle.entry.request.
func encodeRequest(c message.Call) []byte {
	var out bytes.Buffer
	target := c.Path
	if c.Query != "" {
		target += "?" + c.Query
	}
	out.WriteString(`{"method":` + message.QuoteJSON(c.Method) + `,"url":` + message.QuoteJSON(target))
	for _, member := range []string{"ifMatch", "ifNoneMatch", "ifModifiedSince", "ifNoneExist"} {
		if value := c.Header.Get(conditionHeaders[member]); value != "" {
			out.WriteString(`,"` + member + `":` + message.QuoteJSON(value))
		}
	}
	out.WriteString("}")
	return out.Bytes()
}
