package caddymodule

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-fhir/caddy-fhir/terminology/remote"
)

// scripted is a FHIR server that answers $expand as it is told to, and counts.
type scripted struct {
	mode  atomic.Value // a string
	asked atomic.Int64
	gate  chan struct{} // nil: answers at once
}

func newScripted(mode string) *scripted {
	s := new(scripted)
	s.mode.Store(mode)
	return s
}

// expansionOf is an expansion with one code.
func expansionOf(url, code string) string {
	return fmt.Sprintf(`{"resourceType":"ValueSet","url":%q,"status":"active","expansion":{"timestamp":"2026-01-01","total":1,"contains":[{"system":"http://x.example/cs","code":%q}]}}`, url, code)
}

func (s *scripted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.asked.Add(1)
	if s.gate != nil {
		<-s.gate
	}
	_, _ = io.Copy(io.Discard, r.Body)
	whole := expansionOf(r.URL.Query().Get("url"), "theirs")
	header := w.Header()
	header.Set("Content-Type", "application/fhir+json")
	switch mode := s.mode.Load(); mode {
	case "good":
		_, _ = io.WriteString(w, whole)
	case "good at once only":
		header.Set("Cache-Control", "max-age=0")
		_, _ = io.WriteString(w, whole)
	case "killed":
		panic(http.ErrAbortHandler)
	case "hanging":
		<-r.Context().Done()
	case "garbage":
		_, _ = io.WriteString(w, `{"resourceType":"ValueSet","expansion":{`)
	case "a page":
		header.Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "<html>Welcome</html>")
	case "another resource":
		_, _ = io.WriteString(w, `{"resourceType":"Bundle"}`)
	case "500":
		w.WriteHeader(http.StatusInternalServerError)
	case "gzip bomb":
		header.Set("Content-Encoding", "gzip")
		_, _ = w.Write(gzipBomb())
	case "hints and trailers":
		header.Set("Link", "</style.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		header.Del("Link")
		header.Set("Trailer", "X-Checksum")
		_, _ = io.WriteString(w, whole)
		header.Set("X-Checksum", "1")
	case "half a body":
		header.Set("Content-Length", fmt.Sprint(len(whole)))
		_, _ = io.WriteString(w, whole[:len(whole)/2])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	default:
		panic(fmt.Sprint("no such mode: ", mode))
	}
}

// gzipBomb is an expansion of 32 MiB, twice of what is held of an answer.
var gzipBomb = sync.OnceValue(func() []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = io.WriteString(w, `{"resourceType":"ValueSet","expansion":{},"x":"`)
	for range 32 {
		_, _ = w.Write(bytes.Repeat([]byte("x"), 1<<20))
	}
	_, _ = io.WriteString(w, `"}`)
	_ = w.Close()
	return b.Bytes()
})

// frontGateway is fhir_expand with some settings before a backend, without a guard.
func frontGateway(t testing.TB, settings string, backend http.Handler) *gateway {
	t.Helper()
	server := httptest.NewServer(backend)
	t.Cleanup(server.Close)
	return newGateway(t, frontCaddyfile(settings, strings.TrimPrefix(server.URL, "http://")))
}

func frontCaddyfile(settings, backend string) string {
	return `{
	auto_https disable_redirects
	skip_install_trust
}

https://localhost:8443 {
	fhir_expand {
		` + strings.ReplaceAll(settings, "\n", "\n\t\t") + `
	}
	reverse_proxy ` + backend + `
	handle_errors {
		fhir_outcome
	}
}
`
}

func expandPath(url string) string { return "/fhir/R4/ValueSet/$expand?url=" + url }

// askFor expands a value set for whom credentials stand.
func (g *gateway) askFor(url, credentials string) *http.Response {
	r := httptest.NewRequest(http.MethodGet, expandPath(url), nil)
	if credentials != "" {
		r.Header.Set("Authorization", credentials)
	}
	return g.send(r)
}

const foreign = "http://x.example/vs"

// terminologyServer is one that upstream settings can name.
func terminologyServer(t testing.TB, handler http.Handler) string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.URL + "/r4"
}

// However a server fails, the client is given the answer from before where that is
// allowed, or else is told what failed; and what failed is not kept.
func TestServerFails(t *testing.T) {
	statuses := map[string]int{
		"killed": 502, "hanging": 504, "garbage": 502, "a page": 502, "another resource": 502, "500": 502, "half a body": 502,
		"gzip bomb": 502,
	}
	for _, who := range []string{"next handler", "upstream"} {
		for mode, status := range statuses {
			for _, stale := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s %s stale %t", who, mode, stale), func(t *testing.T) {
					t.Parallel() // those that hang wait for their time-outs
					server := newScripted("good at once only")
					settings, backend := "timeout 1m", http.Handler(server)
					if mode == "hanging" { // long enough for the good answers on a machine that is busy
						settings = "timeout 1s"
					}
					if who == "upstream" {
						settings = "upstream " + terminologyServer(t, server) + " {\n\t" + settings + "\n}"
						backend = http.NotFoundHandler()
					}
					settings += "\nfailure_ttl off"
					if stale {
						settings += "\nstale 24h"
					}
					g := frontGateway(t, settings, backend)
					first := read(t, g.askFor(foreign, ""))
					if !strings.Contains(first, "theirs") {
						t.Fatal(first)
					}
					server.mode.Store(mode)
					response := g.askFor(foreign, "")
					cacheStatus := response.Header.Get("Cache-Status")
					if stale {
						if got := read(t, response); response.StatusCode != http.StatusOK || got != first || !strings.Contains(cacheStatus, "stale-if-error") || response.Header.Get("Age") == "" {
							t.Errorf("%d %s: %s", response.StatusCode, cacheStatus, got)
						}
					} else if g.outcome(response); response.StatusCode != status {
						t.Errorf("%d, want %d", response.StatusCode, status)
					}
					another := g.askFor(foreign+"2", "")
					if g.outcome(another); another.StatusCode != status {
						t.Errorf("another: %d, want %d", another.StatusCode, status)
					}
					server.mode.Store("good")
					for _, url := range []string{foreign, foreign + "2"} {
						if got := read(t, g.askFor(url, "")); !strings.Contains(got, "theirs") {
							t.Errorf("when it is good again: %s", got)
						}
					}
				})
			}
		}
	}
}

// What comes before an answer and after it is no part of it, and no harm.
func TestHintsAndTrailers(t *testing.T) {
	for _, who := range []string{"next handler", "upstream"} {
		server := newScripted("hints and trailers")
		settings, backend := "ttl 1h", http.Handler(server)
		if who == "upstream" {
			settings, backend = "upstream "+terminologyServer(t, server), http.NotFoundHandler()
		}
		g := frontGateway(t, settings, backend)
		for range 3 {
			response := g.askFor(foreign, "")
			if got := read(t, response); response.StatusCode != http.StatusOK || !strings.Contains(got, "theirs") || response.Header.Get("Link")+response.Header.Get("X-Checksum") != "" {
				t.Errorf("%s: %d %v", who, response.StatusCode, response.Header)
			}
		}
		if n := server.asked.Load(); n != 1 {
			t.Errorf("%s: asked %d times", who, n)
		}
	}
}

// What sets a cookie is for the one who asked, who gets it.
func TestCookiesAreNotKept(t *testing.T) {
	var asked atomic.Int64
	g := frontGateway(t, "ttl 1h", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		w.Header().Set("Content-Type", "application/fhir+json")
		w.Header().Set("Set-Cookie", "session=1")
		_, _ = io.WriteString(w, expansionOf(foreign, "theirs"))
	}))
	for n := range int64(3) {
		if got := g.askFor(foreign, "").Header.Get("Set-Cookie"); got != "session=1" || asked.Load() != n+1 {
			t.Errorf("Set-Cookie %q, asked %d times", got, asked.Load())
		}
		clear(g.Cookies)
	}
}

// What an upstream lets everybody keep is not for everybody behind a guard (RFC 9111
// §3.5), kept here or not.
func TestUpstreamsAnswersArePrivate(t *testing.T) {
	server := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/fhir+json")
		w.Header().Set("Cache-Control", "public, s-maxage=60")
		_, _ = io.WriteString(w, expansionOf(foreign, "theirs"))
	})
	for _, settings := range []string{"ttl 1h", "ttl off"} {
		g := frontGateway(t, settings+"\nupstream "+terminologyServer(t, server), http.NotFoundHandler())
		for _, wish := range []string{"max-age=60", "no-store"} {
			r := httptest.NewRequest(http.MethodGet, expandPath(foreign), nil)
			r.Header.Set("Authorization", "Bearer users")
			r.Header.Set("Cache-Control", wish)
			if got := g.send(r).Header["Cache-Control"]; len(got) != 1 || got[0] != "private, no-cache" {
				t.Errorf("%s, %s: %q", settings, wish, got)
			}
		}
	}
}

// Who wants only what is kept is told that nothing is, with 504 (RFC 9111 §5.2.1.7),
// in FHIR; and nobody is asked.
func TestOnlyIfCached(t *testing.T) {
	server := newScripted("good")
	g := frontGateway(t, "ttl 1h", server)
	r := httptest.NewRequest(http.MethodGet, expandPath(foreign), nil)
	r.Header.Set("Cache-Control", "only-if-cached")
	response := g.send(r)
	if issue := g.outcome(response); response.StatusCode != http.StatusGatewayTimeout || !strings.Contains(issue.Diagnostics, "only-if-cached") || server.asked.Load() != 0 {
		t.Errorf("%d %v, asked %d times", response.StatusCode, issue, server.asked.Load())
	}
	read(t, g.askFor(foreign, ""))
	if got := read(t, g.send(r)); !strings.Contains(got, "theirs") {
		t.Error(got)
	}
}

// A server that has too much to do says when to ask again (RFC 9110 §10.2.3).
func TestBusyServer(t *testing.T) {
	busy := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	for settings, backend := range map[string]http.Handler{"ttl 1h": busy, "upstream " + terminologyServer(t, busy): http.NotFoundHandler()} {
		for _, wish := range []string{"max-age=1", "no-store"} {
			r := httptest.NewRequest(http.MethodGet, expandPath(foreign), nil)
			r.Header.Set("Cache-Control", wish)
			if response := frontGateway(t, settings, backend).send(r); response.Header.Get("Retry-After") != "7" || response.StatusCode < 400 {
				t.Errorf("%s, %s: %d %v", settings, wish, response.StatusCode, response.Header)
			}
		}
	}
}

// Whoever is asked has the time that is set for it, past the cache too; a client that
// does not wait for the answer is no failure.
func TestTimeouts(t *testing.T) {
	c := ExpandCaching{Timeout: caddy.Duration(time.Second), Upstream: new(Upstream), Routes: []UpstreamRoute{{Upstream: Upstream{Timeout: caddy.Duration(time.Minute)}}}}
	if got := c.cacheOptions().Timeout; got != time.Minute {
		t.Errorf("an answer may take %v, and a server a minute", got)
	}
	if c.Routes = nil; c.longest() != remote.DefaultTimeout {
		t.Errorf("an answer may take %v, and the upstream its default", c.longest())
	}
	server := newScripted("hanging")
	g := frontGateway(t, "timeout 100ms\nupstream "+terminologyServer(t, newScripted("good"))+" {\n\ttimeout 1h\n}", server)
	r := httptest.NewRequest(http.MethodGet, "/fhir/R4/ValueSet/1/$expand", nil)
	r.Header.Set("Cache-Control", "no-store")
	if response := g.send(r); response.StatusCode != http.StatusGatewayTimeout {
		t.Errorf("past the cache: %d", response.StatusCode)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if response := frontGateway(t, "timeout 100ms", server).send(httptest.NewRequestWithContext(ctx, http.MethodGet, expandPath(foreign), nil)); response.StatusCode != 499 {
		t.Errorf("a client that is gone: %d", response.StatusCode)
	}
}

// However many ask for what is not there yet, others are asked once.
func TestNoHerd(t *testing.T) {
	for _, who := range []string{"next handler", "upstream"} {
		t.Run(who, func(t *testing.T) {
			server := newScripted("good")
			server.gate = make(chan struct{})
			settings, backend := "ttl 1h", http.Handler(server)
			if who == "upstream" {
				settings, backend = "upstream "+terminologyServer(t, server), http.NotFoundHandler()
			}
			g := frontGateway(t, settings, backend)
			var all, begun sync.WaitGroup
			var wrong atomic.Int64
			for range 1000 {
				begun.Add(1)
				all.Go(func() {
					begun.Done()
					w := httptest.NewRecorder()
					g.server.ServeHTTP(w, askingFor(foreign))
					if !strings.Contains(w.Body.String(), "theirs") {
						wrong.Add(1)
					}
				})
			}
			begun.Wait()
			close(server.gate)
			all.Wait()
			if n := server.asked.Load(); n != 1 || wrong.Load() != 0 {
				t.Errorf("asked %d times, %d wrong answers", n, wrong.Load())
			}
		})
	}
}

// Of several terminology servers the route with the longest prefix is asked, and the
// user's credentials are sent to none of them.
func TestRoutes(t *testing.T) {
	var leaked atomic.Bool
	named := func(name string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if got := r.Header.Get("Authorization"); got != "" && got != "Bearer own" {
				leaked.Store(true)
			}
			if name == "snomed" && r.Header.Get("Authorization") != "Bearer own" {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			w.Header().Set("Content-Type", "application/fhir+json")
			_, _ = io.WriteString(w, expansionOf(r.URL.Query().Get("url"), name))
		})
	}
	t.Setenv("TX_TOKEN", "own")
	g := frontGateway(t, "upstream "+terminologyServer(t, named("fallback"))+
		"\nroute http://snomed.info/sct "+terminologyServer(t, named("snomed"))+" {\n\tbearer {env.TX_TOKEN}\n}"+
		"\nroute http://snomed.info/sct/45991000052106 "+terminologyServer(t, named("swedish")), named("backend"))
	for url, want := range map[string]string{
		"http://snomed.info/sct?fhir_vs":                     "snomed",
		"http://snomed.info/sct/45991000052106?fhir_vs":      "swedish",
		"http://snomed.info/sctx":                            "fallback",
		foreign:                                              "fallback",
		"http://hl7.org/fhir/ValueSet/administrative-gender": "female",
	} {
		for range 2 {
			if got := read(t, g.askFor(strings.ReplaceAll(url, "?", "%3F"), "Bearer users")); !strings.Contains(got, `"code":"`+want+`"`) {
				t.Errorf("%s: %s", url, got)
			}
		}
	}
	if got := read(t, g.get("/fhir/R4/ValueSet/7/$expand", "")); !strings.Contains(got, "backend") {
		t.Errorf("of an instance: %s", got)
	}
	if leaked.Load() {
		t.Error("a terminology server was sent a user's credentials")
	}
}

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

// What was asked for before a write is not kept after it, whoever is asked: it may be
// from before.
func TestWriteWhileAsking(t *testing.T) {
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
					body = `{"resourceType":"Bundle","type":"searchset","entry":[{"resource":` + listing("1", foreign, fmt.Sprint("v", version.Load())) + `}]}`
				}
				arrived <- struct{}{}
				<-gate
				_, _ = io.WriteString(w, body)
			})
			settings, backend := "ttl 1h", http.Handler(server)
			switch who {
			case "upstream":
				settings, backend = "upstream "+terminologyServer(t, server), server
			case "definitions":
				settings = "definitions backend"
			}
			g := frontGateway(t, settings, backend)
			var asking sync.WaitGroup
			asking.Go(func() { g.server.ServeHTTP(httptest.NewRecorder(), askingFor(foreign)) })
			<-arrived
			g.write(t, http.MethodPut, "ValueSet/1", listing("1", foreign, "v2"))
			close(gate)
			asking.Wait()
			for range 3 {
				if got := read(t, g.askFor(foreign, "")); !strings.Contains(got, `"v2"`) {
					t.Errorf("after the write: %s", got)
				}
			}
		})
	}
}

func askingFor(url string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, expandPath(url), nil)
	r.Host = "localhost:8443"
	return r
}

// What a handler behind refuses was not done, and ends nothing; what failed may have
// been.
func TestRefusedWriteEndsNothing(t *testing.T) {
	server := newScripted("good")
	g := frontGateway(t, "ttl 1h", server)
	h := provisioned(t)
	for status, kept := range map[int]bool{http.StatusForbidden: true, http.StatusBadGateway: false} {
		read(t, g.askFor(foreign, ""))
		r := httptest.NewRequest(http.MethodDelete, "/fhir/R4/ValueSet/1", nil)
		refuses := caddyhttp.HandlerFunc(func(http.ResponseWriter, *http.Request) error { return caddyhttp.Error(status, nil) })
		if err := h.front.ServeHTTP(httptest.NewRecorder(), r, refuses); err == nil {
			t.Error("the error is gone")
		}
		asked := server.asked.Load()
		if read(t, g.askFor(foreign, "")); (server.asked.Load() == asked) != kept {
			t.Errorf("%d: kept: %t, want %t", status, !kept, kept)
		}
	}
}

// refusing is a server that does some writes not, or not wholly.
type refusing struct{ http.Handler }

func (s refusing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case strings.HasSuffix(r.URL.Path, "/refused"):
		w.WriteHeader(http.StatusPreconditionFailed)
	case strings.HasSuffix(r.URL.Path, "/failed"):
		w.WriteHeader(http.StatusInternalServerError)
	default:
		s.Handler.ServeHTTP(w, r)
	}
}

func (g *gateway) write(t *testing.T, method, reference, body string) {
	t.Helper()
	r := httptest.NewRequest(method, "/fhir/R4/"+reference, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/fhir+json")
	if response := g.send(r); response.StatusCode >= 300 {
		t.Fatalf("%s %s: %d %s", method, reference, response.StatusCode, read(t, response))
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
	response := g.get(expandPath(url), "")
	body := read(t, response)
	var got expansion
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatalf("%s: %s", url, body)
	}
	for _, c := range got.Expansion.Contains {
		codes = append(codes, c.Code)
	}
	return codes, response.Header.Get("Cache-Status")
}

func (g *gateway) wantCodes(t *testing.T, url, want string) {
	t.Helper()
	for range 3 { // made, kept, and from the cache
		if got, _ := g.codesOf(t, url); strings.Join(got, " ") != want {
			t.Errorf("%s: got %q, want %q", url, got, want)
		}
	}
}

// A value set that the backend stores is expanded here, and a write that passes
// through is seen at once, through imports as well; what does not depend on it stays.
func TestBackendDefinitions(t *testing.T) {
	s := newDefinitionStore()
	g := frontGateway(t, "definitions backend", s)
	const a, b, c, other = "http://x.example/a", "http://x.example/b", "http://x.example/c", "http://x.example/other"
	g.write(t, http.MethodPut, "ValueSet/a", listing("a", a, "1", b))
	g.write(t, http.MethodPut, "ValueSet/b", listing("b", b, "2", c))
	g.write(t, http.MethodPut, "ValueSet/c", listing("c", c, "3"))
	g.write(t, http.MethodPut, "ValueSet/other", listing("other", other, "9"))
	g.wantCodes(t, a, "1 2 3")
	g.wantCodes(t, other, "9")
	reads := s.reads

	g.write(t, http.MethodPut, "ValueSet/c", listing("c", c, "4"))
	g.wantCodes(t, a, "1 2 4")
	if _, status := g.codesOf(t, other); !strings.Contains(status, "hit") {
		t.Errorf("what does not depend on it: %s", status)
	}
	if s.reads != reads+1 {
		t.Errorf("%d definitions fetched after a write of one", s.reads-reads)
	}

	g.write(t, http.MethodPut, "ValueSet/b", listing("b", "http://x.example/moved", "5"))
	if response := g.get(expandPath(a), ""); response.StatusCode != http.StatusUnprocessableEntity {
		t.Errorf("with an import that has another url now: %d", response.StatusCode)
	}
	g.write(t, http.MethodPut, "ValueSet/b2", listing("b2", b, "6"))
	g.wantCodes(t, a, "1 6")
	g.write(t, http.MethodDelete, "ValueSet/c", "")
	g.write(t, http.MethodPut, "ValueSet/b2", listing("b2", b, "6", c))
	if response := g.get(expandPath(a), ""); response.StatusCode != http.StatusUnprocessableEntity {
		t.Errorf("with an import that was deleted: %d", response.StatusCode)
	}
	g.write(t, http.MethodPut, "ValueSet/c", listing("c", c, "7"))
	g.wantCodes(t, a, "1 6 7")
}

// What a Bundle writes is not known one by one: it ends all answers, and one that
// has nothing to do with definitions none. Nor is it known what an operation changes
// that is none of FHIR's that only read.
func TestBatchInvalidates(t *testing.T) {
	const observation = `{"resource":{"resourceType":"Observation","category":[{"coding":[{"system":"http://terminology.hl7.org/CodeSystem/observation-category","code":"laboratory"}]}]}`
	for name, tt := range map[string]struct {
		method, path, body string
		kept               bool
	}{
		"a transaction with a value set":   {http.MethodPost, "", `{"resourceType":"Bundle","type":"transaction","entry":[{"resource":{"resourceType":"ValueSet"}}]}`, false},
		"one with a slash":                 {http.MethodPost, "/", `{"resourceType":"Bundle","type":"transaction","entry":[{"resource":{"resourceType":"ValueSet"}}]}`, false},
		"a transaction with a patient":     {http.MethodPost, "", `{"resourceType":"Bundle","type":"transaction","entry":[{"resource":{"resourceType":"Patient"}}]}`, true},
		"a transaction with codes":         {http.MethodPost, "", `{"resourceType":"Bundle","type":"transaction","entry":[` + observation + `,"request":{"method":"POST","url":"Observation"}}]}`, true},
		"a batch that deletes a value set": {http.MethodPost, "", `{"resourceType":"Bundle","type":"batch","entry":[{"request":{"url":"ValueSet/1","method":"DELETE"}}]}`, false},
		"a batch that expands":             {http.MethodPost, "", `{"resourceType":"Bundle","type":"batch","entry":[{"request":{"url":"ValueSet/$expand?url=x","method":"GET"}}]}`, true},
		"a code system":                    {http.MethodPost, "/CodeSystem", `{"resourceType":"CodeSystem","url":"http://x.example/other"}`, false},
		"a code system without a url":      {http.MethodPost, "/CodeSystem", `{"resourceType":"CodeSystem"}`, false},
		"a conditional delete":             {http.MethodDelete, "/ValueSet?url=x", "", false},
		"a conditional update":             {http.MethodPut, "/ValueSet?url=x", `{"resourceType":"ValueSet","url":"x"}`, false},
		"a conditional patch":              {http.MethodPatch, "/ValueSet?url=x", "[]", false},
		"a patch":                          {http.MethodPatch, "/ConceptMap/1", "[]", false},
		"a path with dots":                 {http.MethodDelete, "/Patient/../ValueSet/1", "", false},
		"a path with slashes":              {http.MethodDelete, "//ValueSet//1", "", false},
		"an import":                        {http.MethodPost, "/$import", "{}", false},
		"an import of codes":               {http.MethodPost, "/CodeSystem/$import", "{}", false},
		"a change of one by an operation":  {http.MethodPost, "/CodeSystem/1/$apply-codesystem-delta-add", "{}", false},
		"a validation":                     {http.MethodPost, "/ValueSet/$validate-code", "{}", true},
		"an operation on patients":         {http.MethodPost, "/Patient/$match", "{}", true},
		"a query in GraphQL":               {http.MethodPost, "/$graphql", "{Patient(id:1){id}}", true},
		"a mutation in GraphQL":            {http.MethodPost, "/$graphql", "mutation{ValueSetCreate{id}}", false},
		"a search by POST":                 {http.MethodPost, "/ValueSet/_search", "url=x", true},
		"a patient":                        {http.MethodPut, "/Patient/1", "{}", true},
		"a definition that is only read":   {http.MethodGet, "/ValueSet/1", "", true},
		"a refused write":                  {http.MethodPut, "/ValueSet/refused", `{"resourceType":"ValueSet","url":"x"}`, true},
		"a write that failed":              {http.MethodPut, "/ValueSet/failed", `{"resourceType":"ValueSet","url":"x"}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			server := newScripted("good")
			g := frontGateway(t, "ttl 1h", refusing{server})
			read(t, g.askFor(foreign, ""))
			r := httptest.NewRequest(tt.method, "/", strings.NewReader(tt.body))
			r.URL.Path, r.URL.RawQuery, _ = strings.Cut("/fhir/R4"+tt.path, "?")
			r.Header.Set("Content-Type", "application/fhir+json")
			read(t, g.send(r))
			server.asked.Store(0)
			read(t, g.askFor(foreign, ""))
			if kept := server.asked.Load() == 0; kept != tt.kept {
				t.Errorf("kept: %t, want %t", kept, tt.kept)
			}
		})
	}
}
