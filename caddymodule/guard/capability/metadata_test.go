package capability_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/capability"
)

// server is the FHIR server.
type server http.HandlerFunc

func (s server) ServeHTTP(w http.ResponseWriter, r *http.Request) error {
	s(w, r)
	return nil
}

// answering answers every request with a text.
func answering(text string) server {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/fhir+json")
		_, _ = io.WriteString(w, text)
	}
}

func TestMetadata(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, query, accept string
		changed             bool
	}{
		{"anything", "", "", true},
		{"anything at all", "", "*/*", true},
		{"JSON", "", "application/fhir+json", true},
		{"JSON or XML", "", "application/fhir+xml;q=0.5, application/fhir+json", true},
		{"a browser", "", "text/html,*/*;q=0.8", true},
		{"XML, rather", "", "application/fhir+xml, */*;q=0.1", true},
		{"JSON by parameter", "_format=json", "application/fhir+xml", true},
		{"terminology", "mode=terminology", "", false},
		{"all of it", "mode=full", "", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := &capability.Metadata{Base: "/fhir/R4"}
			r := httptest.NewRequest(http.MethodGet, "/fhir/R4/metadata?"+tt.query, nil)
			r.Header.Set("Accept", tt.accept)
			w := httptest.NewRecorder()
			var seen string
			next := server(func(w http.ResponseWriter, r *http.Request) {
				seen = r.URL.Path + "?" + r.URL.RawQuery
				answering(statement)(w, r)
			})
			if err := m.ServeHTTP(w, r, next); err != nil || seen != "/fhir/R4/metadata?"+tt.query {
				t.Fatalf("%v, the server saw %s", err, seen)
			}
			if changed := strings.Contains(w.Body.String(), "SMART-on-FHIR"); changed != tt.changed || !changed && w.Body.String() != statement {
				t.Errorf("changed: %t", changed)
			}
		})
	}
}

// TestMetadataPasses checks that what is no statement comes through as it is.
func TestMetadataPasses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		status int
		body   string
	}{
		{"another resource", 200, `{"resourceType":"TerminologyCapabilities"}`},
		{"no resource", 200, `{"status":"up"}`},
		{"an error", 500, statement},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := httptest.NewRecorder()
			next := server(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/fhir+json")
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.body)
			})
			err := new(capability.Metadata).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metadata", nil), next)
			if err != nil || w.Code != tt.status || w.Body.String() != tt.body {
				t.Errorf("%v, status %d, %s", err, w.Code, w.Body)
			}
		})
	}
}

func TestMetadataRefused(t *testing.T) {
	t.Parallel()
	m := &capability.Metadata{Base: "/fhir/R4", Limit: 100}
	for _, tt := range []struct {
		name, query string
		status      int
	}{{"too long", "", 502}, {"a page of the server's", "_getpages=1", 403}, {"an ambiguous query", "a=%zz", 400}, {"a search", "_type=Patient", 403}, {"a search, in XML", "_type=Patient&_format=xml", 403}, {"XML", "_format=xml", 406}, {"Turtle", "_format=ttl&_pretty=true", 406}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := httptest.NewRequest(http.MethodGet, "/fhir/R4/metadata?"+tt.query, nil)
			err := m.ServeHTTP(httptest.NewRecorder(), r, answering(statement))
			if refused, ok := errors.AsType[*guard.Error](err); !ok || refused.Status != tt.status {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestMetadataIsNoSearch checks that a server which takes metadata for a type shows nothing of what it finds.
func TestMetadataIsNoSearch(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`{"resourceType":"Bundle","type":"searchset"}`, `{"resourceType":"Patient","id":"a"}`, `{"resourceType":"CapabilityStatement"`, `{"resourcetype":"Patient"}`, `{"entry":[]}`, `[{}]`} {
		err := new(capability.Metadata).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/metadata", nil), answering(text))
		if refused, ok := errors.AsType[*guard.Error](err); !ok || refused.Status != http.StatusBadGateway {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestMetadataETag checks that the ETag is that of the changed statement, and stays while the statement does.
func TestMetadataETag(t *testing.T) {
	t.Parallel()
	m := &capability.Metadata{Base: "/fhir/R4"}
	get := func(name, etag string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodGet, "/fhir/R4/metadata", nil)
		r.Header.Set("If-None-Match", etag)
		w := httptest.NewRecorder()
		if err := m.ServeHTTP(w, r, server(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("If-None-Match") != "" {
				t.Error("the server was asked for its own ETag")
			}
			w.Header().Set("Etag", `W/"server"`)
			answering(strings.Replace(statement, "RestServer", name, 1))(w, r)
		})); err != nil {
			t.Fatal(err)
		}
		return w
	}
	first := get("a", "").Header().Get("Etag")
	if first == "" || first == `W/"server"` {
		t.Fatalf("ETag %q", first)
	}
	if got := get("a", first); got.Code != http.StatusNotModified {
		t.Errorf("status %d", got.Code)
	}
	for n := range 10 {
		if got := get(strconv.Itoa(n), first); got.Code != http.StatusOK || !strings.Contains(got.Body.String(), `"name": "`+strconv.Itoa(n)+`"`) {
			t.Errorf("another statement: status %d", got.Code)
		}
	}
	if got := get("a", first); got.Code != http.StatusNotModified {
		t.Errorf("made again: status %d", got.Code)
	}
}
