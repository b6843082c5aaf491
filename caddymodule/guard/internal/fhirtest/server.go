package fhirtest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/rawjson"
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
	// Answers answer what the server does not, such as operations and jobs, by path below the base.
	Answers map[string]http.HandlerFunc

	mu       sync.Mutex
	versions map[string][][]byte // by Type/id, the oldest first; nil for a deletion
	order    []string
	pages    []page
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

// ServeHTTP answers a request of FHIR's REST API. It never returns an error.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) error {
	if s.Seen != nil {
		s.Seen(r)
	}
	base := s.Base
	if base == "" {
		base = "/fhir/R4"
	}
	path := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, base), "/")
	if answer := s.Answers[path]; answer != nil {
		answer(w, r)
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
		outcome(w, interaction.Status(err), err.Error())
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.serve(w, r, i, body)
	return nil
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request, i interaction.Interaction, body []byte) {
	if token := value(i.Parameters, "_getpages"); token != "" && i.Kind == interaction.SystemSearch {
		s.next(w, token)
		return
	}
	switch i.Kind {
	case interaction.Read, interaction.VRead:
		s.read(w, i)
	case interaction.InstanceHistory:
		s.history(w, i)
	case interaction.TypeSearch, interaction.SystemSearch, interaction.CompartmentSearch:
		s.search(w, i)
	case interaction.Create, interaction.Update, interaction.Delete, interaction.Patch:
		s.write(w, r, i, body)
	case interaction.ConditionalCreate, interaction.ConditionalUpdate, interaction.ConditionalDelete:
		s.writeMatch(w, r, i, body)
	case interaction.Bundle:
		s.bundle(w, body)
	default:
		outcome(w, http.StatusNotImplemented, "not supported: "+i.Kind.String())
	}
}

func (s *Server) read(w http.ResponseWriter, i interaction.Interaction) {
	versions := s.versions[i.Type+"/"+i.ID]
	n := len(versions)
	if i.VersionID != "" {
		n, _ = strconv.Atoi(i.VersionID)
	}
	switch {
	case n < 1 || n > len(versions):
		outcome(w, http.StatusNotFound, i.Type+"/"+i.ID+" is not known")
	case versions[n-1] == nil:
		outcome(w, http.StatusGone, i.Type+"/"+i.ID+" was deleted")
	default:
		w.Header().Set("Etag", fmt.Sprintf(`W/"%d"`, n))
		w.Header().Set("Content-Location", fmt.Sprintf("%s/%s/%s/_history/%d", Address, i.Type, i.ID, n))
		answer(w, http.StatusOK, versions[n-1])
	}
}

func (s *Server) history(w http.ResponseWriter, i interaction.Interaction) {
	key := i.Type + "/" + i.ID
	p := page{of: i, kind: "history", count: 20, total: len(s.versions[key])}
	if n, err := strconv.Atoi(value(i.Parameters, "_count")); err == nil && n > 0 {
		p.count = n
	}
	for n := len(s.versions[key]); n > 0; n-- {
		f := found{text: s.versions[key][n-1]}
		f.res.Type, f.res.ID = i.Type, i.ID
		f.more = `"request":{"method":"PUT","url":"` + Address + "/" + key + `"},"response":{"status":"200","location":"` + Address + "/" + key + `/_history/` + strconv.Itoa(n) + `","etag":"W/\"` + strconv.Itoa(n) + `\""}`
		if f.text == nil {
			f.more = strings.Replace(f.more, "PUT", "DELETE", 1)
		}
		p.entries = append(p.entries, f)
	}
	if p.total == 0 {
		outcome(w, http.StatusNotFound, key+" is not known")
		return
	}
	s.writePage(w, p, Address+"/"+key+"/_history")
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
