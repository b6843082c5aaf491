package fhirapp

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
)

// For every value set of R4 (every tenth without -slow), the expansion is identical whether it is cached, generated for the
// request, requested by POST, or returned by another gateway.
func TestExpansionsAgree(t *testing.T) {
	t.Parallel()
	plain := newGateway(t, frontCaddyfile("ttl off\noperations all", gatewaytest.UnreachableBackend))
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Host = "localhost:8443"
		plain.Server.ServeHTTP(w, r)
	}))
	t.Cleanup(origin.Close)
	caching := newGateway(t, frontCaddyfile("ttl 1h", gatewaytest.UnreachableBackend))
	behind := newGateway(t, frontCaddyfile("core off\nmax_size 32MiB", strings.TrimPrefix(origin.URL, "http://")))
	distant := newGateway(t, frontCaddyfile("core off\nupstream "+origin.URL+"/fhir/R4", gatewaytest.UnreachableBackend))
	all, expanded, step := coreValueSets(t), 0, 10
	if *slow {
		step = 1
	}
	for urls := range slices.Chunk(all, step) {
		url := urls[0]
		response := plain.Get(expandPath(url), "")
		want := contains(gatewaytest.ReadBody(t, response))
		if response.StatusCode == http.StatusOK {
			expanded++
		}
		check := func(how string, got *http.Response) {
			body := gatewaytest.ReadBody(t, got)
			if failed := got.StatusCode != response.StatusCode; failed || contains(body) != want {
				t.Errorf("%s %s: %d, want %d: %.300s", url, how, got.StatusCode, response.StatusCode, body)
			}
		}
		for range 3 {
			check("kept", caching.Get(expandPath(url), ""))
		}
		for range 2 {
			check("by way of the backend", behind.Get(expandPath(url), ""))
			check("by way of an upstream", distant.Get(expandPath(url), ""))
		}
		for how, g := range map[string]*gateway{"by POST": caching, "by POST to an upstream": distant} {
			r := httptest.NewRequest(http.MethodPost, "/fhir/R4/ValueSet/$expand", strings.NewReader(`{"resourceType":"Parameters","parameter":[{"name":"url","valueUri":"`+url+`"}]}`))
			r.Header.Set("Content-Type", "application/fhir+json")
			got := g.Send(r)
			if flat := codesIn(gatewaytest.ReadBody(t, got)); flat != codesIn(gatewaytest.ReadBody(t, plain.Get(expandPath(url), ""))) && got.StatusCode == http.StatusOK {
				t.Errorf("%s %s: %s", url, how, flat)
			}
		}
	}
	if len(all) < 1300 || expanded < 1100/step {
		t.Errorf("%d value sets, of which %d expand", len(all), expanded)
	}
}

// coreValueSets returns the canonical URLs of the value sets of R4.
func coreValueSets(t *testing.T) (urls []string) {
	t.Helper()
	file, err := os.Open("../../terminology/definitions/core/r4.ndjson.zst")
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

// contains returns the JSON of an expansion's concepts.
func contains(body string) string {
	var got struct {
		Expansion struct {
			Contains json.RawMessage `json:"contains"`
		} `json:"expansion"`
	}
	_ = json.Unmarshal([]byte(body), &got)
	return string(got.Expansion.Contains)
}

// codesIn returns the codes of an expansion, including nested ones.
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

// An entity tag stays valid (RFC 9110 §13.1.2) whether the response was generated for the client, was cached, bypassed the
// cache, or was evicted.
func TestOneEntityTag(t *testing.T) {
	t.Parallel()
	g := frontGateway(t, "ttl 1h", http.NotFoundHandler())
	ask := func(headers ...string) *http.Response {
		return g.Get(expandPath(genderSet), "", headers...)
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

// A large expansion is generated and streamed for each request. Responses are buffered only if they fit into the cache.
func TestLargeExpansionsAreNotCached(t *testing.T) {
	t.Parallel()
	var system strings.Builder
	system.WriteString(`{"resourceType":"CodeSystem","url":"http://x.example/large","valueSet":"http://x.example/all","status":"active","content":"complete","concept":[`)
	for i := range 40_000 {
		fmt.Fprintf(&system, `{"code":"%d","display":"concept number %d"},`, i, i)
	}
	system.WriteString(`{"code":"last"}]}`)
	g := newGateway(t, frontCaddyfile("max_entries 100000\ndefinitions "+gatewaytest.WriteFile(t, "large.json", system.String()), gatewaytest.UnreachableBackend))
	for _, tt := range []struct{ query, last string }{{"&count=20", "hit"}, {"", "miss"}} {
		var size int
		var status string
		for range 3 {
			r := g.Get(expandPath("http://x.example/all")+tt.query, "")
			size, status = len(gatewaytest.ReadBody(t, r)), r.Header.Get("Cache-Status")
		}
		if !strings.Contains(status, tt.last) || tt.query == "" && size <= 2<<20 {
			t.Errorf("%q: %d bytes, Cache-Status %q", tt.query, size, status)
		}
	}
}

// encodeGateway uses Caddy's encode to compress responses that fhir_expand does not compress, as docs/reference/fhir_expand.md
// describes.
const encodeGateway = `{
	auto_https disable_redirects
	skip_install_trust
}

https://localhost:8443 {
	encode {
		match {
			header Content-Type application/fhir+*
		}
	}
	fhir_expand {
		ttl off
	}
}
`

// Caddy's encode modifies entity tags. A client that sends a modified tag gets 304 as long as the response is the same.
func TestExpandEncoded(t *testing.T) {
	t.Parallel()
	g := newGateway(t, encodeGateway)
	ask := func(query, encoding, tag string) *http.Response {
		return g.Get("/fhir/R4/ValueSet/$expand?url=http://hl7.org/fhir/ValueSet/"+query, "", "Accept-Encoding", encoding, "If-None-Match", tag)
	}
	for _, query := range []string{"languages", "languages&_format=xml", "spdx-license&excludeNested=true"} {
		if strings.Contains(query, "xml") && !terminologytest.HasFeature("xml") {
			continue
		}
		plain := ask(query, "", "")
		identity := plain.Header.Get("ETag")
		want := gatewaytest.ReadBody(t, plain)
		for encoding, reader := range map[string]func(io.Reader) (io.Reader, error){
			"gzip": func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) },
			"zstd": func(r io.Reader) (io.Reader, error) { return zstd.NewReader(r) },
		} {
			t.Run(query+" "+encoding, func(t *testing.T) {
				response := ask(query, encoding, "")
				tag := response.Header.Get("ETag")
				if response.Header.Get("Content-Encoding") != encoding || tag != strings.TrimSuffix(identity, `"`)+"-"+encoding+`"` {
					t.Fatalf("Content-Encoding %q, ETag %s", response.Header.Get("Content-Encoding"), tag)
				}
				if vary := gatewaytest.HeaderList(response.Header, "Vary"); !slices.Contains(vary, "Accept-Encoding") || !slices.Contains(vary, "Accept-Language") {
					t.Errorf("Vary %q", vary)
				}
				body, err := reader(response.Body)
				if err != nil {
					t.Fatal(err)
				}
				if got, err := io.ReadAll(body); err != nil || string(got) != want {
					t.Errorf("%v, got %d bytes, want %d", err, len(got), len(want))
				}
				for _, ifNoneMatch := range []string{tag, "W/" + tag, `"x", ` + tag, identity} {
					again := ask(query, encoding, ifNoneMatch)
					if body := gatewaytest.ReadBody(t, again); again.StatusCode != http.StatusNotModified || body != "" {
						t.Errorf("If-None-Match %s: %d with %d bytes", ifNoneMatch, again.StatusCode, len(body))
					}
				}
				if other := ask(query+"&count=50", encoding, tag); other.StatusCode != http.StatusOK {
					t.Errorf("of another answer: %d", other.StatusCode)
				}
			})
		}
	}
}

// Behind Caddy's encode, uncached responses are compressed by encode, and cached responses are not modified. Both can be
// revalidated.
func TestCachedBehindEncode(t *testing.T) {
	t.Parallel()
	g := newGateway(t, strings.Replace(encodeGateway, "ttl off", "ttl 1h", 1))
	const path = "/fhir/R4/ValueSet/$expand?url=http://hl7.org/fhir/ValueSet/spdx-license"
	ask := func(tag string) *http.Response {
		return g.Get(path, "", "Accept-Encoding", "gzip", "If-None-Match", tag)
	}
	var bodies []string
	var tags []string
	for range 5 {
		response := ask("")
		if got := response.Header["Content-Encoding"]; len(got) != 1 || got[0] != "gzip" {
			t.Errorf("Content-Encoding %q", got)
		}
		bodies, tags = append(bodies, decoded(t, response)), append(tags, response.Header.Get("Etag"))
		for _, tag := range tags {
			if again := ask(tag); again.StatusCode != http.StatusNotModified {
				t.Errorf("If-None-Match %s: %d, %v", tag, again.StatusCode, again.Header)
			}
		}
	}
	for _, body := range bodies {
		if body == "" || body != bodies[0] {
			t.Errorf("%d bytes, and %d before", len(body), len(bodies[0]))
		}
	}
}
