package enforce_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
)

func TestExportFile(t *testing.T) {
	t.Parallel()
	all, one := access.Holder{Scope: "system/*.rs"}, access.Holder{Scope: "system/Patient.rs"}
	ofAll := strings.ReplaceAll(lines, "\n\n", "\n") + "\n"
	const patients = "{\"resourceType\":\"Patient\",\"id\":\"a\"}\n{\"resourceType\":\"Patient\",\"id\":\"b\"}\n"
	for _, tt := range []struct {
		name      string
		by, other access.Holder
		accept    string
		method    string
		want      string
		status    int
	}{
		{"of one type", one, one, "", "GET", patients, 200},
		{"of one type, in another format", one, one, "text/plain", "GET", patients, 200},
		{"of all types", all, all, "", "GET", ofAll, 200},
		{"of all types, in another format", all, all, "text/plain", "GET", ofAll, 200},
		{"of one type, in the format of resources", one, one, "application/fhir+json", "GET", patients, 200},
		{"of all types, in the format of resources", all, all, "application/fhir+json", "GET", ofAll, 200},
		{"of all types, in XML", all, all, "application/fhir+xml", "GET", ofAll, 200},
		{"of all types, as libraries ask", all, all, "application/json, text/plain, */*", "GET", ofAll, 200},
		{"of all types, as browsers ask", all, all, "text/html, application/xml;q=0.9, */*;q=0.8", "GET", ofAll, 200},
		{"by another token", one, all, "", "GET", "", 404},
		{"by HEAD", one, one, "", "HEAD", "", 200},
		{"by another method", one, one, "", "POST", "", 404},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var query string
			g := exporting(t, &query)
			var m struct{ Output []struct{ URL string } }
			if err := json.NewDecoder(g.send(tt.by, asked("GET", g.export(tt.by, "$export"))).Body).Decode(&m); err != nil {
				t.Fatal(err)
			}
			r := asked(tt.method, m.Output[0].URL)
			if tt.accept != "" {
				r.Header.Set("Accept", tt.accept)
			}
			got := g.send(tt.other, r)
			text, err := io.ReadAll(got.Body)
			if err != nil || got.StatusCode != tt.status || tt.status == 200 && string(text) != tt.want {
				t.Errorf("status %d, %q, %v", got.StatusCode, text, err)
			}
			if tt.status == 200 && got.Header.Get("Content-Type") != "application/fhir+ndjson" {
				t.Errorf("Content-Type %q", got.Header.Get("Content-Type"))
			}
		})
	}
}

// TestExportFileWithheld checks that what is no file of the type is not passed.
func TestExportFileWithheld(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		answer http.HandlerFunc
		status int
	}{
		{"in XML", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `<Binary xmlns="http://hl7.org/fhir"/>`)
		}, 502},
		{"an array", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `[]`) }, 502},
		{"a line without a type", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"id":"a"}`) }, 502},
		{"a Binary of something else", answering(wrapped("text/plain", lines)), 502},
		{"a Binary of something that is none", answering(wrapped("ndjson", "<Patient/>")), 502},
		{"gone", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) }, 404},
		{"failed", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }, 503},
		{"in JSON", answering(`{"resourceType":"Binary"}`), 502},
		{"compressed", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/fhir+ndjson")
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = io.WriteString(w, lines)
		}, 502},
		{"with a line that is too long", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/fhir+ndjson")
			if _, err := io.WriteString(w, `{"resourceType":"Patient","id":"a","language":"`+strings.Repeat("a", 3000)+`"}`); err == nil {
				_, _ = io.WriteString(w, "\n"+lines)
			}
		}, 502},
		{"nothing", func(http.ResponseWriter, *http.Request) {}, 502},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var query string
			for _, scope := range []string{"system/Patient.rs", "system/*.rs"} {
				g, h := exporting(t, &query), access.Holder{Scope: scope}
				var m struct{ Output []struct{ URL string } }
				if err := json.NewDecoder(g.send(h, asked("GET", g.export(h, "$export"))).Body).Decode(&m); err != nil {
					t.Fatal(err)
				}
				g.server.Answers["Binary/patients"] = tt.answer
				g.Limits.Answer = 2000
				got := g.send(h, asked("GET", m.Output[0].URL))
				if text, _ := io.ReadAll(got.Body); got.StatusCode != tt.status || strings.Contains(string(text), "resourceType") {
					t.Errorf("%s: status %d, want %d: %s", scope, got.StatusCode, tt.status, text)
				}
			}
		})
	}
}

// TestExportFileFormats checks that a file is NDJSON, however the FHIR server keeps or sends it.
func TestExportFileFormats(t *testing.T) {
	t.Parallel()
	content := strings.ReplaceAll(lines, "\n\n", "\n") + "\n"
	for _, contentType := range []string{"application/fhir+ndjson", "application/ndjson", "ndjson"} {
		for name, answer := range map[string]http.HandlerFunc{
			"as its content": keptFile(contentType, content), "as a Binary in JSON": answering(wrapped(contentType, content)),
		} {
			t.Run(contentType+" "+name, func(t *testing.T) {
				t.Parallel()
				var query string
				g, h := exporting(t, &query), access.Holder{Scope: "system/*.rs"}
				g.server.Answers["Binary/patients"] = answer
				var m struct{ Output []struct{ URL string } }
				if err := json.NewDecoder(g.send(h, asked("GET", g.export(h, "$export?_outputFormat="+url.QueryEscape(contentType)))).Body).Decode(&m); err != nil {
					t.Fatal(err)
				}
				got := g.send(h, asked("GET", m.Output[0].URL))
				if text, _ := io.ReadAll(got.Body); got.StatusCode != http.StatusOK || string(text) != content || got.Header.Get("Content-Type") != "application/fhir+ndjson" {
					t.Errorf("status %d, %s: %s", got.StatusCode, got.Header.Get("Content-Type"), text)
				}
			})
		}
	}
}

// TestExportLenient checks that a format that is not supported is ignored if the client accepts that.
func TestExportLenient(t *testing.T) {
	t.Parallel()
	query := "-"
	r := kickOff("GET $export?_outputFormat=text/csv", "")
	r.Header.Set("Prefer", "respond-async, handling=lenient")
	if got := exporting(t, &query).send(access.Holder{Scope: "system/*.rs"}, r); got.StatusCode != http.StatusAccepted || query != "" {
		t.Errorf("status %d, the server was asked %q", got.StatusCode, query)
	}
}

// TestExportFileCut checks that a file that turns out to be none in its middle is broken off, and not taken for complete.
func TestExportFileCut(t *testing.T) {
	t.Parallel()
	var query string
	g, h := exporting(t, &query), access.Holder{Scope: "system/*.rs"}
	g.server.Answers["Binary/patients"] = func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "{\"resourceType\":\"Patient\",\"id\":\"a\"}\n<html>\n")
	}
	var m struct{ Output []struct{ URL string } }
	if err := json.NewDecoder(g.send(h, asked("GET", g.export(h, "$export"))).Body).Decode(&m); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if got, _ := recover().(error); !errors.Is(got, http.ErrAbortHandler) {
			t.Errorf("the answer ended with %v", got)
		}
	}()
	g.send(h, asked("GET", m.Output[0].URL))
}
