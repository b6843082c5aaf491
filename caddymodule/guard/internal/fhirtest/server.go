// Package fhirtest is a small in-memory FHIR R4 server for tests of the guard. It has no access control, so tests detect what
// the guard fails to withhold.
//
//	server.go  resources and their versions; requests, batches and transactions; create, update, delete and FHIRPath Patch, by
//	           id with If-Match or, except for the patch, by criteria
//	search.go  read, vread, history; searches by type, in a compartment and of the system; includes; pages
//	export.go  $export of the system, of patients and of groups, with files that are stored as Binaries
//
// Its searches use package searchparam. Where FHIR servers differ, it behaves like HAPI: _getpages, links with its own address,
// 410 for deleted resources.
package fhirtest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
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

// Address is the server's own base URL. It differs from the clients' base URL, as it does behind a proxy.
const Address = "http://backend.internal:8080/fhir"

// Server is an in-memory FHIR server. It is safe for concurrent use.
type Server struct {
	// Base is the path of the FHIR API. Default: /fhir/R4.
	Base string
	// Parameters are the supported search parameters. Default: those of R4.
	Parameters searchparam.Set
	// OnRequest is called with each request. Optional.
	OnRequest func(r *http.Request)
	// ShufflesTies makes each response use a different order where _sort does not define one, as FHIR servers may. Only the
	// links of a response continue in the same order.
	ShufflesTies bool
	// TruncatedCount is the value of _count for which pages have neither a next link nor a total. HAPI returns such pages if
	// duplicates have filled them.
	TruncatedCount int
	// OmitsTotals makes searches return no total.
	OmitsTotals bool
	// ChecksReferences makes the server reject a resource that refers to a missing one, as HAPI does.
	ChecksReferences bool
	// MinCount and MaxCount limit the number of matches on a page, regardless of _count. Default: no limits.
	MinCount, MaxCount int
	// Handlers are handlers for additional requests, such as operations and jobs, by path below the base.
	Handlers map[string]http.HandlerFunc

	// SendsContent makes the server return the content of a Binary if the request accepts no FHIR format.
	SendsContent bool
	// IgnoresIfMatch makes the server ignore If-Match on deletes, as HAPI does.
	IgnoresIfMatch bool

	mu       sync.Mutex
	versions map[string][][]byte // by Type/id, oldest first; nil marks a deletion
	order    []string
	pages    []page
	jobs     []exportJob
}

// New returns a server that contains resources.
func New(resources ...string) *Server {
	s := &Server{versions: map[string][][]byte{}}
	for _, text := range resources {
		s.Put(text)
	}
	return s
}

// Put stores a resource under its type and id, as a new version. It panics if the id is missing (a mistake in the test).
func (s *Server) Put(text string) {
	res, err := resource.Parse([]byte(text))
	if err != nil || res.ID == "" {
		panic(fmt.Sprintf("resource has no id: %s, %v", text, err))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addVersion(interaction.Reference{Type: res.Type, ID: res.ID}, []byte(text))
}

// Delete deletes the resource with a reference such as Patient/1, if it exists.
func (s *Server) Delete(reference string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if versions := s.versions[reference]; len(versions) > 0 && versions[len(versions)-1] != nil {
		s.versions[reference] = append(versions, nil)
	}
}

// Get returns the current version of the resource with a reference such as Patient/1, or "" if it does not exist.
func (s *Server) Get(reference string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	versions := s.versions[reference]
	if len(versions) == 0 {
		return ""
	}
	return string(versions[len(versions)-1])
}

// All returns the current versions by reference, such as Patient/1. The version of a deleted resource is "".
func (s *Server) All() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[string]string, len(s.order))
	for _, key := range s.order {
		versions := s.versions[key]
		all[key] = string(versions[len(versions)-1])
	}
	return all
}

// addVersion adds a version and sets its number in meta.
func (s *Server) addVersion(of interaction.Reference, text []byte) []byte {
	key := of.String()
	if s.versions[key] == nil {
		s.order = append(s.order, key)
	}
	meta := map[string]any{}
	if res, err := resource.Parse(text); err == nil {
		if old, ok := res.Member("meta"); ok {
			_ = json.Unmarshal(old, &meta)
		}
	}
	meta["versionId"] = strconv.Itoa(len(s.versions[key]) + 1)
	metaJSON, _ := json.Marshal(meta)
	text, _ = rawjson.WithMember(text, "meta", metaJSON)
	text, _ = rawjson.WithMember(text, "id", []byte(strconv.Quote(of.ID)))
	s.versions[key] = append(s.versions[key], text)
	return text
}

// page contains the remaining matches of a search.
type page struct {
	interaction interaction.Interaction
	bundleType  string // Bundle.type
	entries     []searchMatch
	total       int
	count       int
}

// searchMatch is a match of a search.
type searchMatch struct {
	res          resource.Resource
	text         []byte
	searchMode   string
	otherMembers string // other members of a history entry
}

func writeResponse(w http.ResponseWriter, status int, text []byte) {
	w.Header().Set("Content-Type", "application/fhir+json;charset=UTF-8")
	w.WriteHeader(status)
	_, _ = w.Write(text)
}

// writeOutcome writes an OperationOutcome with diagnostics that reveal details, as careless servers do.
func writeOutcome(w http.ResponseWriter, status int, text string) {
	writeResponse(w, status, []byte(`{"resourceType":"OperationOutcome","issue":[{"severity":"error","code":"processing","diagnostics":`+strconv.Quote(text)+`}]}`))
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

// ServeHTTP answers a request of FHIR's REST API. It never returns an error.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) error {
	if s.OnRequest != nil {
		s.OnRequest(r)
	}
	path := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, cmp.Or(s.Base, "/fhir/R4")), "/")
	if handler := s.Handlers[path]; handler != nil {
		handler(w, r)
		return nil
	}
	i, err := interaction.Parse(r.Method, path, r.URL.RawQuery, r.Header)
	var body []byte
	if err == nil && r.Body != nil {
		body, err = io.ReadAll(r.Body)
	}
	if err == nil && strings.HasSuffix(path, "_search") {
		i, err = i.WithForm(string(body))
	}
	if err != nil {
		writeOutcome(w, interaction.Status(err), err.Error())
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i.Kind == interaction.Bundle {
		s.serveBundle(w, body)
	} else {
		s.serve(w, r, i, body)
	}
	return nil
}

type submittedBundle struct {
	Type  string
	Entry []struct {
		FullURL  string
		Resource json.RawMessage
		Request  struct{ Method, URL, IfMatch, IfNoneMatch, IfNoneExist string }
	}
}

// serveBundle answers a batch or transaction. In a transaction, the URNs of new resources are replaced by their references
// everywhere.
func (s *Server) serveBundle(w http.ResponseWriter, body []byte) {
	var b submittedBundle
	if err := json.Unmarshal(body, &b); err != nil || b.Type != "batch" && b.Type != "transaction" {
		writeOutcome(w, http.StatusBadRequest, "Bundle is not a batch or transaction")
		return
	}
	before := Server{versions: maps.Clone(s.versions), order: slices.Clone(s.order)}
	urns := s.urnReplacer(b)
	responses := make([]string, len(b.Entry))
	for _, method := range []string{"DELETE", "POST", "PUT", "PATCH", "GET"} {
		for n, e := range b.Entry {
			if e.Request.Method != method {
				continue
			}
			e.Resource = []byte(urns.Replace(string(e.Resource)))
			got := s.serveEntry(e.Request.Method, e.Request.URL, e.Resource, http.Header{
				"If-Match": {e.Request.IfMatch}, "If-None-Match": {e.Request.IfNoneMatch}, "If-None-Exist": {e.Request.IfNoneExist},
			})
			if got.Code >= 400 && b.Type == "transaction" {
				s.versions, s.order = before.versions, before.order
				writeOutcome(w, got.Code, "entry "+strconv.Itoa(n)+": "+got.Body.String())
				return
			}
			responses[n] = encodeResponse(got)
		}
	}
	writeResponse(w, http.StatusOK, []byte(`{"resourceType":"Bundle","type":"`+b.Type+`-response","entry":[`+strings.Join(responses, ",")+`]}`))
}

// urnReplacer returns a replacer that replaces the URNs of new resources.
func (s *Server) urnReplacer(b submittedBundle) *strings.Replacer {
	var pairs []string
	next := len(s.order)
	for _, e := range b.Entry {
		if e.Request.Method != http.MethodPost || b.Type != "transaction" {
			continue
		}
		if next++; strings.HasPrefix(e.FullURL, "urn:") {
			pairs = append(pairs, strconv.Quote(e.FullURL), strconv.Quote(e.Request.URL+"/new-"+strconv.Itoa(next)))
		}
	}
	return strings.NewReplacer(pairs...)
}

func (s *Server) serveEntry(method, target string, body []byte, header http.Header) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	for name, values := range header {
		if values[0] == "" {
			delete(header, name)
		}
	}
	path, query, _ := strings.Cut(target, "?")
	i, err := interaction.Parse(method, path, query, header)
	if err != nil {
		writeOutcome(w, interaction.Status(err), err.Error())
		return w
	}
	s.serve(w, &http.Request{Method: method, Header: header}, i, body)
	return w
}

// encodeResponse returns a response as a Bundle entry.
func encodeResponse(w *httptest.ResponseRecorder) string {
	text := `{"response":{"status":"` + strconv.Itoa(w.Code) + `"`
	for member, header := range map[string]string{"location": "Location", "etag": "Etag"} {
		if value := w.Header().Get(header); value != "" {
			text += `,"` + member + `":` + strconv.Quote(value)
		}
	}
	text += "}"
	if w.Body.Len() > 0 {
		text += `,"resource":` + w.Body.String()
	}
	return text + "}"
}

// serve answers a request other than a batch or transaction.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, i interaction.Interaction, body []byte) {
	if token := parameterValue(i.Parameters, "_getpages"); token != "" && i.Kind == interaction.SystemSearch {
		s.serveNextPage(w, token)
		return
	}
	if isExport(i) {
		s.export(w, i, body)
		return
	}
	switch i.Kind {
	case interaction.Read, interaction.VRead:
		s.read(w, r, i)
	case interaction.InstanceHistory:
		s.history(w, i)
	case interaction.TypeSearch, interaction.SystemSearch, interaction.CompartmentSearch:
		s.serveSearch(w, i)
	case interaction.Create, interaction.Update, interaction.Delete, interaction.Patch:
		s.serveWrite(w, r, i, body)
	case interaction.ConditionalCreate, interaction.ConditionalUpdate, interaction.ConditionalDelete:
		s.writeMatching(w, r, i, body)
	default:
		writeOutcome(w, http.StatusNotImplemented, "not supported: "+i.Kind.String())
	}
}

func (s *Server) serveWrite(w http.ResponseWriter, r *http.Request, i interaction.Interaction, body []byte) {
	of := interaction.Reference{Type: i.Type, ID: i.ID}
	if i.Kind == interaction.Create {
		of.ID = "new-" + strconv.Itoa(len(s.order)+1)
	}
	versions := s.versions[of.String()]
	exists := len(versions) > 0 && versions[len(versions)-1] != nil
	current := fmt.Sprintf(`W/"%d"`, len(versions))
	ifMatch, ifNoneMatch := r.Header.Get("If-Match"), r.Header.Get("If-None-Match")
	if s.IgnoresIfMatch && i.Kind == interaction.Delete {
		ifMatch = ""
	}
	if ifMatch != "" && (ifMatch != current || !exists) || ifNoneMatch == "*" && exists {
		writeOutcome(w, http.StatusPreconditionFailed, "version does not match "+ifMatch)
		return
	}
	if i.Kind == interaction.Delete {
		if exists {
			s.versions[of.String()] = append(versions, nil)
		}
		w.WriteHeader(http.StatusNoContent)
		return
	}
	if i.Kind == interaction.Patch {
		if !exists {
			writeOutcome(w, http.StatusNotFound, of.String()+" does not exist")
			return
		}
		body = applyPatch(versions[len(versions)-1], body)
	}
	res, err := resource.Parse(body)
	if err != nil || res.Type != of.Type || i.Kind == interaction.Update && res.ID != of.ID {
		writeOutcome(w, http.StatusBadRequest, "type or id of the body does not match the path")
		return
	}
	for _, match := range literalReference.FindAllSubmatch(body, -1) {
		if to := string(match[1]); s.ChecksReferences && s.currentVersion(to) == nil {
			writeOutcome(w, http.StatusBadRequest, "Resource "+to+" not found")
			return
		}
	}
	s.storeVersion(w, of, body, exists)
}

// literalReference matches a reference to a resource of the server.
var literalReference = regexp.MustCompile(`"reference":"([A-Z][A-Za-z]+/[A-Za-z0-9.-]+)"`)

// storeVersion adds a version and writes it as the response.
func (s *Server) storeVersion(w http.ResponseWriter, of interaction.Reference, body []byte, existed bool) {
	status := http.StatusCreated
	if existed {
		status = http.StatusOK
	}
	text := s.addVersion(of, body)
	version := len(s.versions[of.String()])
	w.Header().Set("Etag", fmt.Sprintf(`W/"%d"`, version))
	w.Header().Set("Location", fmt.Sprintf("%s/%s/_history/%d", Address, of, version))
	writeResponse(w, status, text)
}

// writeMatching executes a conditional write on the resource that matches the criteria.
func (s *Server) writeMatching(w http.ResponseWriter, r *http.Request, i interaction.Interaction, body []byte) {
	var found []resource.Resource
	for _, key := range s.order {
		versions := s.versions[key]
		if res, err := resource.Parse(versions[len(versions)-1]); err == nil && s.matches(i, res) {
			found = append(found, res)
		}
	}
	switch {
	case len(found) > 1:
		writeOutcome(w, http.StatusPreconditionFailed, "multiple resources match the criteria")
	case i.Kind == interaction.ConditionalCreate && len(found) == 1:
		w.Header().Set("Location", Address+"/"+i.Type+"/"+found[0].ID)
		w.WriteHeader(http.StatusOK)
	case len(found) == 0 && i.Kind == interaction.ConditionalDelete && s.IgnoresIfMatch:
		writeOutcome(w, http.StatusOK, "no resource matches the criteria; not an error, as in HAPI")
	case len(found) == 0 && i.Kind == interaction.ConditionalDelete:
		writeOutcome(w, http.StatusNotFound, "no resource matches the criteria")
	case len(found) == 0:
		i.Kind = interaction.Create
		s.serveWrite(w, r, i, body)
	default:
		i.ID = found[0].ID
		i.Kind = map[string]interaction.Kind{http.MethodPut: interaction.Update, http.MethodDelete: interaction.Delete}[r.Method]
		body, _ = rawjson.WithMember(body, "id", []byte(strconv.Quote(i.ID)))
		s.serveWrite(w, r, i, body)
	}
}

// applyPatch applies a FHIRPath Patch with operations that replace members of the resource.
func applyPatch(text, patch []byte) []byte {
	var p struct {
		Parameter []struct{ Part []map[string]json.RawMessage }
	}
	if err := json.Unmarshal(patch, &p); err != nil {
		return nil
	}
	for _, operation := range p.Parameter {
		var path string
		var value []byte
		for _, part := range operation.Part {
			for name, v := range part {
				switch {
				case string(part["name"]) == `"path"` && strings.HasPrefix(name, "value"):
					_ = json.Unmarshal(v, &path)
				case string(part["name"]) == `"value"` && strings.HasPrefix(name, "value"):
					value = v
				}
			}
		}
		_, member, _ := strings.Cut(path, ".")
		text, _ = rawjson.WithMember(text, member, value)
	}
	return text
}
