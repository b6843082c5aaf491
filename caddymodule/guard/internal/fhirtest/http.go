package fhirtest

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

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
	if i.Kind == interaction.Bundle {
		s.bundle(w, body)
	} else {
		s.serve(w, r, i, body)
	}
	return nil
}

// submitted is a batch or transaction.
type submitted struct {
	Type  string
	Entry []struct {
		FullURL  string
		Resource json.RawMessage
		Request  struct{ Method, URL, IfMatch, IfNoneMatch, IfNoneExist string }
	}
}

// bundle answers a batch or transaction. In a transaction, URNs that are the fullUrl of a new resource become its
// address, wherever they stand.
func (s *Server) bundle(w http.ResponseWriter, body []byte) {
	var b submitted
	if err := json.Unmarshal(body, &b); err != nil || b.Type != "batch" && b.Type != "transaction" {
		outcome(w, http.StatusBadRequest, "no batch or transaction")
		return
	}
	before := Server{versions: maps.Clone(s.versions), order: slices.Clone(s.order)}
	urns := s.urns(b)
	answers := make([]string, len(b.Entry))
	for _, method := range []string{"DELETE", "POST", "PUT", "PATCH", "GET"} {
		for n, e := range b.Entry {
			if e.Request.Method != method {
				continue
			}
			e.Resource = []byte(urns.Replace(string(e.Resource)))
			got := s.entry(e.Request.Method, e.Request.URL, e.Resource, http.Header{
				"If-Match": {e.Request.IfMatch}, "If-None-Match": {e.Request.IfNoneMatch}, "If-None-Exist": {e.Request.IfNoneExist},
			})
			if got.Code >= 400 && b.Type == "transaction" {
				s.versions, s.order = before.versions, before.order
				outcome(w, got.Code, "entry "+strconv.Itoa(n)+": "+got.Body.String())
				return
			}
			answers[n] = responded(got)
		}
	}
	answer(w, http.StatusOK, []byte(`{"resourceType":"Bundle","type":"`+b.Type+`-response","entry":[`+strings.Join(answers, ",")+`]}`))
}

// urns replaces the URNs of new resources.
func (s *Server) urns(b submitted) *strings.Replacer {
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

// entry answers one entry.
func (s *Server) entry(method, target string, body []byte, header http.Header) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	for name, values := range header {
		if values[0] == "" {
			delete(header, name)
		}
	}
	path, query, _ := strings.Cut(target, "?")
	i, err := interaction.Parse(method, path, query, header)
	if err != nil {
		outcome(w, interaction.Status(err), err.Error())
		return w
	}
	s.serve(w, &http.Request{Method: method, Header: header}, i, body)
	return w
}

// responded is an answer as an entry.
func responded(w *httptest.ResponseRecorder) string {
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
