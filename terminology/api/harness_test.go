package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	_ "github.com/caddy-fhir/caddy-fhir/terminology/codesystem/standard" // code systems
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

// fixedTime is the clock of the libraries in tests.
var fixedTime = time.Date(2026, 1, 2, 3, 4, 5, 678, time.UTC)

// core returns a library of the built-in definitions, loaded once.
var core = sync.OnceValues(func() (*terminology.Library, error) {
	return terminology.Load(context.Background(), definitions.Options{Core: true, Now: func() time.Time { return fixedTime }})
})

// coreLibrary returns the library of the built-in definitions.
func coreLibrary(t testing.TB) *terminology.Library {
	t.Helper()
	l, err := core()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// libraryOf loads the given resources, each from a file of its own, in order.
func libraryOf(t testing.TB, resources ...string) *terminology.Library {
	t.Helper()
	folder := t.TempDir()
	for i, resource := range resources {
		writeFile(t, filepath.Join(folder, fmt.Sprintf("%03d.json", i)), []byte(resource))
	}
	l, err := terminology.Load(context.Background(), definitions.Options{Definitions: []string{folder}, Now: func() time.Time { return fixedTime }})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// writeFile writes a file with the folders above it.
func writeFile(t testing.TB, name string, content []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, content, 0o644); err != nil {
		t.Fatal(err)
	}
}

// expanded is a ValueSet as $expand returns it.
type expanded struct {
	ResourceType string `json:"resourceType"`
	URL          string `json:"url"`
	Version      string `json:"version"`
	Name         string `json:"name"`
	Title        string `json:"title"`
	Status       string `json:"status"`
	Experimental *bool  `json:"experimental"`
	Language     string `json:"language"`
	Expansion    struct {
		Extension  []anyExtension `json:"extension"`
		Identifier string         `json:"identifier"`
		Timestamp  string         `json:"timestamp"`
		Total      *int           `json:"total"`
		Offset     *int           `json:"offset"`
		Parameter  []struct {
			Name         string  `json:"name"`
			ValueString  *string `json:"valueString"`
			ValueCode    *string `json:"valueCode"`
			ValueInteger *int    `json:"valueInteger"`
			ValueBoolean *bool   `json:"valueBoolean"`
			ValueURI     *string `json:"valueUri"`
			ValueDate    *string `json:"valueDateTime"`
		} `json:"parameter"`
		Contains []containsEntry `json:"contains"`
	} `json:"expansion"`
}

// containsEntry is one of expansion.contains.
type containsEntry struct {
	Extension   []anyExtension   `json:"extension"`
	System      string           `json:"system"`
	Version     string           `json:"version"`
	Abstract    bool             `json:"abstract"`
	Inactive    bool             `json:"inactive"`
	Code        string           `json:"code"`
	Display     string           `json:"display"`
	Designation []map[string]any `json:"designation"`
	Contains    []containsEntry  `json:"contains"`
}

// anyExtension is an extension of any kind.
type anyExtension struct {
	URL           string         `json:"url"`
	ValueBoolean  bool           `json:"valueBoolean"`
	ValueString   string         `json:"valueString"`
	ValueCode     string         `json:"valueCode"`
	ValueURI      string         `json:"valueUri"`
	ValueDecimal  json.Number    `json:"valueDecimal"`
	ValueInteger  json.Number    `json:"valueInteger"`
	ValueDateTime string         `json:"valueDateTime"`
	ValueCoding   map[string]any `json:"valueCoding"`
	Extension     []anyExtension `json:"extension"`
}

// properties returns the properties of an entry as code=value.
func (c containsEntry) properties() []string {
	list := []string{}
	for _, x := range c.Extension {
		if x.URL == "http://hl7.org/fhir/5.0/StructureDefinition/extension-ValueSet.expansion.contains.property" {
			v := x.Extension[1]
			list = append(list, x.Extension[0].ValueCode+"="+v.ValueCode+v.ValueString+string(v.ValueDecimal)+string(v.ValueInteger)+v.ValueDateTime)
		}
	}
	return list
}

// codes returns the codes of the answer, in order.
func (e expanded) codes() []string {
	codes := []string{}
	for _, c := range e.Expansion.Contains {
		codes = append(codes, c.Code)
	}
	return codes
}

// parameters returns expansion.parameter as name=value.
func (e expanded) parameters() []string {
	list := []string{}
	for _, p := range e.Expansion.Parameter {
		switch {
		case p.ValueString != nil:
			list = append(list, p.Name+"="+*p.ValueString)
		case p.ValueURI != nil:
			list = append(list, p.Name+"="+*p.ValueURI)
		case p.ValueCode != nil:
			list = append(list, p.Name+"="+*p.ValueCode)
		case p.ValueDate != nil:
			list = append(list, p.Name+"="+*p.ValueDate)
		case p.ValueBoolean != nil:
			list = append(list, fmt.Sprintf("%s=%t", p.Name, *p.ValueBoolean))
		case p.ValueInteger != nil:
			list = append(list, fmt.Sprintf("%s=%d", p.Name, *p.ValueInteger))
		}
	}
	return list
}

// query builds a query string from names and values in turn.
func query(pairs ...string) string {
	values := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		values.Add(pairs[i], pairs[i+1])
	}
	return values.Encode()
}

// request asks a handler and returns what it wrote.
func request(h *Handler, method, query string) (*httptest.ResponseRecorder, error) {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(method, "https://fhir.example.org/fhir/R4/ValueSet/$expand", nil)
	r.URL.RawQuery = query
	return w, h.Expand(w, r)
}

// expand asks for an expansion that must succeed.
func expand(t testing.TB, l *terminology.Library, pairs ...string) expanded {
	t.Helper()
	return expandWith(t, &Handler{Library: l}, pairs...)
}

// expandWith is expand for a handler that is set up in some way.
func expandWith(t testing.TB, h *Handler, pairs ...string) expanded {
	t.Helper()
	w, err := request(h, http.MethodGet, query(pairs...))
	if err != nil {
		t.Fatalf("expand %q: %v", pairs, err)
	}
	var result expanded
	decoder := json.NewDecoder(w.Body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&result); err != nil {
		t.Fatalf("expand %q: %v", pairs, err)
	}
	return result
}

// refused asks for an expansion that must fail.
func refused(t testing.TB, l *terminology.Library, pairs ...string) *outcome.Error {
	t.Helper()
	w, err := request(&Handler{Library: l}, http.MethodGet, query(pairs...))
	var e *outcome.Error
	if !errors.As(err, &e) {
		t.Fatalf("expand %q: got error %v, want an *Error", pairs, err)
	}
	if w.Body.Len() > 0 || len(w.Header()) > 0 {
		t.Errorf("expand %q: wrote %q %v besides returning an error", pairs, w.Body, w.Header())
	}
	return e
}

// wantCodes checks the codes of an answer, in order; want has spaces between them.
func wantCodes(t testing.TB, got expanded, want string) {
	t.Helper()
	if codes := strings.Fields(want); !slices.Equal(got.codes(), codes) {
		t.Errorf("got codes %q, want %q", got.codes(), codes)
	}
}

// wantEntries checks the entries of an answer, each as code|version display flags.
func wantEntries(t testing.TB, got expanded, want ...string) {
	t.Helper()
	var entries []string
	for _, c := range got.Expansion.Contains {
		entry := outcome.Canonical(c.Code, c.Version)
		if c.Display != "" {
			entry += " " + c.Display
		}
		if c.Abstract {
			entry += " abstract"
		}
		if c.Inactive {
			entry += " inactive"
		}
		entries = append(entries, entry)
	}
	if !slices.Equal(entries, want) {
		t.Errorf("got entries %q, want %q", entries, want)
	}
}

// wantText checks that a text has all the given parts in it.
func wantText(t testing.TB, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("got %q, want %q in it", text, part)
		}
	}
}
