package caddymodule

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
)

// definitionStore is a FHIR server that stores definitions and expands none.
type definitionStore struct {
	mu        sync.Mutex
	resources map[string]string // by type and id
	reads     int
}

func newDefinitionStore() *definitionStore { return &definitionStore{resources: map[string]string{}} }

func (s *definitionStore) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Content-Type", "application/fhir+json")
	kind, id, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/fhir/R4/"), "/")
	name := kind + "/" + id
	switch {
	case r.Method == http.MethodPut, r.Method == http.MethodPatch: // by a whole new one
		body, _ := io.ReadAll(r.Body)
		s.resources[name] = string(body)
		_, _ = w.Write(body)
	case r.Method == http.MethodDelete:
		delete(s.resources, name)
		w.WriteHeader(http.StatusNoContent)
	case r.Method == http.MethodGet && id == "":
		s.reads++
		var found []string
		for name, resource := range s.resources {
			var head struct {
				URL string `json:"url"`
			}
			_ = json.Unmarshal([]byte(resource), &head)
			if strings.HasPrefix(name, kind+"/") && head.URL == r.URL.Query().Get("url") {
				found = append(found, `{"resource":`+resource+`,"search":{"mode":"match"}}`)
			}
		}
		_, _ = io.WriteString(w, `{"resourceType":"Bundle","type":"searchset","entry":[`+strings.Join(found, ",")+`]}`)
	default:
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"resourceType":"OperationOutcome","issue":[{"severity":"error","code":"not-found"}]}`)
	}
}

func (g *gateway) write(t *testing.T, method, reference, body string) {
	t.Helper()
	r := httptest.NewRequest(method, "/fhir/R4/"+reference, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/fhir+json")
	if response := g.Send(r); response.StatusCode >= 300 {
		t.Fatalf("%s %s: %d %s", method, reference, response.StatusCode, gatewaytest.Read(t, response))
	}
}

// listing is a value set of codes, and of what others have.
func listing(id, url, codes string, imports ...string) string {
	var includes []string
	for code := range strings.FieldsSeq(codes) {
		includes = append(includes, fmt.Sprintf(`{"system":"http://x.example/cs","concept":[{"code":%q}]}`, code))
	}
	for _, i := range imports {
		includes = append(includes, fmt.Sprintf(`{"valueSet":[%q]}`, i))
	}
	return fmt.Sprintf(`{"resourceType":"ValueSet","id":%q,"url":%q,"status":"active","compose":{"include":[%s]}}`, id, url, strings.Join(includes, ","))
}

func (g *gateway) codesOf(t *testing.T, url string) (codes []string, status string) {
	t.Helper()
	response := g.Get(expandPath(url), "")
	body := gatewaytest.Read(t, response)
	return expandedCodes(t, body), response.Header.Get("Cache-Status")
}

func (g *gateway) wantCodes(t *testing.T, url, want string) {
	t.Helper()
	for range 3 { // made, kept, and from the cache
		if got, _ := g.codesOf(t, url); strings.Join(got, " ") != want {
			t.Errorf("%s: got %q, want %q", url, got, want)
		}
	}
}
