package dispatch

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/terminology"
)

// definitionStore is a FHIR server that stores definitions but cannot expand value sets.
type definitionStore struct {
	mu        sync.Mutex
	resources map[string]string // resources by type and ID
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
	case r.Method == http.MethodPut, r.Method == http.MethodPatch: // PATCH replaces the full resource
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
	case r.Method == http.MethodGet && s.resources[name] != "":
		_, _ = io.WriteString(w, s.resources[name])
	default:
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"resourceType":"OperationOutcome","issue":[{"severity":"error","code":"not-found"}]}`)
	}
}

// fetchOptions returns options that enable fetching definitions from the next handler, or nil if wanted is false.
func fetchOptions(wanted bool) *terminology.FetchedDefinitions {
	if !wanted {
		return nil
	}
	return new(terminology.FetchedDefinitions)
}

func (s *site) write(method, reference, body string) {
	s.t.Helper()
	r := httptest.NewRequest(method, "/fhir/R4/"+reference, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/fhir+json")
	if response := s.send(r); response.StatusCode >= 300 {
		s.t.Fatalf("%s %s: %d %s", method, reference, response.StatusCode, read(s.t, response))
	}
}

// valueSetOf returns the JSON of a value set with space-separated codes and with imports.
func valueSetOf(id, url, codes string, imports ...string) string {
	var includes []string
	for code := range strings.FieldsSeq(codes) {
		includes = append(includes, fmt.Sprintf(`{"system":"http://x.example/cs","concept":[{"code":%q}]}`, code))
	}
	for _, i := range imports {
		includes = append(includes, fmt.Sprintf(`{"valueSet":[%q]}`, i))
	}
	return fmt.Sprintf(`{"resourceType":"ValueSet","id":%q,"url":%q,"status":"active","compose":{"include":[%s]}}`, id, url, strings.Join(includes, ","))
}

func (s *site) codesOf(url string) (codes []string, status string) {
	s.t.Helper()
	response := s.expand(url)
	var got struct {
		Expansion struct {
			Contains []struct {
				Code string `json:"code"`
			} `json:"contains"`
		} `json:"expansion"`
	}
	if err := json.NewDecoder(response.Body).Decode(&got); err != nil {
		s.t.Fatalf("%s: %v", url, err)
	}
	for _, c := range got.Expansion.Contains {
		codes = append(codes, c.Code)
	}
	return codes, response.Header.Get("Cache-Status")
}

func (s *site) wantCodes(url, want string) {
	s.t.Helper()
	for range 3 { // first computed, then stored, then served from the cache
		if got, _ := s.codesOf(url); strings.Join(got, " ") != want {
			s.t.Errorf("%s: got %q, want %q", url, got, want)
		}
	}
}

// TestWriteDuringRequest checks that a response is not stored if its request was sent before a write, because it may be
// outdated. This applies to each source of responses.
func TestWriteDuringRequest(t *testing.T) {
	t.Parallel()
	for _, who := range []string{"next handler", "upstream", "definitions"} {
		t.Run(who, func(t *testing.T) {
			var version atomic.Int64
			version.Store(1)
			arrived, gate := make(chan struct{}, 10), make(chan struct{})
			server := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/fhir+json")
				if r.Method == http.MethodPut {
					version.Add(1)
					return
				}
				body := expansionOf(foreign, fmt.Sprint("v", version.Load()))
				if who == "definitions" {
					body = `{"resourceType":"Bundle","type":"searchset","entry":[{"resource":` + valueSetOf("1", foreign, fmt.Sprint("v", version.Load())) + `}]}`
				}
				arrived <- struct{}{}
				<-gate
				_, _ = io.WriteString(w, body)
			})
			s := settings{fetched: fetchOptions(who == "definitions")}
			if who == "upstream" {
				upstream := httptest.NewServer(server)
				t.Cleanup(upstream.Close)
				s.upstream = upstream.URL + "/r4"
			}
			g := newSite(t, s, server)
			var asking sync.WaitGroup
			asking.Go(func() { g.expand(foreign) })
			<-arrived
			g.write(http.MethodPut, "ValueSet/1", valueSetOf("1", foreign, "v2"))
			close(gate)
			asking.Wait()
			g.wantCodes(foreign, "v2")
		})
	}
}

// TestBackendDefinitions checks that the gateway expands a value set stored at the backend. A write through the gateway takes
// effect immediately, also in value sets that import the written one. Unrelated responses stay cached.
func TestBackendDefinitions(t *testing.T) {
	t.Parallel()
	s := newDefinitionStore()
	g := newSite(t, settings{fetched: new(terminology.FetchedDefinitions)}, s)
	const a, b, c, other = "http://x.example/a", "http://x.example/b", "http://x.example/c", "http://x.example/other"
	g.write(http.MethodPut, "ValueSet/a", valueSetOf("a", a, "1", b))
	g.write(http.MethodPut, "ValueSet/b", valueSetOf("b", b, "2", c))
	g.write(http.MethodPut, "ValueSet/c", valueSetOf("c", c, "3"))
	g.write(http.MethodPut, "ValueSet/other", valueSetOf("other", other, "9"))
	g.wantCodes(a, "1 2 3")
	g.wantCodes(other, "9")
	reads := s.reads

	g.write(http.MethodPut, "ValueSet/c", valueSetOf("c", c, "4"))
	g.wantCodes(a, "1 2 4")
	if _, status := g.codesOf(other); !strings.Contains(status, "hit") {
		t.Errorf("what does not depend on it: %s", status)
	}
	if s.reads != reads+1 {
		t.Errorf("%d definitions fetched after a write of one", s.reads-reads)
	}

	g.write(http.MethodPut, "ValueSet/b", valueSetOf("b", "http://x.example/moved", "5"))
	if response := g.expand(a); response.StatusCode != http.StatusUnprocessableEntity {
		t.Errorf("with an import that has another url now: %d", response.StatusCode)
	}
	g.write(http.MethodPut, "ValueSet/b2", valueSetOf("b2", b, "6"))
	g.wantCodes(a, "1 6")
	g.write(http.MethodDelete, "ValueSet/c", "")
	g.write(http.MethodPut, "ValueSet/b2", valueSetOf("b2", b, "6", c))
	if response := g.expand(a); response.StatusCode != http.StatusUnprocessableEntity {
		t.Errorf("with an import that was deleted: %d", response.StatusCode)
	}
	g.write(http.MethodPut, "ValueSet/c", valueSetOf("c", c, "7"))
	g.wantCodes(a, "1 6 7")
}

// TestDefinitionChangedAtBackend checks that a definition changed without the gateway is fetched again when it expires, even if
// all requests are served from the cache. The change invalidates the dependent responses.
func TestDefinitionChangedAtBackend(t *testing.T) {
	t.Parallel()
	const url, above = "http://x.example/elsewhere", "http://x.example/above"
	s := newDefinitionStore()
	g := newSite(t, settings{fetched: &terminology.FetchedDefinitions{TTL: time.Nanosecond}}, s)
	s.resources["ValueSet/1"], s.resources["ValueSet/2"] = valueSetOf("1", url, "1"), valueSetOf("2", above, "0", url)
	g.wantCodes(above, "0 1")
	if _, status := g.codesOf(above); !strings.Contains(status, "hit") {
		t.Fatal(status)
	}
	s.mu.Lock()
	s.resources["ValueSet/1"] = valueSetOf("1", url, "2")
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for { // waits for the background fetch
		if codes, _ := g.codesOf(above); slices.Equal(codes, []string{"0", "2"}) {
			return
		}
		if ctx.Err() != nil {
			t.Fatal("it is not noticed")
		}
	}
}
