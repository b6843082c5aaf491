package sample

import (
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// MaxBody is how large the body of a request may be.
const MaxBody = 1 << 20

// Server answers requests of FHIR's REST API from a store.
type Server struct {
	// Store holds the resources. Required.
	Store *Store
	// Base is the path of the FHIR API, such as /fhir/R4. Required.
	Base string
	// BaseURL is the address of the FHIR API in links. Default: the address that was asked for.
	BaseURL string
}

// request is one request, or one entry of a batch or transaction.
type request struct {
	interaction.Interaction
	ctx    context.Context
	method string
	header http.Header
	body   []byte
	base   string // the address of the FHIR API
	id     string // for what is created; empty: a new one
}

// ServeHTTP answers a request below the base.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer, err := s.answer(w, r)
	if err != nil {
		answer = outcome(err)
	}
	answer.write(w, r)
}

func (s *Server) answer(w http.ResponseWriter, r *http.Request) (reply, error) {
	if job, ok := strings.CutPrefix(r.URL.Path, s.Base+"/"+exportPath); ok {
		return s.Store.exports.serve(r.Method, s.address(r), job)
	}
	q, err := s.read(w, r)
	if err != nil {
		return reply{}, err
	}
	if q.changes() {
		s.Store.mu.Lock()
		defer s.Store.mu.Unlock()
	} else {
		s.Store.mu.RLock()
		defer s.Store.mu.RUnlock()
	}
	if q.Kind == interaction.Bundle {
		return s.submit(q)
	}
	return s.perform(q)
}

// read reads a request to its end.
func (s *Server) read(w http.ResponseWriter, r *http.Request) (request, error) {
	path := strings.TrimPrefix(r.URL.Path[min(len(s.Base), len(r.URL.Path)):], "/")
	i, err := interaction.Parse(r.Method, path, r.URL.RawQuery, r.Header)
	if err != nil {
		return request{}, err
	}
	q := request{Interaction: i, ctx: r.Context(), method: r.Method, header: r.Header, base: s.address(r)}
	if r.Body != nil {
		if q.body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody)); err != nil {
			return q, unread(err)
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

// unread is why a body could not be read.
func unread(err error) error {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return failure{http.StatusRequestEntityTooLarge, "too-long", "The body is larger than 1 MiB."}
	}
	return invalid("The body ended early.")
}

// address is the address of the FHIR API as the client knows it.
func (s *Server) address(r *http.Request) string {
	switch {
	case s.BaseURL != "":
		return s.BaseURL
	case r.TLS != nil:
		return "https://" + r.Host + s.Base
	}
	return "http://" + r.Host + s.Base
}

// changes reports whether a request may write.
func (q request) changes() bool {
	switch q.Kind {
	case interaction.Create, interaction.ConditionalCreate, interaction.Update, interaction.ConditionalUpdate,
		interaction.Delete, interaction.ConditionalDelete, interaction.Bundle:
		return true
	}
	return false
}

// checkFormat refuses what is to be answered, or was sent, in another form than JSON. A Binary has its own.
func (q request) checkFormat(contentType string) error {
	accepted := q.header.Get("Accept")
	if format := value(q.Parameters, "_format"); format != "" {
		accepted = format
	}
	isBinary := q.Type == "Binary" && q.Kind == interaction.Read
	if !isBinary && accepted != "" && !strings.Contains(accepted, "json") && !strings.Contains(accepted, "*/*") && !strings.Contains(accepted, "application/*") {
		return failure{http.StatusNotAcceptable, "not-supported", "Answers are in JSON only."}
	}
	if !q.changes() || len(q.body) == 0 {
		return nil
	}
	if sent, _, err := mime.ParseMediaType(contentType); err != nil || sent != mediaType && sent != "application/json" {
		return failure{http.StatusUnsupportedMediaType, "not-supported", "The body must be of type " + mediaType + "."}
	}
	return nil
}

// perform answers a request that is no batch or transaction. The caller holds the lock of the store.
func (s *Server) perform(q request) (reply, error) {
	switch q.Kind {
	case interaction.Capabilities:
		return s.capabilities(q)
	case interaction.Read, interaction.VRead:
		return s.readVersion(q)
	case interaction.InstanceHistory:
		return s.history(q)
	case interaction.TypeSearch, interaction.SystemSearch, interaction.CompartmentSearch:
		return s.search(q)
	case interaction.Create, interaction.ConditionalCreate:
		return s.create(q)
	case interaction.Update, interaction.ConditionalUpdate:
		return s.update(q)
	case interaction.Delete, interaction.ConditionalDelete:
		return s.remove(q)
	case interaction.Operation:
		switch {
		case q.Operation == "$everything" && q.Type == "Patient" && q.ID != "" && q.method != http.MethodPost:
			return s.everything(q)
		case q.Operation == "$export" && q.method == http.MethodGet:
			return s.export(q)
		}
	}
	return reply{}, failure{http.StatusNotImplemented, "not-supported", "The sample server does not support this: " + q.Kind.String() + "."}
}

// reference is the resource that the path names.
func (q request) reference() interaction.Reference {
	return interaction.Reference{Type: q.Type, ID: q.ID}
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

// canceled is the error of a request whose client has gone, or has waited too long.
func (q request) canceled() error {
	if err := q.ctx.Err(); err != nil {
		return failure{http.StatusServiceUnavailable, "timeout", "The request was canceled."}
	}
	return nil
}
