package terminologytest

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/negotiation"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

// Serve mounts a handler the way the gateway does: operations by path, errors as OperationOutcome.
func Serve(h *api.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if failed, ok := errors.AsType[*outcome.Error](Answer(h, w, r)); ok {
			w.Header().Set("Content-Type", "application/fhir+json")
			w.WriteHeader(failed.Status)
			_, _ = w.Write(failed.OperationOutcome())
		}
	})
}

// Answer answers as [Serve] does, and returns the error.
func Answer(h *api.Handler, w http.ResponseWriter, r *http.Request) error {
	below := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/fhir/R4"), "/")
	kind, _, _ := strings.Cut(below, "/")
	operation, isOperation := api.FindOperation(kind, strings.TrimPrefix(path.Base(below), "$"))
	switch {
	case kind == "ValueSet" && strings.HasSuffix(below, "/$expand"):
		return h.Expand(w, r)
	case isOperation && strings.Contains(below, "/$"):
		return h.Operation(operation)(w, r)
	case below == "metadata" && r.URL.Query().Get("mode") == "terminology":
		return h.TerminologyCapabilities(w, r)
	case below == "metadata":
		return h.CapabilityStatement(w, r)
	case below == "$versions":
		return h.Versions(w, r)
	case below == "ValueSet" || below == "CodeSystem":
		return h.Search(w, r)
	case strings.Count(below, "/") == 1 && !strings.Contains(below, "$"):
		return h.Read(w, r)
	}
	return &outcome.Error{Status: http.StatusNotFound, Code: "not-found", Text: "no such operation"}
}

// Needs skips a test of a build that lacks a feature: an operation, by its path such as /CodeSystem/$lookup?code=a, or a code
// system, by its url, or "xml".
func Needs(t testing.TB, features ...string) {
	t.Helper()
	for _, feature := range features {
		if !Has(feature) {
			t.Skipf("this build has no %s", feature)
		}
	}
}

// Has reports whether the build has a feature, as [Needs] names it.
func Has(feature string) bool {
	if feature == "xml" {
		return negotiation.HasXML()
	}
	below, _, _ := strings.Cut(strings.TrimPrefix(feature, "/"), "?")
	kind, rest, _ := strings.Cut(below, "/")
	if _, name, ok := strings.Cut(rest, "$"); ok || strings.HasPrefix(rest, "$") {
		_, ok := api.FindOperation(kind, name)
		return ok || kind == "ValueSet" && name == "expand"
	}
	return slices.ContainsFunc(codesystem.Registered(), func(s codesystem.Source) bool { return s.URL == feature })
}

// Call sends a request to a handler that is mounted as in the gateway, and returns the answer.
func Call(t testing.TB, h *api.Handler, method, path, body string, headers ...string) (*httptest.ResponseRecorder, map[string]any) {
	t.Helper()
	r := httptest.NewRequest(method, "/fhir/R4"+path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/fhir+json")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	Serve(h).ServeHTTP(w, r)
	var answer map[string]any
	if w.Body.Len() > 0 && strings.Contains(w.Header().Get("Content-Type"), "json") {
		if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
			t.Fatalf("%s %s: %v in %s", method, path, err, w.Body)
		}
	}
	return w, answer
}

// Query builds a query string from names and values in turn.
func Query(pairs ...string) string {
	values := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		values.Add(pairs[i], pairs[i+1])
	}
	return values.Encode()
}

// Request asks a handler and returns what it wrote.
func Request(h *api.Handler, method, query string) (*httptest.ResponseRecorder, error) {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(method, "https://fhir.example.org/fhir/R4/ValueSet/$expand", nil)
	r.URL.RawQuery = query
	return w, h.Expand(w, r)
}

// Expand asks for an expansion that must succeed.
func Expand(t testing.TB, l *terminology.Library, pairs ...string) Expanded {
	t.Helper()
	return ExpandWith(t, &api.Handler{Library: l}, pairs...)
}

// ExpandWith is expand for a handler that is set up in some way.
func ExpandWith(t testing.TB, h *api.Handler, pairs ...string) Expanded {
	t.Helper()
	w, err := Request(h, http.MethodGet, Query(pairs...))
	if err != nil {
		t.Fatalf("expand %q: %v", pairs, err)
	}
	var result Expanded
	decoder := json.NewDecoder(w.Body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&result); err != nil {
		t.Fatalf("expand %q: %v", pairs, err)
	}
	return result
}

// Refused asks for an expansion that must fail.
func Refused(t testing.TB, l *terminology.Library, pairs ...string) *outcome.Error {
	t.Helper()
	w, err := Request(&api.Handler{Library: l}, http.MethodGet, Query(pairs...))
	var e *outcome.Error
	if !errors.As(err, &e) {
		t.Fatalf("expand %q: got error %v, want an *Error", pairs, err)
	}
	if w.Body.Len() > 0 || len(w.Header()) > 0 {
		t.Errorf("expand %q: wrote %q %v besides returning an error", pairs, w.Body, w.Header())
	}
	return e
}

// AsXML returns a resource, which is given in JSON, in XML. It skips a test of a build without XML.
func AsXML(t testing.TB, resource string) string {
	t.Helper()
	Needs(t, "xml")
	document, err := negotiation.AppendXML(nil, []byte(resource))
	if err != nil {
		t.Fatal(err)
	}
	return string(document)
}

// WriteProvisional writes the provisional answer of an error, as a caller does when no other server has a better one.
func WriteProvisional(w http.ResponseWriter, e *outcome.Error) error {
	w.Header().Set("Content-Type", e.Provisional.ContentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(e.Provisional.Body)))
	_, err := w.Write(e.Provisional.Body)
	return err
}
