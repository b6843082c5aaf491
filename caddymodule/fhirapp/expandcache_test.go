package fhirapp

import (
	"compress/gzip"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/klauspost/compress/zstd"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/expand"
	"github.com/caddy-fhir/caddy-fhir/terminology/dispatch"
)

// No client gets a cached response for another user, format or language, regardless of the order of requests and of the
// compression.
func TestCachedResponsesMatchRequests(t *testing.T) {
	backend := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		code := strings.Join([]string{r.Header.Get("Authorization"), r.Header.Get("X-Tenant"), r.Header.Get("Accept-Language"), r.URL.Query().Get("url")}, "/")
		body := expansionOf(r.URL.Query().Get("url"), code)
		w.Header().Set("Content-Type", r.Header.Get("Accept"))
		if strings.Contains(r.Header.Get("Accept"), "xml") {
			body = `<ValueSet xmlns="http://hl7.org/fhir"><status value="active"/><expansion><contains><code value="` + code + `"/></contains></expansion></ValueSet>`
		}
		_, _ = io.WriteString(w, body)
	})
	g := frontGateway(t, "vary_header X-Tenant", backend)
	random := rand.New(rand.NewPCG(1, 2))
	pick := func(of ...string) string { return of[random.IntN(len(of))] }
	hits := 0
	for range 4000 {
		user, tenant, language, url := pick("", "Bearer a", "Bearer b", "Basic c"), pick("", "1", "2"), pick("", "de", "en"), foreign+pick("1", "2", "3")
		format, coding := pick("json", "xml"), pick("", "gzip", "zstd")
		method := pick(http.MethodGet, http.MethodHead)
		response := g.Do(method, expandPath(url), "", "Authorization", user, "X-Tenant", tenant, "Accept-Language", language,
			"Accept", "application/fhir+"+format, "Accept-Encoding", coding, "X-Other", pick("1", "2"))
		body := decoded(t, response)
		if strings.Contains(response.Header.Get("Cache-Status"), "hit") {
			hits++
		}
		want := strings.Join([]string{user, tenant, language, url}, "/")
		if response.StatusCode != http.StatusOK || response.Header.Get("Content-Type") != "application/fhir+"+format || method == http.MethodGet && codeIn(t, format, body) != want {
			t.Fatalf("%d for %s in %s: %s", response.StatusCode, want, format, body)
		}
		if user != "" && !strings.HasPrefix(response.Header.Get("Cache-Control"), "private") {
			t.Fatalf("Cache-Control %s for %s", response.Header.Get("Cache-Control"), user)
		}
	}
	if hits < 3000 {
		t.Errorf("%d hits", hits)
	}
}

// codeIn returns the only code of an expansion.
func codeIn(t *testing.T, format, body string) string {
	t.Helper()
	if format == "json" {
		return strings.Join(expandedCodes(t, body), " ")
	}
	var got struct {
		Code struct {
			Value string `xml:"value,attr"`
		} `xml:"expansion>contains>code"`
	}
	if err := xml.Unmarshal([]byte(body), &got); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	return got.Code.Value
}

// decoded returns a response body after decoding its content coding.
func decoded(t *testing.T, r *http.Response) string {
	t.Helper()
	body := io.Reader(r.Body)
	var err error
	if r.Request != nil && r.Request.Method == http.MethodHead || r.ContentLength == 0 {
		return ""
	}
	switch r.Header.Get("Content-Encoding") {
	case "gzip":
		body, err = gzip.NewReader(body)
	case "zstd":
		body, err = zstd.NewReader(body)
	}
	if err != nil {
		return "" // the response to HEAD has no body
	}
	text, err := io.ReadAll(body)
	if err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	return string(text)
}

// Behind fhir_bearer, responses are cached per user of the token. The user is forwarded to the next handler.
func TestResponsesAreCachedPerUser(t *testing.T) {
	var requests atomic.Int64
	address := gatewaytest.Backend(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		w.Header().Set("Content-Type", "application/fhir+json")
		_, _ = io.WriteString(w, expansionOf(foreign, r.Header.Get("X-Who")+" "+r.Header.Get("X-Forwarded-Host")+r.Header.Get("Authorization")))
	}))
	for vary, want := range map[string]int64{"user": 2, "client": 2, "none": 1} {
		t.Run(vary, func(t *testing.T) {
			requests.Store(0)
			config := strings.Replace(gatewaytest.ExampleText(t, "fhir_expand\n", "fhir_expand {\n\t\t\tvary_by "+vary+"\n\t\t}\n"),
				"reverse_proxy @backend {env.FHIR_BACKEND} {", "reverse_proxy @backend "+address+" {\n\t\t\theader_up X-Who {http.auth.user.id}", 1)
			g := newGateway(t, config)
			service := g.serviceToken()
			alice := g.Token()
			for range 3 {
				for token, name := range map[string]string{alice: "alice", service: "demo-service"} {
					response := g.Get(expandPath(foreign), token)
					if body := gatewaytest.ReadBody(t, response); vary != "none" {
						checkCodes(t, body, name+" localhost:8443")
					}
					if !strings.HasPrefix(response.Header.Get("Cache-Control"), "private") {
						t.Errorf("for %s: Cache-Control %s", name, response.Header.Get("Cache-Control"))
					}
				}
			}
			if response := g.Get(expandPath(foreign), ""); response.StatusCode != http.StatusUnauthorized {
				t.Errorf("without a token: %d", response.StatusCode)
			}
			if requests.Load() != want {
				t.Errorf("%d requests, want %d", requests.Load(), want)
			}
		})
	}
}

// A response that was cached for another client or scope of the same person is not reused, because the next handler may enforce
// scopes.
func TestResponsesAreCachedPerScope(t *testing.T) { // not parallel: a write by another test would invalidate the response
	var requests atomic.Int64
	g := exampleGateway(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/fhir+json")
		_, _ = io.WriteString(w, expansionOf(foreign, fmt.Sprint("answer ", requests.Add(1))))
	}))
	for n, scope := range []string{"openid user/*.rs", "openid", "openid user/*.rs"} {
		clear(g.Cookies)
		request := gatewaytest.DemoRequest()
		request.Set("scope", scope)
		token := g.TokenFor(request)
		want := []string{"answer 1", "answer 2", "answer 1"}[n]
		checkCodes(t, gatewaytest.ReadBody(t, g.Get(expandPath(foreign), token)), want)
	}
}

// serviceToken returns an access token that was issued to a client without a user.
func (g *gateway) serviceToken() string {
	g.t.Helper()
	return g.RequestToken(url.Values{
		"grant_type": {"client_credentials"}, "scope": {"system/*.rs"}, "client_id": {"demo-service"}, "client_secret": {"demo-service-secret"},
	})
}

// Resources that one user sent with a cache-id are not available to another user with the same cache-id, neither as stored
// resources nor through the cache.
func TestCacheIDIsPerUser(t *testing.T) {
	g := exampleGateway(t, http.NotFoundHandler())
	alice, service := g.Token(), g.serviceToken()
	brought := g.Do(http.MethodPost, "/fhir/R4/ValueSet/$expand", `{"resourceType":"Parameters","parameter":[
		{"name":"url","valueUri":"`+foreign+`"},{"name":"cache-id","valueId":"1"},{"name":"tx-resource","resource":`+valueSetOf("v", foreign, "secret")+`}]}`,
		"Content-Type", "application/fhir+json", "Authorization", "Bearer "+alice)
	checkCodes(t, gatewaytest.ReadBody(t, brought), "secret")
	for range 3 {
		for _, id := range []string{"&cache-id=1", "&cache%2Did=1"} {
			path := expandPath(url.QueryEscape(foreign)) + id
			if got := gatewaytest.ReadBody(t, g.Get(path, alice)); !slices.Equal(expandedCodes(t, got), []string{"secret"}) {
				t.Errorf("%s for who brought it along: %s", id, got)
			}
			if got := g.Get(path, service); got.StatusCode != http.StatusNotFound {
				t.Errorf("%s for another: %d", id, got.StatusCode)
			}
		}
	}
}

// Cached responses and definitions survive a reload unless the settings or the surrounding handlers have changed.
func TestReloadKeepsExpansions(t *testing.T) {
	server := newScriptedServer("good")
	address := gatewaytest.Backend(t, server)
	first := newGateway(t, frontCaddyfile("ttl 1h", address))
	gatewaytest.ReadBody(t, first.expandAs(foreign, ""))
	for name, tt := range map[string]struct {
		caddyfile  string
		wantCached bool
	}{
		"nothing changed": {frontCaddyfile("ttl 1h", address), true},
		"another ttl":     {frontCaddyfile("ttl 2h", address), false},
		"another backend": {frontCaddyfile("ttl 1h", address+" "+address), false},
	} {
		before := server.requests.Load()
		second := newGateway(t, tt.caddyfile)
		checkCodes(t, gatewaytest.ReadBody(t, second.expandAs(foreign, "")), "theirs")
		if cached := server.requests.Load() == before; cached != tt.wantCached {
			t.Errorf("%s: cached %t, want %t", name, cached, tt.wantCached)
		}
	}
}

// A changed file is reloaded. An invalid file is reported, and the previous content remains in use.
func TestChangedFileIsNoticed(t *testing.T) {
	t.Parallel()
	const url = "http://x.example/changing"
	file := gatewaytest.WriteFile(t, "vs.json", valueSetOf("v", url, "1"))
	g := frontGateway(t, "core off\ndefinitions "+file, http.NotFoundHandler())
	g.wantCodes(t, url, "1")
	g.until(t, file, valueSetOf("v", url, "1 2"), func() bool { codes, _ := g.codesOf(t, url); return len(codes) == 2 })
	g.wantCodes(t, url, "1 2")
	failed := func() bool {
		return slices.ContainsFunc(expand.LoadedDefinitions(), func(s expand.DefinitionsStatus) bool { return s.Error != "" && strings.Contains(s.Error, file) })
	}
	g.until(t, file, `{"resourceType":"ValueSet","url":`, failed)
	if g.series()["caddy_fhir_definitions_load_failed"] < 1 {
		t.Error("not counted in the metrics")
	}
	g.wantCodes(t, url, "1 2")
	g.until(t, file, valueSetOf("v", url, "3"), func() bool { return !failed() })
	g.wantCodes(t, url, "3")
}

// until writes a file, reloads the definitions, and waits until there returns true.
func (g *gateway) until(t *testing.T, file, content string, there func() bool) {
	t.Helper()
	gatewaytest.ReplaceFile(t, file, content)
	expand.RefreshDefinitions(t.Context())
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for !there() {
		select {
		case <-ctx.Done():
			t.Fatal("not noticed: " + content)
		case <-ticker.C:
		}
	}
}

// A write that the backend rejects does not invalidate the cache. A write that failed invalidates it, because it may have been
// applied.
func TestRejectedWriteInvalidatesNothing(t *testing.T) {
	server := newScriptedServer("good")
	g := frontGateway(t, "ttl 1h", server)
	h := gatewaytest.FindHandler[*expand.Expand](t, frontGateway(t, "ttl 2h", server).Context)
	for status, wantCached := range map[int]bool{http.StatusForbidden: true, http.StatusBadGateway: false} {
		gatewaytest.ReadBody(t, g.expandAs(foreign, ""))
		r := httptest.NewRequest(http.MethodDelete, "/fhir/R4/ValueSet/1", nil)
		refuses := caddyhttp.HandlerFunc(func(http.ResponseWriter, *http.Request) error { return caddyhttp.Error(status, nil) })
		w := httptest.NewRecorder()
		if err := h.ServeHTTP(w, caddyhttp.PrepareRequest(r, caddy.NewReplacer(), w, new(caddyhttp.Server)), refuses); err != nil || w.Code != status {
			t.Errorf("answered %d, %v", w.Code, err)
		}
		before := server.requests.Load()
		if gatewaytest.ReadBody(t, g.expandAs(foreign, "")); (server.requests.Load() == before) != wantCached {
			t.Errorf("%d: cached: %t, want %t", status, !wantCached, wantCached)
		}
	}
}

// The admin API invalidates all responses, those for a value set, or those that contain concepts of a code system.
func TestPurgeInvalidatesExpansions(t *testing.T) {
	const a, b = "http://x.example/purge-a", "http://x.example/purge-b"
	file := gatewaytest.WriteFile(t, "vs.json", `{"resourceType":"Bundle","type":"collection","entry":[{"resource":`+valueSetOf("a", a, "1")+`},{"resource":`+
		strings.ReplaceAll(valueSetOf("b", b, "2"), "http://x.example/cs", "http://x.example/cs2")+`}]}`)
	g := frontGateway(t, "core off\ndefinitions "+file, http.NotFoundHandler())
	for query, ended := range map[string][]bool{
		"": {true, true}, "?url=" + a: {true, false}, "?url=" + b + "|1": {false, true}, "?system=http://x.example/cs2": {false, true}, "?system=http://x.example/other": {false, false},
	} {
		g.wantCodes(t, a, "1")
		g.wantCodes(t, b, "2")
		if _, err := admin(t, g.Context, http.MethodDelete, "/fhir/expansions"+query); err != nil {
			t.Fatal(err)
		}
		for i, url := range []string{a, b} {
			if _, status := g.codesOf(t, url); strings.Contains(status, "hit") == ended[i] {
				t.Errorf("%s: %s: %s", query, url, status)
			}
		}
	}
}

func (g *gateway) write(t *testing.T, method, reference, body string) {
	t.Helper()
	if response := g.Do(method, "/fhir/R4/"+reference, body, "Content-Type", "application/fhir+json"); response.StatusCode >= 300 {
		t.Fatalf("%s %s: %d %s", method, reference, response.StatusCode, gatewaytest.ReadBody(t, response))
	}
}

// valueSetOf returns a ValueSet with the given codes and imported value sets.
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

func (g *gateway) codesOf(t *testing.T, url string) (codes []string, status string) {
	t.Helper()
	response := g.Get(expandPath(url), "")
	body := gatewaytest.ReadBody(t, response)
	return expandedCodes(t, body), response.Header.Get("Cache-Status")
}

func (g *gateway) wantCodes(t *testing.T, url, want string) {
	t.Helper()
	for range 3 { // the response is generated, then stored in the cache, then served from the cache
		if got, _ := g.codesOf(t, url); strings.Join(got, " ") != want {
			t.Errorf("%s: got %q, want %q", url, got, want)
		}
	}
}

func (s *testStore) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return option.ParseDirective(d, option.Block{"server": option.Word(&s.Server, nil), "gateway": option.Word(&s.Gateway, nil)})
}

// sharedGateway starts a gateway with fhir_expand and the test's shared store.
func sharedGateway(t *testing.T, settings string, backend http.Handler) *gateway {
	t.Helper()
	app := fmt.Sprintf("{\n\tfhir {\n\t\tissuer https://x.example\n\t\tstore test_shared {\n\t\t\tserver %s\n\t\t\tgateway here\n\t\t}\n\t}\n", t.Name())
	return newGateway(t, strings.Replace(frontCaddyfile(settings, gatewaytest.Backend(t, backend)), "{\n", app, 1))
}

// otherGateway is another gateway with the same store.
type otherGateway struct {
	*expand.Peers
	ended chan dispatch.Invalidation
}

func newOtherGateway(t *testing.T, server *testServer) otherGateway {
	e := otherGateway{ended: make(chan dispatch.Invalidation, 100)}
	shared := server.gateway("elsewhere")
	e.Peers = expand.NewPeers(shared, func(one dispatch.Invalidation) { e.ended <- one }, slog.New(slog.DiscardHandler))
	go func() { _ = shared.Subscribe(t.Context(), e.HandleUpdate) }()
	return e
}

func (e otherGateway) want(t *testing.T, what string, wrong func(dispatch.Invalidation) bool) {
	t.Helper()
	select {
	case ended := <-e.ended:
		if wrong(ended) {
			t.Errorf("%s: %+v ended elsewhere", what, ended)
		}
	case <-time.After(20 * time.Second):
		t.Errorf("%s: nothing ended elsewhere", what)
	}
}

// A write through this gateway, or an invalidation by its operator, invalidates the caches of other gateways, and vice versa.
func TestSharedExpansions(t *testing.T) { // not parallel: writes by other tests invalidate cached responses
	testServer, backend := newTestServer(t), newScriptedServer("good")
	g := sharedGateway(t, "ttl 1h", backend)
	app, err := g.Context.App("fhir")
	if err != nil {
		t.Fatal(err)
	}
	if err := app.(*App).startStores(); err != nil {
		t.Fatal(err)
	}
	other := newOtherGateway(t, testServer)
	g.write(t, http.MethodPut, "ValueSet/1", valueSetOf("1", foreign, "new"))
	for range 2 { // once when the response starts and once when it is complete
		other.want(t, "a write", func(e dispatch.Invalidation) bool { return fmt.Sprint(e.Definitions) != "[ValueSet/1 "+foreign+"]" })
	}
	if _, err := admin(t, g.Context, http.MethodDelete, "/fhir/expansions?system=http://x.example/cs"); err != nil {
		t.Fatal(err)
	}
	other.want(t, "a wish", func(e dispatch.Invalidation) bool { return e.CodeSystem != "http://x.example/cs" })

	gatewaytest.ReadBody(t, g.expandAs(foreign, ""))
	before := backend.requests.Load()
	if gatewaytest.ReadBody(t, g.expandAs(foreign, "")); backend.requests.Load() != before {
		t.Fatal("nothing is cached")
	}
	other.Announce(dispatch.Invalidation{ValueSet: foreign})
	for end := time.Now().Add(20 * time.Second); backend.requests.Load() == before && time.Now().Before(end); {
		gatewaytest.ReadBody(t, g.expandAs(foreign, ""))
	}
	if backend.requests.Load() == before {
		t.Error("a response invalidated elsewhere is still used")
	}
}

// Writes and expansions work while the store is unavailable.
func TestSharedExpansionsWithoutStore(t *testing.T) {
	t.Parallel()
	server, backend := newTestServer(t), newScriptedServer("good")
	server.SetDown(true)
	g := sharedGateway(t, "ttl 1h", backend)
	gatewaytest.ReadBody(t, g.expandAs(foreign, ""))
	g.write(t, http.MethodPut, "ValueSet/1", valueSetOf("1", foreign, "new"))
	before := backend.requests.Load()
	if gatewaytest.ReadBody(t, g.expandAs(foreign, "")); backend.requests.Load() == before {
		t.Error("the write ended nothing here")
	}
}
