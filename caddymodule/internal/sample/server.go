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
	// BaseURL is the address of the FHIR API in links. Default: the address of the request.
	BaseURL string
}

// ServeHTTP handles a request below the base.
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

// readRequest parses a request including its body.
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

// bodyReadError returns the error for a body that could not be read.
func bodyReadError(err error) error {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return requestFailure{http.StatusRequestEntityTooLarge, "too-long", "The request body exceeds 1 MiB."}
	}
	return newInvalid("The request body is incomplete.")
}

// baseURL returns the address of the FHIR API for the client.
func (s *Server) baseURL(r *http.Request) string {
	switch {
	case s.BaseURL != "":
		return s.BaseURL
	case r.TLS != nil:
		return "https://" + r.Host + s.Base
	}
	return "http://" + r.Host + s.Base
}

// request is one request, or one entry of a batch or transaction.
type request struct {
	interaction.Interaction
	ctx    context.Context
	method string
	header http.Header
	body   []byte
	base   string // the address of the FHIR API
	id     string // id of the created resource; empty: a new id
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

// checkFormat rejects request and response formats other than JSON. A Binary has its own format.
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

// reference returns the resource in the path.
func (q request) reference() interaction.Reference {
	return interaction.Reference{Type: q.Type, ID: q.ID}
}

// parameterValue returns the value of a parameter; "" if it is missing.
func parameterValue(parameters []smart.Parameter, name string) string {
	for _, p := range parameters {
		if p.Name == name {
			return p.Value
		}
	}
	return ""
}

// cancellationError returns the error of a request if the client has disconnected or the request has timed out.
func (q request) cancellationError() error {
	if err := q.ctx.Err(); err != nil {
		return requestFailure{http.StatusServiceUnavailable, "timeout", "The request was canceled."}
	}
	return nil
}

// checkParameters rejects parameters other than the named ones and those that controlsResponse reports.
func (q request) checkParameters(names ...string) error {
	for _, p := range q.Parameters {
		if !controlsResponse(p.Name) && !slices.Contains(names, p.Name) {
			return newUnsupported("The parameter " + p.Name + " is not supported here.")
		}
	}
	return nil
}

// controlsResponse reports whether a parameter controls the form of a response. A server may ignore _elements and _summary
// (R4 search.html#elements).
func controlsResponse(name string) bool {
	return slices.Contains([]string{"_format", "_pretty", "_elements", "_offset"}, name)
}

// handleInteraction handles a request other than a batch or transaction. The caller holds the lock of the store.
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

// handleOperation handles an operation. A missing resource is 404 even for unsupported operations, because "not
// implemented" would blame the server for a mistyped address.
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

// checkOperationTarget returns an error if the store lacks the resource with an operation's id or canonical URL.
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

// canonical returns the canonical URL of the resource for an operation on a type, from the query or from
// Parameters in the body; "" if it is missing.
func (q request) canonical() string {
	names := []string{"url"}
	if q.Type == "CodeSystem" {
		names = append(names, "system") // $lookup and $subsumes (R4 codesystem-operation-lookup.html)
	}
	var body struct {
		Parameter []struct{ Name, ValueURI, ValueCanonical string }
	}
	_ = json.Unmarshal(q.body, &body) // a body in another format names no resource
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

// reply is a response.
type reply struct {
	status int
	header http.Header
	body   []byte
}

// newReply returns a reply with a resource.
func newReply(status int, text []byte) reply {
	return reply{status, http.Header{"Content-Type": {mediaType}}, text}
}

// write sends the reply.
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
		_, _ = w.Write(p.body) // fails if the client has disconnected
	}
}

// object is a JSON object.
type object map[string]any

// requestFailure is an error with its status and a code of http://hl7.org/fhir/issue-type.
type requestFailure struct {
	status     int
	code, text string
}

func (f requestFailure) Error() string { return f.text }

// ErrFull is returned by a store at one of its limits.
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

// newOutcomeReply returns an error as an OperationOutcome.
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

// Description is the description in the CapabilityStatement.
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

// resources are the types of R4 with their supported interactions, generated once.
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

// exportOperation returns the operation $export of one level.
func exportOperation(definition string) object {
	return object{
		"name": "export", "definition": "http://hl7.org/fhir/uv/bulkdata/OperationDefinition/" + definition,
		"documentation": "GET; supports _type, _since and _outputFormat.",
	}
}

// searchCapabilities returns the search parameters of a type, and its _include values.
func searchCapabilities(resourceType string) (params []object, includes []string) {
	for _, p := range searchparam.Parameters(resourceType) {
		params = append(params, object{"name": p.Name, "type": p.Kind.String()})
		if p.Kind == searchparam.Reference {
			includes = append(includes, resourceType+":"+p.Name)
		}
	}
	return params, includes
}

// interactionCodes returns interactions in the form of the CapabilityStatement.
func interactionCodes(names ...string) (list []object) {
	for _, name := range names {
		list = append(list, object{"code": name})
	}
	return list
}
