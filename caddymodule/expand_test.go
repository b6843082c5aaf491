package caddymodule

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	"github.com/caddy-fhir/caddy-fhir/terminology"
)

func expand(g *gateway, token, query string) *http.Response {
	return g.Get("/fhir/R4/ValueSet/$expand?"+query, token)
}

// expansion is as much of the answer as interface.md §2 lists.
type expansion struct {
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

func TestExpandThroughGateway(t *testing.T) {
	g := exampleGateway(t, nil)
	const gender = "http://hl7.org/fhir/ValueSet/administrative-gender"
	var got expansion
	response := expand(g, g.token(), "url="+url.QueryEscape(gender))
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
	const unknown, incomplete = "url=http://x.example/vs", "url=http://hl7.org/fhir/ValueSet/observation-codes"
	const theirs = `{"resourceType":"ValueSet","status":"active","expansion":{"timestamp":"2026-01-01","contains":[{"code":"theirs"}]}}`
	const refused = `{"resourceType":"OperationOutcome","issue":[{"severity":"error","code":"not-found","diagnostics":"theirs"}]}`
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
		body        string
	}{
		{"unknown, and the backend expands it", unknown, answer(200, theirs), 200, "theirs"},
		{"unknown, and the backend knows it neither", unknown, answer(404, refused), 404, "theirs"},
		{"unknown, and the backend says so in other words", unknown, answer(404, "theirs"), 404, "theirs"},
		{"unknown, and the backend lets nobody in", unknown, answer(401, "theirs"), 401, "theirs"},
		{"unknown, and the backend answers something else", unknown, answer(200, "theirs"), 502, "not the FHIR resource"},
		{"unknown, and the backend is down", unknown, nil, 502, "could not be reached"},
		{"incomplete, and the backend expands it", incomplete, answer(200, theirs), 200, "theirs"},
		{"incomplete, and the backend cannot either", incomplete, answer(501, refused), 422, "http://loinc.org"},
		{"incomplete, and the backend does not know it", incomplete, answer(404, refused), 422, "http://loinc.org"},
		{"incomplete, and the backend is down", incomplete, nil, 422, "http://loinc.org"},
		{"known, and the backend is not asked", "url=http://hl7.org/fhir/ValueSet/administrative-gender", answer(200, theirs), 200, "Female"},
		{"wrong, and the backend is not asked", "url=x&count=-1", answer(200, theirs), 400, "count"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := exampleGateway(t, tt.backend)
			response := expand(g, g.token(), tt.query)
			body := gatewaytest.Read(t, response)
			if response.StatusCode != tt.status || !strings.Contains(body, tt.body) {
				t.Errorf("%d: %s", response.StatusCode, body)
			}
		})
	}
}

// A request by POST that is not answered here reaches the next handler whole.
func TestExpandPosted(t *testing.T) {
	g := exampleGateway(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			w.WriteHeader(http.StatusInternalServerError)
		}
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write(append([]byte("theirs: "), body...))
	}))
	token := g.token()
	for name, tt := range map[string]struct{ path, body, want string }{
		"known":               {"/fhir/R4/ValueSet/$expand", `{"resourceType":"Parameters","parameter":[{"name":"url","valueUri":"` + genderSet + `"}]}`, `"code":"female"`},
		"of an instance":      {"/fhir/R4/ValueSet/administrative-gender/$expand", `{"resourceType":"Parameters"}`, `"code":"female"`},
		"unknown":             {"/fhir/R4/ValueSet/$expand", `{"resourceType":"Parameters","parameter":[{"name":"url","valueUri":"http://x.example/vs"}]}`, `theirs: {"resourceType":"Parameters","parameter":[{"name":"url","valueUri":"http://x.example/vs"}]}`},
		"of another instance": {"/fhir/R4/ValueSet/nowhere/$expand", `{"resourceType":"Parameters"}`, "theirs: "},
		"another operation":   {"/fhir/R4/ValueSet/$validate-code", "{}", "theirs: {}"},
		"something deeper":    {"/fhir/R4/ValueSet/a/b/$expand", "{}", "theirs: {}"},
	} {
		r := httptest.NewRequest(http.MethodPost, tt.path, strings.NewReader(tt.body))
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("Content-Type", "application/fhir+json")
		if got := gatewaytest.Read(t, g.Send(r)); !strings.Contains(got, tt.want) {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// The other operations are answered where `operations all` asks for it, and go
// on to the next handler where it does not.
func TestOperations(t *testing.T) {
	theirs := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte("theirs"))
	})
	backend := httptest.NewServer(theirs)
	t.Cleanup(backend.Close)
	t.Setenv("FHIR_BACKEND", strings.TrimPrefix(backend.URL, "http://"))
	plain := newGateway(t, exampleWith(t, "", ""))
	all := newGateway(t, exampleWith(t, "fhir_expand\n", "fhir_expand {\n\t\t\toperations all\n\t\t}\n"))
	token, allToken := plain.token(), all.token()
	const system = "system=http://hl7.org/fhir/administrative-gender"
	for request, want := range map[string]string{
		"CodeSystem/$lookup?" + system + "&code=female":                                       `"Female"`,
		"CodeSystem/$subsumes?" + system + "&codeA=male&codeB=female":                         `"not-subsumed"`,
		"CodeSystem/$validate-code?url=http://hl7.org/fhir/administrative-gender&code=female": `"valueBoolean":true`,
		"ValueSet/$validate-code?url=" + genderSet + "&" + system + "&code=nobody":            `"valueBoolean":false`,
		"ValueSet/administrative-gender/$validate-code?" + system + "&code=female":            `"valueBoolean":true`,
		"CodeSystem/administrative-gender/$lookup?code=female":                                `"Female"`,
		"CodeSystem/administrative-gender/$subsumes?codeA=male&codeB=female":                  `"not-subsumed"`,
		"CodeSystem/administrative-gender/$validate-code?code=female":                         `"valueBoolean":true`,
		"CodeSystem/nowhere/$lookup?code=female":                                              "theirs",
		"metadata?mode=terminology":                                                           `"TerminologyCapabilities"`,
	} {
		if got := gatewaytest.Read(t, plain.Get("/fhir/R4/"+request, token)); got != "theirs" {
			t.Errorf("%s without the option: %.200s", request, got)
		}
		if got := gatewaytest.Read(t, all.Get("/fhir/R4/"+request, allToken)); !strings.Contains(got, want) {
			t.Errorf("%s: %.300s", request, got)
		}
	}
	for _, request := range []string{"metadata", "CodeSystem", "ConceptMap/$closure", "ValueSet/x/$batch-validate-code", "CodeSystem/x/y/$subsumes"} {
		if got := gatewaytest.Read(t, all.Get("/fhir/R4/"+request, allToken)); got != "theirs" {
			t.Errorf("%s: %.200s", request, got)
		}
	}
}

// What there is only one of, a FHIR server's own answer comes before: metadata,
// and the definitions that it has.
func TestAnsweredWhereNoneElseDoes(t *testing.T) {
	g := newGateway(t, `{
	auto_https disable_redirects
	skip_install_trust
}

https://localhost:8443 {
	fhir_expand {
		operations all
	}
	respond /fhir/R4/ValueSet/theirs "theirs"
}
`)
	for path, want := range map[string]string{
		"metadata":                         `"resourceType":"CapabilityStatement"`,
		"metadata?mode=full":               `"fhirVersion":"4.0.1"`,
		"$versions":                        `"4.0"`,
		"ValueSet/administrative-gender":   `"compose"`,
		"ValueSet/theirs":                  "theirs",
		"CodeSystem/administrative-gender": `"concept"`,
		"ValueSet?url=" + genderSet + "&_summary=count":            `"total":1`,
		"CodeSystem?url=http://hl7.org/fhir/administrative-gender": `"code":"female"`,
	} {
		response := g.Get("/fhir/R4/"+path, "")
		if got := gatewaytest.Read(t, response); response.StatusCode != http.StatusOK || !strings.Contains(got, want) {
			t.Errorf("%s: %d %.300s", path, response.StatusCode, got)
		}
	}
	if response := g.Get("/fhir/R4/ValueSet/nowhere", ""); response.StatusCode != http.StatusNotFound {
		t.Errorf("nowhere: %d", response.StatusCode)
	}
}

// What nobody answers is not found, where there is an answer to all else, and no empty 200.
func TestAnsweredByNobody(t *testing.T) {
	caddyfile := func(option string) string {
		return "{\n\tauto_https disable_redirects\n\tskip_install_trust\n}\n\nhttps://localhost:8443 {\n\tfhir_expand {\n\t\t" + option + `
	}
	respond /fhir/R4/Patient/theirs "theirs"
	respond /fhir/R4/Patient/nothing 204
	handle_errors {
		fhir_outcome
	}
}
`
	}
	all, expansions := newGateway(t, caddyfile("operations all")), newGateway(t, caddyfile("core off"))
	ask := func(g *gateway, method, path string) *http.Response {
		return g.Send(httptest.NewRequest(method, "https://localhost:8443"+path, nil))
	}
	for path, want := range map[string]int{
		"Patient": 404, "ConceptMap/$closure": 404, "ValueSet/$unknown": 404, "CodeSystem/x/$find-matches": 404, "$convert": 404, "ValueSet/administrative-gender/_history": 404,
		"Patient/theirs": 200, "Patient/nothing": 204,
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete} {
			response := ask(all, method, "/fhir/R4/"+path)
			got := gatewaytest.Read(t, response)
			if response.StatusCode != want || want == 404 && !strings.Contains(got, `"OperationOutcome"`) {
				t.Errorf("%s %s: %d %s", method, path, response.StatusCode, got)
			}
		}
	}
	if response := ask(all, http.MethodPut, "/fhir/R4/ValueSet/x"); response.StatusCode != http.StatusNotFound {
		t.Errorf("a write: %d", response.StatusCode)
	}
	if response := ask(all, http.MethodGet, "/elsewhere"); response.StatusCode != http.StatusOK {
		t.Errorf("beside the FHIR base: %d", response.StatusCode)
	}
	if response := ask(expansions, http.MethodGet, "/fhir/R4/Patient"); response.StatusCode != http.StatusOK {
		t.Errorf("without the option: %d", response.StatusCode)
	}
}

// The CapabilityStatement says how to be let in, where that is ours to say.
func TestSecurityInMetadata(t *testing.T) {
	g := newGateway(t, exampleWith(t, "fhir_expand\n\t\treverse_proxy {$FHIR_BACKEND:localhost:8080}",
		"fhir_expand {\n\t\t\toperations all\n\t\t}\n\t\treverse_proxy /elsewhere localhost"))
	if got := gatewaytest.Read(t, g.Get("/fhir/R4/metadata", "")); !strings.Contains(got, `"security":{"service":[{"coding":[{`) || !strings.Contains(got, `"SMART-on-FHIR"`) {
		t.Errorf("got %s", got)
	}
}

// Alone, without the fhir app and without a next handler.
func TestExpandAlone(t *testing.T) {
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
		query  string
		status int
		body   string
	}{
		{"url=http://x.example/vs", 200, "Alpha"},
		{"url=http://hl7.org/fhir/ValueSet/administrative-gender", 404, "not-found"},
	} {
		response := g.Get("/r4/ValueSet/$expand?"+tt.query, "")
		if body := gatewaytest.Read(t, response); response.StatusCode != tt.status || !strings.Contains(body, tt.body) {
			t.Errorf("%s: %d %s", tt.query, response.StatusCode, body)
		}
	}
}

func TestExpandLeavesOthersAlone(t *testing.T) {
	g := exampleGateway(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte(r.Method + " " + r.URL.Path)) }))
	token := g.token()
	for _, path := range []string{"/fhir/R4", "/fhir/R4/ValueSet", "/fhir/R4/ValueSet/1", "/fhir/R4/CodeSystem/$lookup"} {
		if body := gatewaytest.Read(t, g.Get(path, token)); body != "GET "+path {
			t.Errorf("%s: %s", path, body)
		}
	}
}

func TestDefinitionsArePooled(t *testing.T) {
	ctx, err := gatewaytest.Provision(t, new(caddy.Config))
	if err != nil {
		t.Fatal(err)
	}
	first, err := loadDefinitions(ctx, terminology.Options{Core: true}, 0)
	if err != nil {
		t.Fatal(err)
	}
	second, err := loadDefinitions(ctx, terminology.Options{Core: true}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if first.pooledLibrary != second.pooledLibrary {
		t.Error("the same definitions were loaded twice")
	}
	for _, d := range []*definitions{first, second} {
		if err := d.release(); err != nil {
			t.Error(err)
		}
	}
}

// What was answered from files as they were is not found when they have changed, and
// whatever limits loading makes other definitions of them.
func TestChangedDefinitionsAreOthers(t *testing.T) {
	file := gatewaytest.WriteFile(t, "vs.json", `{"resourceType":"ValueSet","url":"http://x.example/vs","status":"active"}`)
	o := terminology.Options{Core: true, Definitions: []string{file}}
	before, key := fingerprint(&o), definitionsKey(&o, 0)
	if err := os.WriteFile(file, []byte(`{"resourceType":"ValueSet","url":"http://x.example/vs2","status":"active"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if fingerprint(&o) == before {
		t.Error("a changed file has the same fingerprint")
	}
	if definitionsKey(&o, 0) != key {
		t.Error("a changed file has another place in the pool, where it is not noticed by those who use it")
	}
	for name, o := range map[string]terminology.Options{
		"the core": {}, "import depth": {Core: true, MaxImportDepth: 1}, "gathered": {Core: true, MaxGathered: 1},
		"regex states": {Core: true, MaxRegexStates: 1}, "cached entries": {Core: true, MaxCachedEntries: 1},
	} {
		o.Definitions = []string{file}
		if definitionsKey(&o, 0) == key {
			t.Errorf("%s: makes no difference to the key", name)
		}
	}
}

// A broken file is named, with the reason, and the configuration does not load.
func TestBrokenDefinitions(t *testing.T) {
	file := gatewaytest.WriteFile(t, "broken.json", `{"resourceType":"ValueSet","url":"http://x.example/vs","compose":{"incl`)
	config := gatewaytest.Adapt(t, exampleWith(t, "fhir_expand\n", "fhir_expand {\n\t\t\tdefinitions "+file+"\n\t\t}\n"))
	_, err := gatewaytest.Provision(t, config)
	if err == nil || !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), "EOF") {
		t.Errorf("error %v", err)
	}
}
