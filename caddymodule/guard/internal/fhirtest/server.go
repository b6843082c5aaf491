package fhirtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/rawjson"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/searchparam"
)

// Address is where the server believes to be, as servers behind a proxy do.
const Address = "http://backend.internal:8080/fhir"

// Server is a FHIR server in memory. It is safe for concurrent use.
type Server struct {
	// Base is the path of the FHIR API. Default: /fhir/R4.
	Base string
	// Parameters are the search parameters that the server knows. Zero: those of R4.
	Parameters searchparam.Set
	// Seen, if set, is called with each request.
	Seen func(r *http.Request)
	// Shuffles has each answer order anew what _sort leaves open, as servers may. An answer fits its own link to the rest,
	// and no answer before.
	Shuffles bool
	// Cuts is the _count with which pages have neither a link to the next one nor a total, as HAPI's where duplicates have
	// filled them.
	Cuts int
	// OmitsTotals has searches tell no total.
	OmitsTotals bool
	// Integrity has the server reject a resource that refers to one that does not exist, as HAPI does.
	Integrity bool
	// MinCount and MaxCount are the fewest and the most matches of a page, whatever _count says. Zero: as _count says.
	MinCount, MaxCount int
	// Answers answer what the server does not, such as operations and jobs, by path below the base.
	Answers map[string]http.HandlerFunc

	// SendsContent has a Binary read as its content if the request accepts no format of FHIR's.
	SendsContent bool
	// IgnoresIfMatch has deletes ignore If-Match, as HAPI does.
	IgnoresIfMatch bool

	mu       sync.Mutex
	versions map[string][][]byte // by Type/id, the oldest first; nil for a deletion
	order    []string
	pages    []page
	jobs     []job
}

// New returns a server with resources.
func New(resources ...string) *Server {
	s := &Server{versions: map[string][][]byte{}}
	for _, text := range resources {
		s.Put(text)
	}
	return s
}

// Put stores a resource under its own type and id, as a new version. It panics if it has none: tests are wrong then.
func (s *Server) Put(text string) {
	res, err := resource.Parse([]byte(text))
	if err != nil || res.ID == "" {
		panic(fmt.Sprintf("no resource with an id: %s, %v", text, err))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(interaction.Reference{Type: res.Type, ID: res.ID}, []byte(text))
}

// Delete deletes a resource such as Patient/1, if it exists.
func (s *Server) Delete(reference string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if versions := s.versions[reference]; len(versions) > 0 && versions[len(versions)-1] != nil {
		s.versions[reference] = append(versions, nil)
	}
}

// Get returns the current version of a resource such as Patient/1; empty if there is none.
func (s *Server) Get(reference string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	versions := s.versions[reference]
	if len(versions) == 0 {
		return ""
	}
	return string(versions[len(versions)-1])
}

// All returns the current versions by reference, such as Patient/1. That of what was deleted is empty.
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

// put adds a version, numbered in meta.
func (s *Server) put(of interaction.Reference, text []byte) []byte {
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
	written, _ := json.Marshal(meta)
	text, _ = rawjson.With(text, "meta", written)
	text, _ = rawjson.With(text, "id", []byte(strconv.Quote(of.ID)))
	s.versions[key] = append(s.versions[key], text)
	return text
}

// page is what is left of a search.
type page struct {
	of      interaction.Interaction
	kind    string // Bundle.type
	entries []found
	total   int
	count   int
}

// found is a resource that a search found.
type found struct {
	res  resource.Resource
	text []byte
	mode string
	more string // what else an entry of a history says
}

// answer writes a resource.
func answer(w http.ResponseWriter, status int, text []byte) {
	w.Header().Set("Content-Type", "application/fhir+json;charset=UTF-8")
	w.WriteHeader(status)
	_, _ = w.Write(text)
}

// outcome writes an OperationOutcome, which names what it is about, as careless servers do.
func outcome(w http.ResponseWriter, status int, text string) {
	answer(w, status, []byte(`{"resourceType":"OperationOutcome","issue":[{"severity":"error","code":"processing","diagnostics":`+strconv.Quote(text)+`}]}`))
}

// value is the value of a parameter; empty if it is missing.
func value(parameters []smart.Parameter, name string) string {
	for _, p := range parameters {
		if p.Name == name {
			return p.Value
		}
	}
	return ""
}
