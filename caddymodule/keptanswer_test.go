package caddymodule

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/klauspost/compress/zstd"
)

// Nobody gets what was made for somebody else, nor what was asked for in another
// format or language, whatever comes in which order and however it is compressed.
func TestAnswersAreTheirs(t *testing.T) {
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
		r := httptest.NewRequest(pick(http.MethodGet, http.MethodHead), expandPath(url), nil)
		for name, value := range map[string]string{
			"Authorization": user, "X-Tenant": tenant, "Accept-Language": language, "Accept": "application/fhir+" + format, "Accept-Encoding": coding, "X-Other": pick("1", "2"),
		} {
			if value != "" {
				r.Header.Set(name, value)
			}
		}
		response := g.send(r)
		body := decoded(t, response)
		if strings.Contains(response.Header.Get("Cache-Status"), "hit") {
			hits++
		}
		want := strings.Join([]string{user, tenant, language, url}, "/")
		if response.StatusCode != http.StatusOK || !strings.Contains(response.Header.Get("Content-Type"), format) || r.Method == http.MethodGet && !strings.Contains(body, `"`+want+`"`) {
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
		return "" // HEAD
	}
	text, err := io.ReadAll(body)
	if err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	return string(text)
}

// Behind fhir_bearer the token's user counts, which the next handler is told.
func TestAnswersAreTheUsers(t *testing.T) {
	var asked atomic.Int64
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		w.Header().Set("Content-Type", "application/fhir+json")
		_, _ = io.WriteString(w, expansionOf(foreign, r.Header.Get("X-Who")+" "+r.Header.Get("X-Forwarded-Host")+r.Header.Get("Authorization")))
	}))
	t.Cleanup(backend.Close)
	address := strings.TrimPrefix(backend.URL, "http://")
	for vary, want := range map[string]int64{"user": 2, "client": 2, "none": 1} {
		t.Run(vary, func(t *testing.T) {
			asked.Store(0)
			config := strings.Replace(exampleWith(t, "fhir_expand\n", "fhir_expand {\n\t\t\tvary_by "+vary+"\n\t\t}\n"),
				"reverse_proxy {$FHIR_BACKEND:localhost:8080} {", "reverse_proxy "+address+" {\n\t\t\theader_up X-Who {http.auth.user.id}", 1)
			g := newGateway(t, config)
			service := g.serviceToken()
			alice := g.token()
			for range 3 {
				for token, name := range map[string]string{alice: "alice", service: "demo-service"} {
					response := g.get(expandPath(foreign), token)
					body := read(t, response)
					if vary != "none" && !strings.Contains(body, `"`+name+` localhost:8443"`) {
						t.Errorf("for %s: %s", name, body)
					}
					if !strings.HasPrefix(response.Header.Get("Cache-Control"), "private") {
						t.Errorf("for %s: Cache-Control %s", name, response.Header.Get("Cache-Control"))
					}
				}
			}
			if response := g.get(expandPath(foreign), ""); response.StatusCode != http.StatusUnauthorized {
				t.Errorf("without a token: %d", response.StatusCode)
			}
			if asked.Load() != want {
				t.Errorf("asked %d times, want %d", asked.Load(), want)
			}
		})
	}
}

// A client does not get what the same person let it, or another one, see more of: the
// next handler may know scopes.
func TestAnswersAreForTheScope(t *testing.T) {
	var asked atomic.Int64
	g := exampleGateway(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/fhir+json")
		_, _ = io.WriteString(w, expansionOf(foreign, fmt.Sprint("answer ", asked.Add(1))))
	}))
	for n, scope := range []string{"openid user/*.rs", "openid", "openid user/*.rs"} {
		clear(g.Cookies)
		request := demoRequest()
		request.Set("scope", scope)
		var token struct {
			AccessToken string `json:"access_token"`
		}
		if err := json.NewDecoder(g.post("/oauth2/token", codeForm(g.codeOf(request))).Body).Decode(&token); err != nil {
			t.Fatal(err)
		}
		want := []string{"answer 1", "answer 2", "answer 1"}[n]
		if got := read(t, g.get(expandPath(foreign), token.AccessToken)); !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", scope, got, want)
		}
	}
}

// serviceToken is an access token of a client that acts on its own.
func (g *gateway) serviceToken() string {
	g.t.Helper()
	var token struct {
		AccessToken string `json:"access_token"`
	}
	r := httptest.NewRequest(http.MethodPost, "/oauth2/token", strings.NewReader("grant_type=client_credentials&scope=system/*.rs"))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.SetBasicAuth("demo-service", "demo-service-secret")
	if err := json.NewDecoder(g.send(r).Body).Decode(&token); err != nil || token.AccessToken == "" {
		g.t.Fatal(err)
	}
	return token.AccessToken
}

// For every value set of R4, or every tenth without -slow, it makes no difference whether it comes from the cache,
// is made anew, is asked for by POST, or comes from another gateway.
func TestEveryWayTheSame(t *testing.T) {
	plain := newGateway(t, frontCaddyfile("ttl off\noperations all", noBackend))
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Host = "localhost:8443"
		plain.server.ServeHTTP(w, r)
	}))
	t.Cleanup(origin.Close)
	kept := newGateway(t, frontCaddyfile("ttl 1h", noBackend))
	behind := newGateway(t, frontCaddyfile("core off\nmax_size 32MiB", strings.TrimPrefix(origin.URL, "http://")))
	distant := newGateway(t, frontCaddyfile("core off\nupstream "+origin.URL+"/fhir/R4", noBackend))
	all, expanded, step := coreValueSets(t), 0, 10
	if *slow {
		step = 1
	}
	for urls := range slices.Chunk(all, step) {
		url := urls[0]
		response := plain.get(expandPath(url), "")
		want := contains(read(t, response))
		if response.StatusCode == http.StatusOK {
			expanded++
		}
		check := func(how string, got *http.Response) {
			body := read(t, got)
			if failed := got.StatusCode != response.StatusCode; failed || contains(body) != want {
				t.Errorf("%s %s: %d, want %d: %.300s", url, how, got.StatusCode, response.StatusCode, body)
			}
		}
		for range 3 {
			check("kept", kept.get(expandPath(url), ""))
		}
		for range 2 {
			check("by way of the backend", behind.get(expandPath(url), ""))
			check("by way of an upstream", distant.get(expandPath(url), ""))
		}
		for how, g := range map[string]*gateway{"by POST": kept, "by POST to an upstream": distant} {
			r := httptest.NewRequest(http.MethodPost, "/fhir/R4/ValueSet/$expand", strings.NewReader(`{"resourceType":"Parameters","parameter":[{"name":"url","valueUri":"`+url+`"}]}`))
			r.Header.Set("Content-Type", "application/fhir+json")
			got := g.send(r)
			if flat := codesIn(read(t, got)); flat != codesIn(read(t, plain.get(expandPath(url), ""))) && got.StatusCode == http.StatusOK {
				t.Errorf("%s %s: %s", url, how, flat)
			}
		}
	}
	if len(all) < 1300 || expanded < 1100/step {
		t.Errorf("%d value sets, of which %d expand", len(all), expanded)
	}
}

// coreValueSets are the canonicals of the value sets of R4.
func coreValueSets(t *testing.T) (urls []string) {
	t.Helper()
	file, err := os.Open("../terminology/core/r4.ndjson.zst")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	text, err := zstd.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	defer text.Close()
	for d := json.NewDecoder(text); ; {
		var head struct {
			Type string `json:"resourceType"`
			URL  string `json:"url"`
		}
		if err := d.Decode(&head); err == io.EOF {
			return urls
		} else if err != nil {
			t.Fatal(err)
		}
		if head.Type == "ValueSet" {
			urls = append(urls, head.URL)
		}
	}
}

// contains is what an expansion lists, as JSON.
func contains(body string) string {
	var got struct {
		Expansion struct {
			Contains json.RawMessage `json:"contains"`
		} `json:"expansion"`
	}
	_ = json.Unmarshal([]byte(body), &got)
	return string(got.Expansion.Contains)
}

// codesIn are the codes of an expansion, whether it is a tree or a list.
func codesIn(body string) string {
	type concept struct {
		System, Code, Display string
		Contains              []json.RawMessage
	}
	var codes []string
	var walk func(list []json.RawMessage)
	walk = func(list []json.RawMessage) {
		for _, raw := range list {
			var c concept
			_ = json.Unmarshal(raw, &c)
			codes = append(codes, c.System+" "+c.Code+" "+c.Display)
			walk(c.Contains)
		}
	}
	var got struct {
		Expansion struct{ Contains []json.RawMessage }
	}
	_ = json.Unmarshal([]byte(body), &got)
	walk(got.Expansion.Contains)
	slices.Sort(codes)
	return strings.Join(slices.Compact(codes), "\n")
}

// A reload keeps answers and definitions, unless something of the settings has
// changed, or of the handlers around.
func TestReloadKeepsAnswers(t *testing.T) {
	server := newScripted("good")
	backend := httptest.NewServer(server)
	t.Cleanup(backend.Close)
	address := strings.TrimPrefix(backend.URL, "http://")
	first := newGateway(t, frontCaddyfile("ttl 1h", address))
	read(t, first.askFor(foreign, ""))
	for name, tt := range map[string]struct {
		caddyfile string
		kept      bool
	}{
		"nothing changed": {frontCaddyfile("ttl 1h", address), true},
		"another ttl":     {frontCaddyfile("ttl 2h", address), false},
		"another backend": {frontCaddyfile("ttl 1h", address+" "+address), false},
	} {
		asked := server.asked.Load()
		second := newGateway(t, tt.caddyfile)
		if got := read(t, second.askFor(foreign, "")); !strings.Contains(got, "theirs") {
			t.Errorf("%s: %s", name, got)
		}
		if kept := server.asked.Load() == asked; kept != tt.kept {
			t.Errorf("%s: kept %t, want %t", name, kept, tt.kept)
		}
	}
}

// What a client has it has still (RFC 9110 §13.1.2): whether it was made for it, is
// kept, is asked for past the cache, or was kept and is no more.
func TestOneEntityTag(t *testing.T) {
	g := frontGateway(t, "ttl 1h", http.NotFoundHandler())
	ask := func(headers ...string) *http.Response {
		r := httptest.NewRequest(http.MethodGet, expandPath(genderSet), nil)
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		return g.send(r)
	}
	tag := ask().Header.Get("Etag")
	for range 3 {
		if response := ask("If-None-Match", tag); response.StatusCode != http.StatusNotModified {
			t.Errorf("%d %v", response.StatusCode, response.Header)
		}
	}
	for _, wish := range []string{"no-store", "no-cache"} {
		if got := ask("Cache-Control", wish).Header.Get("Etag"); got != tag {
			t.Errorf("%s: %s, want %s", wish, got, tag)
		}
	}
	if got := ask("Accept", "application/fhir+xml").Header.Get("Etag"); got == tag {
		t.Errorf("in XML: %s too", got)
	}
}

// persisted is fhir_expand with persist, before a backend.
type persisted struct {
	t         *testing.T
	folder    string
	caddyfile string
}

func newPersisted(t *testing.T, settings string, backend http.Handler) *persisted {
	t.Helper()
	server := httptest.NewServer(backend)
	t.Cleanup(server.Close)
	folder := t.TempDir()
	return &persisted{t, folder, frontCaddyfile("persist "+folder+"\n"+settings, strings.TrimPrefix(server.URL, "http://"))}
}

// run starts it, and stops it as Cleanup does. One that is killed saves nothing.
func (p *persisted) run(do func(*gateway), killed bool) {
	p.t.Helper()
	do(newGateway(p.t, p.caddyfile))
	saved := p.files()
	running := p.running()
	if err := running.release(); err != nil {
		p.t.Error(err)
	}
	if killed && !slices.ContainsFunc(saved, func(f os.DirEntry) bool { return f.Name() == filepath.Base(running.file) }) {
		if err := os.Remove(running.file); err != nil {
			p.t.Error(err)
		}
	}
}

func (p *persisted) running() (running *pooledState) {
	expansionCaches.Range(func(_, value any) bool {
		if s, ok := value.(*pooledState); ok && strings.HasPrefix(s.file, p.folder) {
			running = s
		}
		return true
	})
	return running
}

func (p *persisted) files() []os.DirEntry {
	p.t.Helper()
	files, err := os.ReadDir(p.folder)
	if err != nil {
		p.t.Fatal(err)
	}
	return files
}

// With persist, answers are there after a restart; a file that is broken costs
// nothing but them, and a configuration that is only validated makes none.
func TestPersist(t *testing.T) {
	server := newScripted("good")
	p := newPersisted(t, "ttl 1h", server)
	run := func() (asked int64) {
		before := server.asked.Load()
		p.run(func(g *gateway) {
			if got := read(t, g.askFor(foreign, "")); !strings.Contains(got, "theirs") {
				t.Fatal(got)
			}
			for range 2 { // a local answer
				read(t, g.get(expandPath(genderSet), ""))
			}
		}, false)
		return server.asked.Load() - before
	}
	p.run(func(*gateway) {}, false)
	if files := p.files(); len(files) != 0 {
		t.Errorf("without a request: %v", files)
	}
	if n := run(); n != 1 {
		t.Fatalf("asked %d times at first", n)
	}
	p.run(func(*gateway) {}, false)
	if n := run(); n != 0 {
		t.Errorf("asked %d times after a restart", n)
	}
	files := p.files()
	if len(files) != 1 {
		t.Fatal(files)
	}
	name := p.folder + "/" + files[0].Name()
	if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info.Mode(), err)
	}
	if err := os.WriteFile(name, []byte("broken"), 0o600); err != nil {
		t.Fatal(err)
	}
	if n := run(); n != 1 {
		t.Errorf("asked %d times with a broken file", n)
	}
}

// What a write has ended does not come back: not with a restart after the process was
// killed, nor with settings that were in use before.
func TestPersistBringsBackNothingEnded(t *testing.T) {
	server := newScripted("good")
	p := newPersisted(t, "ttl 1h", server)
	another := *p
	another.caddyfile = strings.Replace(p.caddyfile, "ttl 1h", "ttl 2h", 1)
	ask := func(g *gateway) { read(t, g.askFor(foreign, "")) }
	write := func(g *gateway) {
		g.write(t, http.MethodPut, "ValueSet/1", listing("1", foreign, "new"))
	}
	p.run(ask, false)
	p.run(write, true)
	asked := server.asked.Load()
	if p.run(ask, false); server.asked.Load() == asked {
		t.Error("it came back after the process was killed")
	}
	another.run(write, false)
	asked = server.asked.Load()
	if p.run(ask, false); server.asked.Load() == asked {
		t.Error("it came back with the settings")
	}
}

// After a restart it is not known at which id what an answer was made of is: a write
// there that does not name it ends all.
func TestPersistedDefinitionIsPatched(t *testing.T) {
	const url = "http://x.example/patched"
	s := newDefinitionStore()
	p := newPersisted(t, "definitions backend", s)
	p.run(func(g *gateway) {
		g.write(t, http.MethodPut, "ValueSet/1", listing("1", url, "1"))
		g.wantCodes(t, url, "1")
		g.wantCodes(t, url, "1")
	}, false)
	p.run(func(g *gateway) {
		g.write(t, http.MethodPatch, "ValueSet/1", listing("1", url, "2"))
		g.wantCodes(t, url, "2")
		g.wantCodes(t, url, "2")
	}, false)
}

// A definition that was written past the gateway is fetched anew when it is no longer
// good, even while answers are kept for which none is needed, and ends them.
func TestDefinitionWrittenElsewhere(t *testing.T) {
	const url, above = "http://x.example/elsewhere", "http://x.example/above"
	s := newDefinitionStore()
	p := newPersisted(t, "definitions backend", s)
	p.run(func(g *gateway) {
		p.running().Fetched().TTL = time.Nanosecond
		s.resources["ValueSet/1"], s.resources["ValueSet/2"] = listing("1", url, "1"), listing("2", above, "0", url)
		g.wantCodes(t, above, "0 1")
		if _, status := g.codesOf(t, above); !strings.Contains(status, "hit") {
			t.Fatal(status)
		}
		s.mu.Lock()
		s.resources["ValueSet/1"] = listing("1", url, "2")
		s.mu.Unlock()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		for { // what is fetched in the background
			if codes, _ := g.codesOf(t, above); slices.Equal(codes, []string{"0", "2"}) {
				return
			}
			if ctx.Err() != nil {
				t.Fatal("it is not noticed")
			}
		}
	}, false)
}

// A changed file is noticed; a broken one is reported, and what was there stays.
func TestChangedFileIsNoticed(t *testing.T) {
	const url = "http://x.example/changing"
	file := writeFile(t, "vs.json", listing("v", url, "1"))
	g := frontGateway(t, "core off\ndefinitions "+file+"\nwatch_interval 10ms", http.NotFoundHandler())
	g.wantCodes(t, url, "1")
	g.until(t, file, listing("v", url, "1 2"), func() bool { codes, _ := g.codesOf(t, url); return len(codes) == 2 })
	g.wantCodes(t, url, "1 2")
	failed := func() bool {
		return slices.ContainsFunc(loadedDefinitions(), func(s definitionsStatus) bool { return s.Error != "" && strings.Contains(s.Error, file) })
	}
	g.until(t, file, `{"resourceType":"ValueSet","url":`, failed)
	if g.series()["caddy_fhir_definitions_load_failed"] < 1 {
		t.Error("the metrics do not tell")
	}
	g.wantCodes(t, url, "1 2")
	g.until(t, file, listing("v", url, "3"), func() bool { return !failed() })
	g.wantCodes(t, url, "3")
}

// until waits for what comes of a changed file.
func (g *gateway) until(t *testing.T, file, content string, there func() bool) {
	t.Helper()
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
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

// The admin API ends answers: all, those of a value set, those with concepts of a
// code system.
func TestPurgeEndsAnswers(t *testing.T) {
	const a, b = "http://x.example/purge-a", "http://x.example/purge-b"
	file := writeFile(t, "vs.json", `{"resourceType":"Bundle","type":"collection","entry":[{"resource":`+listing("a", a, "1")+`},{"resource":`+
		strings.ReplaceAll(listing("b", b, "2"), "http://x.example/cs", "http://x.example/cs2")+`}]}`)
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

// What is asked of an upstream with many filters is fetched whole, and searched here.
func TestPullThrough(t *testing.T) {
	origin := newGateway(t, frontCaddyfile("ttl off", noBackend))
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		r.Host = "localhost:8443"
		origin.server.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	g := newGateway(t, frontCaddyfile("core off\nupstream "+server.URL+"/fhir/R4\npull_through 3", noBackend))
	search := func(filter string) string {
		return read(t, g.get(expandPath("http://hl7.org/fhir/ValueSet/languages")+"&filter="+filter, ""))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for n := 0; ; n++ { // until what is fetched in the background is there
		before := asked.Load()
		if got := search(fmt.Sprintf("g%d", n)); strings.Contains(got, "issue") {
			t.Fatal(got)
		}
		if asked.Load() == before {
			break
		}
		if ctx.Err() != nil {
			t.Fatal("each filter is asked for")
		}
	}
	before := asked.Load()
	if got := search("germ"); !strings.Contains(got, "German") {
		t.Error(got)
	}
	if asked.Load() != before {
		t.Error("it was asked all the same")
	}
	r := httptest.NewRequest(http.MethodPatch, "/fhir/R4/CodeSystem/1", nil)
	if response := g.send(r); response.StatusCode != http.StatusBadGateway { // it may have been done
		t.Fatal(response.StatusCode)
	}
	if search("fren"); asked.Load() == before {
		t.Error("it was not asked after a write")
	}
}

// A server that does not answer asynchronously ignores that it is asked to (RFC 7240
// §2), and ranges are not offered.
func TestPreferences(t *testing.T) {
	g := frontGateway(t, "ttl 1h", newScripted("good"))
	for _, url := range []string{genderSet, foreign} {
		for range 3 {
			r := httptest.NewRequest(http.MethodGet, expandPath(url), nil)
			r.Header.Set("Prefer", "respond-async")
			r.Header.Set("Range", "bytes=0-10")
			response := g.send(r)
			if response.StatusCode != http.StatusOK || response.Header.Get("Preference-Applied") != "" || response.Header.Get("Content-Location") != "" {
				t.Errorf("%d %v", response.StatusCode, response.Header)
			}
		}
	}
}

// A large expansion is written as it is made, each time; only what has a size to be
// kept is held.
func TestLargeAnswersAreMadeAnew(t *testing.T) {
	var system strings.Builder
	system.WriteString(`{"resourceType":"CodeSystem","url":"http://x.example/large","valueSet":"http://x.example/all","status":"active","content":"complete","concept":[`)
	for i := range 40_000 {
		fmt.Fprintf(&system, `{"code":"%d","display":"concept number %d"},`, i, i)
	}
	system.WriteString(`{"code":"last"}]}`)
	g := newGateway(t, frontCaddyfile("max_entries 100000\ndefinitions "+writeFile(t, "large.json", system.String()), noBackend))
	for _, tt := range []struct{ query, last string }{{"&count=20", "hit"}, {"", "miss"}} {
		var size int
		var status string
		for range 3 {
			r := g.get(expandPath("http://x.example/all")+tt.query, "")
			size, status = len(read(t, r)), r.Header.Get("Cache-Status")
		}
		if !strings.Contains(status, tt.last) || tt.query == "" && size <= 2<<20 {
			t.Errorf("%q: %d bytes, Cache-Status %q", tt.query, size, status)
		}
	}
}

// What is refused says nothing of a cache, and how long it may be kept is for
// whoever writes the error to say.
func TestRefusedIsNoneOfTheCache(t *testing.T) {
	g := frontGateway(t, "ttl 1h", newScripted("good"))
	r := g.get(expandPath(genderSet)+"&count=x", "")
	if r.StatusCode != http.StatusBadRequest || r.Header.Get("Cache-Status") != "" || strings.Contains(r.Header.Get("Cache-Control"), "public") {
		t.Errorf("%d %v", r.StatusCode, r.Header)
	}
}

// What was made of the old resource while a write was under way does not outlive
// the write.
func TestWriteForgetsWhatWasMadeMeanwhile(t *testing.T) {
	const url = "http://x.example/vs"
	var code atomic.Value
	code.Store("old")
	g := frontGateway(t, "ttl 1h", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/fhir+json")
		_, _ = io.WriteString(w, expansionOf(url, code.Load().(string)))
	}))
	next := caddyhttp.HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusOK) // from here on the client may know
		g.wantCodes(t, url, "old")
		code.Store("new")
		return nil
	})
	r := httptest.NewRequest(http.MethodPut, "/fhir/R4/ValueSet/1", strings.NewReader(listing("1", url, "new")))
	r.Header.Set("Content-Type", "application/fhir+json")
	if err := provisioned(t).front.ServeHTTP(httptest.NewRecorder(), r, next); err != nil {
		t.Fatal(err)
	}
	g.wantCodes(t, url, "new")
}
