package fhirapp

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
)

func expandURL(g *gateway, token, query string) *http.Response {
	return g.Get("/fhir/R4/ValueSet/$expand?"+query, token)
}

func TestExpandThroughGateway(t *testing.T) {
	t.Parallel()
	g := exampleGateway(t, nil)
	const gender = "http://hl7.org/fhir/ValueSet/administrative-gender"
	var got expandedValueSet
	response := expandURL(g, g.Token(), "url="+url.QueryEscape(gender))
	if err := json.NewDecoder(response.Body).Decode(&got); err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("status %d, %v", response.StatusCode, err)
	}
	if got.ResourceType != "ValueSet" || got.URL != gender || len(got.Expansion.Contains) != 4 {
		t.Errorf("%+v", got)
	}
	if got.Expansion.Offset == nil || *got.Expansion.Offset != 0 {
		t.Errorf("offset %v, want 0", got.Expansion.Offset)
	}
}

// What is not known here, or not wholly, the next handler is asked for.
func TestExpandAsksNext(t *testing.T) {
	t.Parallel()
	const unknown, incomplete = "url=http://x.example/vs", "url=http://hl7.org/fhir/ValueSet/observation-codes"
	const theirs = `{"resourceType":"ValueSet","status":"active","expansion":{"timestamp":"2026-01-01","contains":[{"code":"theirs"}]}}`
	const refused = `{"resourceType":"OperationOutcome","issue":[{"severity":"error","code":"not-found","diagnostics":"theirs"}]}`
	const missing = "A definition for CodeSystem 'http://loinc.org' could not be found, so the value set cannot be expanded"
	answer := func(status int, body string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/fhir+json")
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		})
	}
	tests := []struct {
		name, query string
		backend     http.Handler
		status      int
		path, want  string // what is where in the answer; "" for the whole body
	}{
		{"unknown, and the backend expands it", unknown, answer(200, theirs), 200, "expansion.contains.0.code", "theirs"},
		{"unknown, and the backend knows it neither", unknown, answer(404, refused), 404, "issue.0.diagnostics", "theirs"},
		{"unknown, and the backend says so in other words", unknown, answer(404, "theirs"), 404, "issue.0.diagnostics", "The FHIR server could not answer."},
		{"unknown, and the backend requires credentials", unknown, answer(401, "theirs"), 502, "issue.0.diagnostics", "The FHIR server requires credentials from the gateway."},
		{"unknown, and the backend answers something else", unknown, answer(200, "theirs"), 502, "issue.0.diagnostics", "the FHIR server gave an answer that is not the FHIR resource asked for; try again, or tell the operator of this server"},
		{"unknown, and the backend is down", unknown, nil, 502, "issue.0.diagnostics", "The FHIR server behind this gateway could not be reached. Try again later."},
		{"incomplete, and the backend expands it", incomplete, answer(200, theirs), 200, "expansion.contains.0.code", "theirs"},
		{"incomplete, and the backend cannot either", incomplete, answer(501, refused), 422, "issue.0.diagnostics", missing},
		{"incomplete, and the backend does not know it", incomplete, answer(404, refused), 422, "issue.0.diagnostics", missing},
		{"incomplete, and the backend is down", incomplete, nil, 422, "issue.0.diagnostics", missing},
		{"known, and the backend is not asked", "url=http://hl7.org/fhir/ValueSet/administrative-gender", answer(200, theirs), 200, "expansion.contains.1.display", "Female"},
		{"wrong, and the backend is not asked", "url=x&count=-1", answer(200, theirs), 400, "issue.0.diagnostics", "the parameter count must be a whole number from 0 up"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := exampleGateway(t, tt.backend)
			response := expandURL(g, g.Token(), tt.query)
			body := gatewaytest.Read(t, response)
			got := any(body)
			if tt.path != "" {
				got = memberOf(t, body, tt.path)
			}
			if response.StatusCode != tt.status || got != tt.want {
				t.Errorf("%d, %v: %s", response.StatusCode, got, body)
			}
		})
	}
}

// A request by POST that is not answered here reaches the next handler whole.
func TestExpandPosted(t *testing.T) {
	t.Parallel()
	g := exampleGateway(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			w.WriteHeader(http.StatusInternalServerError)
		}
		w.Header().Set("Content-Type", "application/fhir+json")
		w.WriteHeader(http.StatusNotFound)
		_, _ = fmt.Fprintf(w, `{"theirs":%s}`, body)
	}))
	token := g.Token()
	for name, tt := range map[string]struct{ path, body, next string }{ // next is what the next handler answers, if it is asked
		"known":               {"/fhir/R4/ValueSet/$expand", `{"resourceType":"Parameters","parameter":[{"name":"url","valueUri":"` + genderSet + `"}]}`, ""},
		"of an instance":      {"/fhir/R4/ValueSet/administrative-gender/$expand", `{"resourceType":"Parameters"}`, `{"theirs":{"resourceType":"Parameters"}}`},
		"unknown":             {"/fhir/R4/ValueSet/$expand", `{"resourceType":"Parameters","parameter":[{"name":"url","valueUri":"http://x.example/vs"}]}`, `{"theirs":{"resourceType":"Parameters","parameter":[{"name":"url","valueUri":"http://x.example/vs"}]}}`},
		"of another instance": {"/fhir/R4/ValueSet/nowhere/$expand", `{"resourceType":"Parameters"}`, `{"theirs":{"resourceType":"Parameters"}}`},
		"another operation":   {"/fhir/R4/ValueSet/$validate-code", "{}", `{"theirs":{}}`},
	} {
		got := gatewaytest.Read(t, g.Ask(http.MethodPost, tt.path, tt.body, "Authorization", "Bearer "+token, "Content-Type", "application/fhir+json"))
		if tt.next == "" {
			checkCodes(t, got, "male", "female", "other", "unknown")
		} else if got != tt.next {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// Alone, without the fhir app and without a next handler.
func TestExpandAlone(t *testing.T) {
	t.Parallel()
	definitions := gatewaytest.WriteFile(t, "vs.json", `{"resourceType":"ValueSet","url":"http://x.example/vs","status":"active",
		"compose":{"include":[{"system":"http://x.example/cs","concept":[{"code":"a","display":"Alpha"}]}]}}`)
	g := newGateway(t, `{
	auto_https disable_redirects
	skip_install_trust
}

https://localhost:8443 {
	fhir_expand {
		fhir_base /r4
		core off
		definitions `+definitions+`
	}
	handle_errors {
		fhir_outcome {
			fhir_base /r4
		}
	}
}
`)
	for _, tt := range []struct {
		query      string
		status     int
		path, want string
	}{
		{"url=http://x.example/vs", 200, "expansion.contains.0.display", "Alpha"},
		{"url=http://hl7.org/fhir/ValueSet/administrative-gender", 404, "issue.0.code", "not-found"},
	} {
		response := g.Get("/r4/ValueSet/$expand?"+tt.query, "")
		if body := gatewaytest.Read(t, response); response.StatusCode != tt.status || memberOf(t, body, tt.path) != tt.want {
			t.Errorf("%s: %d %s", tt.query, response.StatusCode, body)
		}
	}
}

func TestExpandLeavesOthersAlone(t *testing.T) {
	t.Parallel()
	g := exampleGateway(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte(r.Method + " " + r.URL.Path)) }))
	token := g.Token()
	for _, path := range []string{"/fhir/R4", "/fhir/R4/ValueSet", "/fhir/R4/ValueSet/1", "/fhir/R4/CodeSystem/$lookup"} {
		if body := gatewaytest.Read(t, g.Get(path, token)); body != "GET "+path {
			t.Errorf("%s: %s", path, body)
		}
	}
}
