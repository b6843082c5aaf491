package sample

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/rawjson"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/searchparam"
)

// MaxBodySize is the maximum size of a request body in bytes.
const MaxBodySize = 1 << 20

// Server serves FHIR's REST API from a store.
type Server struct {
	// Store contains the resources. Required.
	Store *Store
	// Base is the path of the FHIR API, such as /fhir/R4. Required.
	Base string
	// BaseURL is the URL of the FHIR API in links. Default: derived from the request.
	BaseURL string
}

// ServeHTTP implements [http.Handler] for paths below the base.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	response, err := s.handle(w, r)
	if err != nil {
		response = newOutcomeReply(err)
	}
	response.write(w, r)
}

func (s *Server) handle(w http.ResponseWriter, r *http.Request) (reply, error) {
	if job, ok := strings.CutPrefix(r.URL.Path, s.Base+"/"+exportPath); ok {
		return s.Store.exports.serve(r.Method, s.baseURL(r), job)
	}
	q, err := s.readRequest(w, r)
	if err != nil {
		return reply{}, err
	}
	if q.mayWrite() {
		s.Store.mu.Lock()
		defer s.Store.mu.Unlock()
	} else {
		s.Store.mu.RLock()
		defer s.Store.mu.RUnlock()
	}
	if q.Kind == interaction.Bundle {
		return handleBundle(s.Store, q)
	}
	return handleInteraction(s.Store, q)
}

// readRequest parses a request and reads its body.
func (s *Server) readRequest(w http.ResponseWriter, r *http.Request) (request, error) {
	path := strings.TrimPrefix(r.URL.Path[min(len(s.Base), len(r.URL.Path)):], "/")
	i, err := interaction.Parse(r.Method, path, r.URL.RawQuery, r.Header)
	if err != nil {
		return request{}, err
	}
	q := request{Interaction: i, ctx: r.Context(), method: r.Method, header: r.Header, base: s.baseURL(r)}
	if r.Body != nil {
		if q.body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBodySize)); err != nil {
			return q, bodyReadError(err)
		}
	}
	if err := q.checkFormat(r.Header.Get("Content-Type")); err != nil {
		return q, err
	}
	if r.Method == http.MethodPost && strings.HasSuffix(path, "_search") {
		q.Interaction, err = i.WithForm(string(q.body))
	}
	return q, err
}

// bodyReadError returns the response error for a body that could not be read.
func bodyReadError(err error) error {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return requestFailure{http.StatusRequestEntityTooLarge, "too-long", "The request body exceeds 1 MiB."}
	}
	return newInvalid("The request body is incomplete.")
}

// baseURL returns the URL of the FHIR API from the client's perspective.
func (s *Server) baseURL(r *http.Request) string {
	switch {
	case s.BaseURL != "":
		return s.BaseURL
	case r.TLS != nil:
		return "https://" + r.Host + s.Base
	}
	return "http://" + r.Host + s.Base
}

// request is a request, or an entry of a batch or transaction.
type request struct {
	interaction.Interaction
	ctx    context.Context
	method string
	header http.Header
	body   []byte
	base   string // URL of the FHIR API
	id     string // id of the resource to create; "" means a new id
}

// mayWrite reports whether a request can write.
func (q request) mayWrite() bool {
	switch q.Kind {
	case interaction.Create, interaction.ConditionalCreate, interaction.Update, interaction.ConditionalUpdate,
		interaction.Delete, interaction.ConditionalDelete, interaction.Bundle:
		return true
	}
	return false
}

// checkFormat returns an error for request and response formats other than JSON, except for a Binary in its native format.
func (q request) checkFormat(contentType string) error {
	accepted := q.header.Get("Accept")
	if format := parameterValue(q.Parameters, "_format"); format != "" {
		accepted = format
	}
	isBinary := q.Type == "Binary" && q.Kind == interaction.Read
	if !isBinary && accepted != "" && !strings.Contains(accepted, "json") && !strings.Contains(accepted, "*/*") && !strings.Contains(accepted, "application/*") {
		return requestFailure{http.StatusNotAcceptable, "not-supported", "Responses are only available in JSON."}
	}
	if !q.mayWrite() || len(q.body) == 0 {
		return nil
	}
	if bodyType, _, err := mime.ParseMediaType(contentType); err != nil || bodyType != mediaType && bodyType != "application/json" {
		return requestFailure{http.StatusUnsupportedMediaType, "not-supported", "The request body must have the content type " + mediaType + "."}
	}
	return nil
}

// reference returns a reference to the resource in the path.
func (q request) reference() interaction.Reference {
	return interaction.Reference{Type: q.Type, ID: q.ID}
}

// parameterValue returns the value of a parameter, or "" if it is missing.
func parameterValue(parameters []smart.Parameter, name string) string {
	for _, p := range parameters {
		if p.Name == name {
			return p.Value
		}
	}
	return ""
}

// cancellationError returns an error if the client has disconnected or the request has timed out.
func (q request) cancellationError() error {
	if err := q.ctx.Err(); err != nil {
		return requestFailure{http.StatusServiceUnavailable, "timeout", "The request was canceled."}
	}
	return nil
}

// checkParameters returns an error for parameters other than the named ones and those for which controlsResponse returns true.
func (q request) checkParameters(names ...string) error {
	for _, p := range q.Parameters {
		if !controlsResponse(p.Name) && !slices.Contains(names, p.Name) {
			return newUnsupported("The parameter " + p.Name + " is not supported here.")
		}
	}
	return nil
}

// controlsResponse reports whether a parameter controls the format of a response. A server may ignore _elements and _summary
// (R4 search.html#elements).
func controlsResponse(name string) bool {
	return slices.Contains([]string{"_format", "_pretty", "_elements", "_offset"}, name)
}

// handleInteraction handles a request other than a batch or transaction. The caller must hold the store's lock.
func handleInteraction(s *Store, q request) (reply, error) {
	switch q.Kind {
	case interaction.Capabilities:
		return handleCapabilities(q)
	case interaction.Read, interaction.VRead:
		return readVersion(s, q)
	case interaction.InstanceHistory:
		return handleHistory(s, q)
	case interaction.TypeSearch, interaction.SystemSearch, interaction.CompartmentSearch:
		return search(s, q)
	case interaction.Create, interaction.ConditionalCreate:
		return create(s, q)
	case interaction.Update, interaction.ConditionalUpdate:
		return update(s, q)
	case interaction.Delete, interaction.ConditionalDelete:
		return remove(s, q)
	case interaction.Operation:
		return handleOperation(s, q)
	}
	return reply{}, notImplemented(q)
}

func notImplemented(q request) error {
	return requestFailure{http.StatusNotImplemented, "not-supported", "The sample server does not support this interaction: " + q.Kind.String() + "."}
}

// handleOperation handles an operation. If the resource is missing, the status is 404 even for unsupported operations, because
// "not implemented" would be misleading if the URL is mistyped.
func handleOperation(s *Store, q request) (reply, error) {
	switch {
	case q.Operation == "$everything" && q.Type == "Patient" && q.ID != "" && q.method != http.MethodPost:
		return handleEverything(s, q)
	case q.Operation == "$export" && q.method == http.MethodGet:
		return export(s, q)
	}
	if err := s.checkOperationTarget(q); err != nil {
		return reply{}, err
	}
	return reply{}, notImplemented(q)
}

// checkOperationTarget returns an error if the store does not contain the operation's resource, given by id or canonical URL.
func (s *Store) checkOperationTarget(q request) error {
	if q.ID != "" {
		_, err := s.find(q.reference(), "")
		return err
	}
	url, _, _ := strings.Cut(q.canonical(), "|")
	if q.Type == "" || url == "" {
		return nil
	}
	exists := false
	err := s.forEachResource(q, []string{q.Type}, func(v *version) error {
		found, _ := v.Member("url")
		exists = exists || resource.Text(found) == url
		return nil
	})
	if err == nil && !exists {
		return requestFailure{http.StatusNotFound, "not-found", "Resource not found: " + q.Type + " with the url " + url + "."}
	}
	return err
}

// canonical returns the canonical URL of the resource for a type-level operation, from the query or from Parameters in the
// body. It returns "" if there is none.
func (q request) canonical() string {
	names := []string{"url"}
	if q.Type == "CodeSystem" {
		names = append(names, "system") // of $lookup and $subsumes (R4 codesystem-operation-lookup.html)
	}
	var body struct {
		Parameter []struct{ Name, ValueURI, ValueCanonical string }
	}
	_ = json.Unmarshal(q.body, &body) // if the body has another format, it contains no canonical URL
	for _, name := range names {
		if url := parameterValue(q.Parameters, name); url != "" {
			return url
		}
		if i := slices.IndexFunc(body.Parameter, func(p struct{ Name, ValueURI, ValueCanonical string }) bool { return p.Name == name }); i >= 0 {
			return body.Parameter[i].ValueURI + body.Parameter[i].ValueCanonical
		}
	}
	return ""
}

const mediaType = "application/fhir+json"

// reply is an HTTP response.
type reply struct {
	status int
	header http.Header
	body   []byte
}

// newReply returns a reply that contains a resource.
func newReply(status int, text []byte) reply {
	return reply{status, http.Header{"Content-Type": {mediaType}}, text}
}

// write writes the reply to w.
func (p reply) write(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	maps.Copy(header, p.header)
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	if p.status != http.StatusNoContent && p.status != http.StatusNotModified {
		header.Set("Content-Length", strconv.Itoa(len(p.body)))
	}
	w.WriteHeader(p.status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(p.body) // an error means that the client has disconnected
	}
}

// object is a JSON object.
type object map[string]any

// requestFailure is an error with an HTTP status and a code of http://hl7.org/fhir/issue-type.
type requestFailure struct {
	status     int
	code, text string
}

func (f requestFailure) Error() string { return f.text }

// ErrFull is returned if a store has reached one of its limits.
var ErrFull = errors.New("store limit reached")

func newInvalid(text string) error { return requestFailure{http.StatusBadRequest, "invalid", text} }

func newUnsupported(text string) error {
	return requestFailure{http.StatusBadRequest, "not-supported", text}
}

// toFailure returns the failure to report to the client.
func toFailure(err error) requestFailure {
	if f, ok := errors.AsType[requestFailure](err); ok {
		return f
	}
	if syntax, ok := errors.AsType[*rawjson.Error](err); ok {
		return requestFailure{http.StatusBadRequest, "structure", syntax.Error()}
	}
	switch {
	case errors.Is(err, ErrFull):
		return requestFailure{http.StatusInsufficientStorage, "too-costly", "The sample server is full. A restart discards all changes."}
	case errors.Is(err, resource.ErrNoType):
		return requestFailure{http.StatusBadRequest, "structure", "The request body is not a resource."}
	}
	switch status := interaction.Status(err); status {
	case http.StatusNotFound:
		return requestFailure{status, "not-found", err.Error()}
	case http.StatusMethodNotAllowed:
		return requestFailure{status, "not-supported", err.Error()}
	default:
		return requestFailure{status, "invalid", err.Error()}
	}
}

// newOutcomeReply returns a reply with an OperationOutcome for an error.
func newOutcomeReply(err error) reply {
	f := toFailure(err)
	type issue struct {
		Severity    string `json:"severity"`
		Code        string `json:"code"`
		Diagnostics string `json:"diagnostics"`
	}
	text, _ := json.Marshal(struct {
		ResourceType string  `json:"resourceType"`
		Issue        []issue `json:"issue"`
	}{"OperationOutcome", []issue{{"error", f.code, f.text}}})
	return newReply(f.status, text)
}

// Description is the text of CapabilityStatement.implementation.description.
const Description = "In-memory sample FHIR server for evaluation, with synthetic records. " +
	"A restart discards all changes. Do not use it for real data."

// handleCapabilities returns the CapabilityStatement.
func handleCapabilities(q request) (reply, error) {
	if mode := parameterValue(q.Parameters, "mode"); mode != "" && mode != "full" && mode != "normative" {
		return reply{}, newUnsupported("Unsupported mode: use full.")
	}
	text, err := json.Marshal(object{
		"resourceType": "CapabilityStatement", "status": "active", "kind": "instance", "date": "2026-11-01", "fhirVersion": "4.0.1",
		"description":    Description,
		"software":       object{"name": "caddy-fhir sample server"},
		"implementation": object{"description": Description, "url": q.base},
		"format":         []string{"json", mediaType},
		"rest": []object{{
			"mode": "server", "resource": resources(),
			"interaction": interactionCodes("transaction", "batch", "search-system"),
			"operation":   []object{exportOperation("export")},
		}},
	})
	return newReply(http.StatusOK, text), err
}

// resources contains the R4 types with their supported interactions, for the CapabilityStatement.
var resources = sync.OnceValue(func() (list []object) {
	for _, t := range interaction.Types() {
		r := object{
			"type":        t,
			"interaction": interactionCodes("read", "vread", "update", "delete", "history-instance", "create", "search-type"),
			"versioning":  "versioned-update", "readHistory": true, "updateCreate": true,
			"conditionalCreate": true, "conditionalUpdate": true, "conditionalDelete": "single",
		}
		if params, includes := searchCapabilities(t); len(params) > 0 {
			r["searchParam"] = params
			if len(includes) > 0 {
				r["searchInclude"] = includes
			}
		}
		switch t {
		case "Patient":
			r["operation"] = []object{{
				"name": "everything", "definition": "http://hl7.org/fhir/OperationDefinition/Patient-everything",
				"documentation": "GET on a single patient; supports _type and _count.",
			}, exportOperation("patient-export")}
		case "Group":
			r["operation"] = []object{exportOperation("group-export")}
		}
		list = append(list, r)
	}
	return list
})

// exportOperation returns the entry for $export at one level in the CapabilityStatement.
func exportOperation(definition string) object {
	return object{
		"name": "export", "definition": "http://hl7.org/fhir/uv/bulkdata/OperationDefinition/" + definition,
		"documentation": "GET; supports _type, _since and _outputFormat.",
	}
}

// searchCapabilities returns the search parameters and the _include values of a type.
func searchCapabilities(resourceType string) (params []object, includes []string) {
	for _, p := range searchparam.Parameters(resourceType) {
		params = append(params, object{"name": p.Name, "type": p.Kind.String()})
		if p.Kind == searchparam.Reference {
			includes = append(includes, resourceType+":"+p.Name)
		}
	}
	return params, includes
}

// interactionCodes returns interactions in the format of the CapabilityStatement.
func interactionCodes(names ...string) (list []object) {
	for _, name := range names {
		list = append(list, object{"code": name})
	}
	return list
}
