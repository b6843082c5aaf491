package fhirapp

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
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

// A request for a value set that is not loaded, or is only partially loaded, is forwarded to the next handler.
func TestExpandForwardsToNext(t *testing.T) {
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
		path, want  string // want is the expected value at path in the response; if path is "", it is the entire body
	}{
		{"unknown, and the backend expands it", unknown, answer(200, theirs), 200, "expansion.contains.0.code", "theirs"},
		{"unknown, and the backend knows it neither", unknown, answer(404, refused), 404, "issue.0.diagnostics", "theirs"},
		{"unknown, with the backend's error in another format", unknown, answer(404, "theirs"), 404, "issue.0.diagnostics", "The FHIR server failed to process the request."},
		{"unknown, and the backend requires credentials", unknown, answer(401, "theirs"), 502, "issue.0.diagnostics", "The FHIR server requires credentials from the gateway."},
		{"unknown, and the backend answers something else", unknown, answer(200, "theirs"), 502, "issue.0.diagnostics", "the FHIR server did not return the requested FHIR resource; try again, or contact the operator of this server"},
		{"unknown, and the backend is down", unknown, nil, 502, "issue.0.diagnostics", "The FHIR server behind this gateway is unreachable. Try again later."},
		{"incomplete, and the backend expands it", incomplete, answer(200, theirs), 200, "expansion.contains.0.code", "theirs"},
		{"incomplete, and the backend cannot either", incomplete, answer(501, refused), 422, "issue.0.diagnostics", missing},
		{"incomplete, and the backend does not know it", incomplete, answer(404, refused), 422, "issue.0.diagnostics", missing},
		{"incomplete, and the backend is down", incomplete, nil, 422, "issue.0.diagnostics", missing},
		{"loaded, without a backend request", "url=http://hl7.org/fhir/ValueSet/administrative-gender", answer(200, theirs), 200, "expansion.contains.1.display", "Female"},
		{"invalid, without a backend request", "url=x&count=-1", answer(200, theirs), 400, "issue.0.diagnostics", "the parameter count must be a nonnegative integer"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := exampleGateway(t, tt.backend)
			response := expandURL(g, g.Token(), tt.query)
			body := gatewaytest.ReadBody(t, response)
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

// A POST request that fhir_expand does not handle reaches the next handler unchanged.
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
	for name, tt := range map[string]struct{ path, body, next string }{ // next is the response from the next handler; "" means that the handler is not called
		"known":               {"/fhir/R4/ValueSet/$expand", `{"resourceType":"Parameters","parameter":[{"name":"url","valueUri":"` + genderSet + `"}]}`, ""},
		"of an instance":      {"/fhir/R4/ValueSet/administrative-gender/$expand", `{"resourceType":"Parameters"}`, `{"theirs":{"resourceType":"Parameters"}}`},
		"unknown":             {"/fhir/R4/ValueSet/$expand", `{"resourceType":"Parameters","parameter":[{"name":"url","valueUri":"http://x.example/vs"}]}`, `{"theirs":{"resourceType":"Parameters","parameter":[{"name":"url","valueUri":"http://x.example/vs"}]}}`},
		"of another instance": {"/fhir/R4/ValueSet/nowhere/$expand", `{"resourceType":"Parameters"}`, `{"theirs":{"resourceType":"Parameters"}}`},
		"another operation":   {"/fhir/R4/ValueSet/$validate-code", "{}", `{"theirs":{}}`},
	} {
		got := gatewaytest.ReadBody(t, g.Do(http.MethodPost, tt.path, tt.body, "Authorization", "Bearer "+token, "Content-Type", "application/fhir+json"))
		if tt.next == "" {
			checkCodes(t, got, "male", "female", "other", "unknown")
		} else if got != tt.next {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// fhir_expand works without the fhir app and without a next handler.
func TestExpandWithoutApp(t *testing.T) {
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
		if body := gatewaytest.ReadBody(t, response); response.StatusCode != tt.status || memberOf(t, body, tt.path) != tt.want {
			t.Errorf("%s: %d %s", tt.query, response.StatusCode, body)
		}
	}
}

func TestExpandForwardsOtherRequests(t *testing.T) {
	t.Parallel()
	g := exampleGateway(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte(r.Method + " " + r.URL.Path)) }))
	token := g.Token()
	for _, path := range []string{"/fhir/R4", "/fhir/R4/ValueSet", "/fhir/R4/ValueSet/1", "/fhir/R4/CodeSystem/$lookup"} {
		if body := gatewaytest.ReadBody(t, g.Get(path, token)); body != "GET "+path {
			t.Errorf("%s: %s", path, body)
		}
	}
}

// expandedValueSet contains the response members listed in docs/evidence/interface.md §2.
type expandedValueSet struct {
	ResourceType string `json:"resourceType"`
	URL          string `json:"url"`
	Expansion    struct {
		Offset   *int `json:"offset"`
		Contains []struct {
			System  string `json:"system"`
			Code    string `json:"code"`
			Display string `json:"display"`
		} `json:"contains"`
	} `json:"expansion"`
}

// expandedCodes decodes an expansion and returns its codes.
func expandedCodes(t *testing.T, body string) (codes []string) {
	t.Helper()
	var got expandedValueSet
	if err := json.Unmarshal([]byte(body), &got); err != nil || got.ResourceType != "ValueSet" {
		t.Fatalf("no expansion, %v: %s", err, body)
	}
	for _, c := range got.Expansion.Contains {
		codes = append(codes, c.Code)
	}
	return codes
}

// checkCodes compares the codes of an expansion with the expected codes.
func checkCodes(t *testing.T, body string, want ...string) {
	t.Helper()
	if got := expandedCodes(t, body); !slices.Equal(got, want) {
		t.Errorf("codes %q, want %q", got, want)
	}
}

// memberOf returns a member of a JSON document by its path of names and indices, such as "issue.0.code". It returns nil for a
// missing member.
func memberOf(t *testing.T, document, path string) (member any) {
	t.Helper()
	if err := json.Unmarshal([]byte(document), &member); err != nil {
		t.Fatalf("%v: %.300s", err, document)
	}
	for step := range strings.SplitSeq(path, ".") {
		switch of := member.(type) {
		case map[string]any:
			member = of[step]
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i >= len(of) {
				return nil
			}
			member = of[i]
		default:
			return nil
		}
	}
	return member
}

// parameterIn returns the value of a parameter by the path of the parameter's name and the value's name, such as
// "result.valueBoolean".
func parameterIn(t *testing.T, body, path string) any {
	t.Helper()
	name, value, _ := strings.Cut(path, ".")
	parameters, _ := memberOf(t, body, "parameter").([]any)
	for _, p := range parameters {
		if parameter, ok := p.(map[string]any); ok && parameter["name"] == name {
			return parameter[value]
		}
	}
	return nil
}

const (
	genderSet  = "http://hl7.org/fhir/ValueSet/administrative-gender"
	maritalSet = "http://hl7.org/fhir/ValueSet/marital-status"
)

// expandDecoded expands a value set and returns the response as decoded JSON.
func expandDecoded(t *testing.T, g *gateway, token string, parameters url.Values) map[string]any {
	t.Helper()
	response := g.Get("/fhir/R4/ValueSet/$expand?"+parameters.Encode(), token, "Content-Type", "application/fhir+json")
	var answer map[string]any
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("status %d: %v %v", response.StatusCode, answer, err)
	}
	return answer
}

func entries(answer map[string]any) []map[string]any {
	contains, _ := answer["expansion"].(map[string]any)["contains"].([]any)
	list := make([]map[string]any, len(contains))
	for i, c := range contains {
		list[i] = c.(map[string]any)
	}
	return list
}

func displays(answer map[string]any) string {
	var list []string
	for _, e := range entries(answer) {
		list = append(list, e["display"].(string))
	}
	return strings.Join(list, ", ")
}

// Each row is a case from the description of $expand in docs/evidence/interface.md (§2 and §4.2). The requests pass through the
// complete gateway.
func TestInterfaceExpand(t *testing.T) {
	t.Parallel()
	g := exampleGateway(t, nil)
	token := g.Token()
	ask := func(t *testing.T, pairs ...string) map[string]any {
		q := url.Values{}
		for i := 0; i < len(pairs); i += 2 {
			q.Set(pairs[i], pairs[i+1])
		}
		return expandDecoded(t, g, token, q)
	}
	rows := map[string]func(t *testing.T){
		"resourceType: always the value ValueSet": func(t *testing.T) {
			if got := ask(t, "url", genderSet)["resourceType"]; got != "ValueSet" {
				t.Errorf("%v", got)
			}
		},
		"url: the URL of the expanded value set; echoes the requested url": func(t *testing.T) {
			if got := ask(t, "url", maritalSet)["url"]; got != maritalSet {
				t.Errorf("%v", got)
			}
		},
		"expansion.offset: 0 when no offset is requested": func(t *testing.T) {
			if got := ask(t, "url", genderSet)["expansion"].(map[string]any)["offset"]; got != 0.0 {
				t.Errorf("%v", got)
			}
		},
		"expansion.contains: the matching entries": func(t *testing.T) {
			if got := displays(ask(t, "url", genderSet)); got != "Male, Female, Other, Unknown" {
				t.Errorf("%v", got)
			}
		},
		"expansion.contains[]: system, code, display": func(t *testing.T) {
			want := map[string]any{"system": "http://hl7.org/fhir/administrative-gender", "code": "male", "display": "Male"}
			if got := entries(ask(t, "url", genderSet))[0]; !maps.Equal(got, want) {
				t.Errorf("%v", got)
			}
		},
		"filter: only matching entries are returned": func(t *testing.T) {
			if got := displays(ask(t, "url", maritalSet, "filter", "married")); got != "Married, Never Married" {
				t.Errorf("%v", got)
			}
		},
		"offset: at which the expansion starts": func(t *testing.T) {
			answer := ask(t, "url", genderSet, "offset", "2")
			if got := displays(answer); got != "Other, Unknown" || answer["expansion"].(map[string]any)["offset"] != 2.0 {
				t.Errorf("%v", answer)
			}
		},
		"count: number of results to return": func(t *testing.T) {
			if got := displays(ask(t, "url", genderSet, "offset", "1", "count", "2")); got != "Female, Other" {
				t.Errorf("%v", got)
			}
		},
		"rule 1: without filter, all entries of the value set are listed": func(t *testing.T) {
			if answer := ask(t, "url", maritalSet); float64(len(entries(answer))) != answer["expansion"].(map[string]any)["total"] {
				t.Errorf("%v", answer)
			}
		},
		"rule 2: a one-letter filter returned only the entry whose display text contains it": func(t *testing.T) {
			if got := displays(ask(t, "url", genderSet, "filter", "k")); got != "Unknown" {
				t.Errorf("%v", got)
			}
		},
		"rule 3: the operation keeps no state": func(t *testing.T) {
			first := ask(t, "url", genderSet)
			ask(t, "url", genderSet, "filter", "f")
			if again := ask(t, "url", genderSet); displays(first) != displays(again) {
				t.Errorf("%v, then %v", first, again)
			}
		},
		"rule 4: at run time, to check a value while a user edits a form": func(t *testing.T) {
			for typed, want := range map[string]string{"n": "Never Married, Annulled, Interlocutory, unmarried, Domestic partner, unknown", "ne": "Never Married", "nev mar": "Never Married"} {
				if got := displays(ask(t, "url", maritalSet, "filter", typed)); got != want {
					t.Errorf("%q: %v", typed, got)
				}
			}
		},
	}
	for name, row := range rows {
		t.Run(name, row)
	}
}

// Definitions that cannot be loaded are logged separately, in addition to Caddy's final error.
func TestMissingDefinitionsAreNamedFirst(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ definitions, want string }{
		"missing": {"/nonesuch/*.json", "definitions /nonesuch/*.json: file does not exist"},
		"broken":  {gatewaytest.WriteFile(t, "broken.json", `{"resourceType":`), `broken.json: `},
	} {
		t.Run(name, func(t *testing.T) {
			text := filepath.Join(t.TempDir(), "text.log")
			config := gatewaytest.Adapt(t, "{\n\tlog {\n\t\toutput file "+text+"\n\t}\n}\n\nhttps://localhost:8443 {\n\tfhir_expand {\n\t\tcore off\n\t\tdefinitions "+tt.definitions+"\n\t}\n}\n")
			if _, err := gatewaytest.Provision(t, config); err == nil {
				t.Fatal("loaded")
			}
			failed := func(line map[string]any) bool { return line["msg"] == "loading definitions failed" }
			lines := logLines(t, text)
			i := slices.IndexFunc(lines, failed)
			if i < 0 {
				t.Fatalf("logged %v", lines)
			}
			if got, _ := lines[i]["error"].(string); !strings.Contains(got, tt.want) {
				t.Errorf("error %q, want %q", got, tt.want)
			}
		})
	}
}

// An invalid definitions file prevents the configuration from loading. The error contains the file and the reason.
func TestBrokenDefinitions(t *testing.T) {
	t.Parallel()
	file := gatewaytest.WriteFile(t, "broken.json", `{"resourceType":"ValueSet","url":"http://x.example/vs","compose":{"incl`)
	config := gatewaytest.Adapt(t, gatewaytest.ExampleText(t, "fhir_expand\n", "fhir_expand {\n\t\t\tdefinitions "+file+"\n\t\t}\n"))
	_, err := gatewaytest.Provision(t, config)
	if err == nil || !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), "EOF") {
		t.Errorf("error %v", err)
	}
}

// An invalid weights file prevents the configuration from loading. The error contains the line.
func TestBrokenWeights(t *testing.T) {
	t.Parallel()
	file := gatewaytest.WriteFile(t, "counts.csv", "#! http://x.example/cs\nA,3\nB,three\n")
	config := gatewaytest.Adapt(t, gatewaytest.ExampleText(t, "fhir_expand\n", "fhir_expand {\n\t\t\tweights "+file+"\n\t\t}\n"))
	_, err := gatewaytest.Provision(t, config)
	if err == nil || !strings.Contains(err.Error(), file+": line 3: ") {
		t.Errorf("error %v", err)
	}
}

// Definitions are fetched through the next handlers, with no user's credentials.
func TestDefinitionsOfBackend(t *testing.T) {
	var searches, leaks atomic.Int64
	g := frontGateway(t, "definitions backend", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			leaks.Add(1)
		}
		if r.Host != "localhost:8443" || r.URL.Path != "/fhir/R4/ValueSet" {
			t.Errorf("%s %s%s", r.Method, r.Host, r.URL)
		}
		searches.Add(1)
		w.Header().Set("Content-Type", "application/fhir+json")
		_, _ = io.WriteString(w, `{"resourceType":"Bundle","type":"searchset","entry":[{"resource":`+valueSetOf("1", foreign, "1")+`}]}`)
	}))
	for range 3 {
		checkCodes(t, gatewaytest.ReadBody(t, g.expandAs(foreign, "Bearer user")), "1")
	}
	if searches.Load() != 1 || leaks.Load() != 0 {
		t.Errorf("%d searches, %d with a user's credentials", searches.Load(), leaks.Load())
	}
}
