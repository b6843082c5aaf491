package enforce_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/fhirtest"
)

func TestJob(t *testing.T) {
	t.Parallel()
	all := access.Holder{Scope: "system/*.rs"}
	one := access.Holder{Scope: "system/Patient.rs"}
	for _, tt := range []struct {
		name      string
		by, other access.Holder
		method    string
		manifest  string
		status    int
	}{
		{"its status", one, one, "GET", finished, 200},
		{"its status by another token", one, all, "GET", finished, 404},
		{"its status by HEAD", one, one, "HEAD", finished, 200},
		{"its end", one, one, "DELETE", finished, 202},
		{"its end by another token", one, all, "DELETE", finished, 404},
		{"another method", one, one, "POST", finished, 404},
		{"a type that was not asked for", one, one, "GET", strings.Replace(finished, `"Patient"`, `"Observation"`, 1), 403},
		{"any type where all are exported", all, all, "GET", strings.Replace(finished, `"Patient"`, `"Observation"`, 1), 200},
		{"a file elsewhere", one, one, "GET", strings.Replace(finished, fhirtest.Address+"/Binary/patients", "https://store.example/patients", 1), 502},
		{"no manifest", one, one, "GET", `[]`, 502},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var text string
			g := exporting(t, &text)
			address := g.export(tt.by, "$export")
			poll := g.server.Answers["$export-poll-status"]
			g.server.Answers["$export-poll-status"] = func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodGet {
					answering(tt.manifest)(w, r)
					return
				}
				poll(w, r)
			}
			if got := g.send(tt.other, asked(tt.method, address)); got.StatusCode != tt.status {
				t.Errorf("status %d, want %d", got.StatusCode, tt.status)
			}
		})
	}
}

// TestLinksApart checks that a link to one thing is none to another.
func TestLinksApart(t *testing.T) {
	t.Parallel()
	var query string
	g, h := exporting(t, &query), access.Holder{Scope: "system/*.rs"}
	job := g.export(h, "$export")
	var m struct{ Output []struct{ URL string } }
	if err := json.NewDecoder(g.send(h, asked("GET", job)).Body).Decode(&m); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, link string }{
		{"a job as a file", strings.Replace(job, "/_job/", "/_file/", 1)},
		{"a job as a page", strings.Replace(job, "/_job/", "/_page/", 1)},
		{"a file as a job", strings.Replace(m.Output[0].URL, "/_file/", "/_job/", 1)},
		{"something else", "/fhir/R4/_job/61"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := g.send(h, asked("GET", tt.link)); got.StatusCode != http.StatusNotFound {
				t.Errorf("status %d", got.StatusCode)
			}
		})
	}
}

// TestJobRefused checks that no job is taken for begun that the server does not call so.
func TestJobRefused(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		status   int
		location string
		want     int
	}{
		{"answered at once", 200, fhirtest.Address + "/job", 400},
		{"without an address", 202, "", 400},
		{"with an address elsewhere", 202, "https://store.example/job", 502},
		{"too many", 429, "", 429},
		{"failed", 500, "", 500},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var query string
			g := exporting(t, &query)
			g.server.Answers["$export"] = func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Location", tt.location)
				w.WriteHeader(tt.status)
			}
			if got := g.send(access.Holder{Scope: "system/*.rs"}, kickOff("GET $export", "")); got.StatusCode != tt.want {
				t.Errorf("status %d, want %d", got.StatusCode, tt.want)
			}
		})
	}
}

// TestJobAtWork checks that of an answer about a job at work only how far it is comes through.
func TestJobAtWork(t *testing.T) {
	t.Parallel()
	var text string
	g, h := exporting(t, &text), access.Holder{Scope: "system/*.rs"}
	address := g.export(h, "$export")
	g.server.Answers["$export-poll-status"] = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Progress", "half")
		w.Header().Set("Retry-After", "5")
		w.Header().Set("Content-Location", fhirtest.Address+"/$export-poll-status?_jobId=1")
		w.WriteHeader(http.StatusAccepted)
	}
	got := g.send(h, asked("GET", address))
	if got.StatusCode != http.StatusAccepted || got.Header.Get("X-Progress") != "half" || got.Header.Get("Retry-After") != "5" || got.Header.Get("Content-Location") != "" {
		t.Errorf("status %d, %v", got.StatusCode, got.Header)
	}
}

// TestJobFromBeforeRules checks that links of an export that no rule has judged lead nowhere once a rule judges each resource.
func TestJobFromBeforeRules(t *testing.T) {
	t.Parallel()
	for rule, want := range map[string]int{"deny resource.id == 'b'": http.StatusForbidden, "deny request.id == 'b'": http.StatusOK} {
		var query string
		g, h := exporting(t, &query), access.Holder{Scope: "system/*.rs"}
		job := g.export(h, "$export")
		var m struct{ Output []struct{ URL string } }
		if err := json.NewDecoder(g.send(h, asked("GET", job)).Body).Decode(&m); err != nil {
			t.Fatal(err)
		}
		g.withRules(rule)
		for _, link := range []string{job, m.Output[0].URL} {
			if got := g.send(h, asked("GET", link)); got.StatusCode != want {
				t.Errorf("%s: %s: status %d, want %d", rule, link[:40], got.StatusCode, want)
			}
		}
	}
}

// TestManifest checks that the end of an export has links of ours alone, and no member that nobody has judged.
func TestManifest(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, scope, target, rule string
		deleted, errors           int
	}{
		{"of one type", "system/Patient.rs", "Patient/$export?_type=Patient", "allow false", 0, 1},
		{"of all types", "system/*.rs", "$export", "allow false", 1, 1},
		{"where a rule judges each resource", "system/*.rs", "$export", "deny resource.id == 'b'", 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var query string
			g, h := exporting(t, &query).withRules(tt.rule), access.Holder{Scope: tt.scope}
			text, err := io.ReadAll(g.send(h, asked("GET", g.export(h, tt.target))).Body)
			if err != nil || strings.Contains(string(text), "backend.internal") {
				t.Fatalf("%s, %v", text, err)
			}
			var m struct {
				TransactionTime, Request string
				RequiresAccessToken      bool
				Output, Deleted, Error   []struct{ Type, URL string }
			}
			if err := json.Unmarshal(text, &m); err != nil {
				t.Fatal(err)
			}
			if m.TransactionTime != "2026-01-01T00:00:00Z" || m.Request != "https://gateway.example/fhir/R4/"+tt.target || !m.RequiresAccessToken ||
				len(m.Output) != 1 || m.Error == nil || len(m.Error) != tt.errors || len(m.Deleted) != tt.deleted {
				t.Errorf("%s", text)
			}
		})
	}
}
