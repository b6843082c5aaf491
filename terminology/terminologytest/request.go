package terminologytest

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
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
	"github.com/caddy-fhir/caddy-fhir/terminology/expansion"
	"github.com/caddy-fhir/caddy-fhir/terminology/negotiation"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

// Serve returns an HTTP handler that mounts h as the gateway does. It writes errors as OperationOutcomes.
func Serve(h *api.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if failed, ok := errors.AsType[*outcome.Error](ServeError(h, w, r)); ok {
			w.Header().Set("Content-Type", "application/fhir+json")
			w.WriteHeader(failed.Status)
			_, _ = w.Write(failed.OperationOutcome())
		}
	})
}

// ServeError serves a request like [Serve], but returns errors instead of writing them.
func ServeError(h *api.Handler, w http.ResponseWriter, r *http.Request) error {
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

// RequireFeatures skips the test if the build lacks a feature. A feature is an operation, identified by a path such as
// /CodeSystem/$lookup?code=a, a code system, identified by its URL, or "xml".
func RequireFeatures(t testing.TB, features ...string) {
	t.Helper()
	for _, feature := range features {
		if !HasFeature(feature) {
			t.Skipf("this build lacks %s", feature)
		}
	}
}

// HasFeature reports whether the build includes a feature, identified as in [RequireFeatures].
func HasFeature(feature string) bool {
	if feature == "xml" {
		return negotiation.HasXML()
	}
	below, _, _ := strings.Cut(strings.TrimPrefix(feature, "/"), "?")
	kind, rest, _ := strings.Cut(below, "/")
	if _, name, ok := strings.Cut(rest, "$"); ok || strings.HasPrefix(rest, "$") {
		_, ok := api.FindOperation(kind, name)
		return ok || kind == "ValueSet" && name == "expand"
	}
	return slices.ContainsFunc(codesystem.Sources(), func(s codesystem.Source) bool { return s.URL == feature })
}

// Call sends a request to a handler that is mounted as in the gateway. It returns the response and its decoded body.
func Call(t testing.TB, h *api.Handler, method, path, body string, headers ...string) (*httptest.ResponseRecorder, map[string]any) {
	t.Helper()
	r := httptest.NewRequest(method, "/fhir/R4"+path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/fhir+json")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	Serve(h).ServeHTTP(w, r)
	var response map[string]any
	if w.Body.Len() > 0 && strings.Contains(w.Header().Get("Content-Type"), "json") {
		if err := json.Unmarshal(w.Body.Bytes(), &response); err != nil {
			t.Fatalf("%s %s: %v in %s", method, path, err, w.Body)
		}
	}
	return w, response
}

// Query returns a query string. pairs are alternating names and values.
func Query(pairs ...string) string {
	values := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		values.Add(pairs[i], pairs[i+1])
	}
	return values.Encode()
}

// Request sends an $expand request to a handler and returns the response and the handler's error.
func Request(h *api.Handler, method, query string) (*httptest.ResponseRecorder, error) {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(method, "https://fhir.example.org/fhir/R4/ValueSet/$expand", nil)
	r.URL.RawQuery = query
	return w, h.Expand(w, r)
}

// Expand sends an $expand request and fails the test if the request fails.
func Expand(t testing.TB, l *terminology.Library, pairs ...string) Expanded {
	t.Helper()
	return ExpandWith(t, &api.Handler{Library: l}, pairs...)
}

// ExpandWith is like [Expand], but uses the given handler.
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

// ExpandError sends an $expand request, which must fail, and returns the error.
func ExpandError(t testing.TB, l *terminology.Library, pairs ...string) *outcome.Error {
	t.Helper()
	w, err := Request(&api.Handler{Library: l}, http.MethodGet, Query(pairs...))
	var e *outcome.Error
	if !errors.As(err, &e) {
		t.Fatalf("expand %q: got error %v, want an *Error", pairs, err)
	}
	if w.Body.Len() > 0 || len(w.Header()) > 0 {
		t.Errorf("expand %q: wrote %q %v and returned an error", pairs, w.Body, w.Header())
	}
	return e
}

// AsXML returns a resource, given in JSON, in XML. It skips the test in a build without XML.
func AsXML(t testing.TB, resource string) string {
	t.Helper()
	RequireFeatures(t, "xml")
	document, err := negotiation.AppendXML(nil, []byte(resource))
	if err != nil {
		t.Fatal(err)
	}
	return string(document)
}

// WriteProvisional writes the provisional response of an error, as callers do if no other server has a better response.
func WriteProvisional(w http.ResponseWriter, e *outcome.Error) error {
	w.Header().Set("Content-Type", e.Provisional.ContentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(e.Provisional.Body)))
	_, err := w.Write(e.Provisional.Body)
	return err
}

// Expanded is a ValueSet returned by $expand.
type Expanded struct {
	ResourceType string `json:"resourceType"` // always "ValueSet"
	URL          string `json:"url"`          // ValueSet.url
	Version      string `json:"version"`      // ValueSet.version
	Name         string `json:"name"`         // ValueSet.name
	Title        string `json:"title"`        // ValueSet.title
	Status       string `json:"status"`       // ValueSet.status
	Experimental *bool  `json:"experimental"` // ValueSet.experimental
	Language     string `json:"language"`     // ValueSet.language
	// Expansion is ValueSet.expansion.
	Expansion struct {
		Extension  []Extension `json:"extension"`
		Identifier string      `json:"identifier"`
		Timestamp  string      `json:"timestamp"`
		Total      *int        `json:"total"`
		Offset     *int        `json:"offset"`
		Parameter  []struct {
			Name         string  `json:"name"`
			ValueString  *string `json:"valueString"`
			ValueCode    *string `json:"valueCode"`
			ValueInteger *int    `json:"valueInteger"`
			ValueBoolean *bool   `json:"valueBoolean"`
			ValueURI     *string `json:"valueUri"`
			ValueDate    *string `json:"valueDateTime"`
		} `json:"parameter"`
		Contains []Entry `json:"contains"`
	} `json:"expansion"`
}

// Codes returns the codes of the expansion in order.
func (e Expanded) Codes() []string {
	codes := []string{}
	for _, c := range e.Expansion.Contains {
		codes = append(codes, c.Code)
	}
	return codes
}

// Parameters returns each expansion.parameter as name=value.
func (e Expanded) Parameters() []string {
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

// Entry is an entry of expansion.contains.
type Entry struct {
	Extension   []Extension      `json:"extension"`   // ValueSet.expansion.contains.extension
	System      string           `json:"system"`      // ValueSet.expansion.contains.system
	Version     string           `json:"version"`     // ValueSet.expansion.contains.version
	Abstract    bool             `json:"abstract"`    // ValueSet.expansion.contains.abstract
	Inactive    bool             `json:"inactive"`    // ValueSet.expansion.contains.inactive
	Code        string           `json:"code"`        // ValueSet.expansion.contains.code
	Display     string           `json:"display"`     // ValueSet.expansion.contains.display
	Designation []map[string]any `json:"designation"` // ValueSet.expansion.contains.designation
	Contains    []Entry          `json:"contains"`    // ValueSet.expansion.contains.contains
}

// Properties returns each property of an entry as code=value.
func (c Entry) Properties() []string {
	list := []string{}
	for _, x := range c.Extension {
		if x.URL == "http://hl7.org/fhir/5.0/StructureDefinition/extension-ValueSet.expansion.contains.property" {
			v := x.Extension[1]
			list = append(list, x.Extension[0].ValueCode+"="+v.ValueCode+v.ValueString+string(v.ValueDecimal)+string(v.ValueInteger)+v.ValueDateTime)
		}
	}
	return list
}

// Extension is an extension with a value of any supported type.
type Extension struct {
	URL           string         `json:"url"`           // Extension.url
	ValueBoolean  bool           `json:"valueBoolean"`  // Extension.valueBoolean
	ValueString   string         `json:"valueString"`   // Extension.valueString
	ValueCode     string         `json:"valueCode"`     // Extension.valueCode
	ValueURI      string         `json:"valueUri"`      // Extension.valueUri
	ValueDecimal  json.Number    `json:"valueDecimal"`  // Extension.valueDecimal
	ValueInteger  json.Number    `json:"valueInteger"`  // Extension.valueInteger
	ValueDateTime string         `json:"valueDateTime"` // Extension.valueDateTime
	ValueCoding   map[string]any `json:"valueCoding"`   // Extension.valueCoding
	Extension     []Extension    `json:"extension"`     // Extension.extension
}

// WantCodes checks the codes of an expansion and their order. want is a space-separated list.
func WantCodes(t testing.TB, got Expanded, want string) {
	t.Helper()
	if codes := strings.Fields(want); !slices.Equal(got.Codes(), codes) {
		t.Errorf("got codes %q, want %q", got.Codes(), codes)
	}
}

// WantEntries checks the entries of an expansion. Each is formatted as code|version display flags.
func WantEntries(t testing.TB, got Expanded, want ...string) {
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

// Outline formats entries as code[display](properties){nested entries}.
func Outline(contains []Entry) string {
	var b strings.Builder
	for i, c := range contains {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(c.Code)
		if c.Display != "" {
			b.WriteString("[" + c.Display + "]")
		}
		if p := c.Properties(); len(p) > 0 {
			b.WriteString("(" + strings.Join(p, ",") + ")")
		}
		for _, d := range c.Designation {
			b.WriteString("<" + d["language"].(string) + ":" + d["value"].(string) + ">")
		}
		if len(c.Contains) > 0 {
			b.WriteString("{" + Outline(c.Contains) + "}")
		}
	}
	return b.String()
}

// FormatCodes formats each code as code=display.
func FormatCodes(codes iter.Seq[expansion.Code]) string {
	var list []string
	for c := range codes {
		list = append(list, c.Code+"="+c.Display)
	}
	return strings.Join(list, ", ")
}
