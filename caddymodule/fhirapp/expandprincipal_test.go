package fhirapp

import (
	"compress/gzip"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
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
		method := pick(http.MethodGet, http.MethodHead)
		response := g.Ask(method, expandPath(url), "", "Authorization", user, "X-Tenant", tenant, "Accept-Language", language,
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

// codeIn is the one code of an expansion.
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

// decoded is an answer's body without its content coding.
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
	address := gatewaytest.Backend(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		w.Header().Set("Content-Type", "application/fhir+json")
		_, _ = io.WriteString(w, expansionOf(foreign, r.Header.Get("X-Who")+" "+r.Header.Get("X-Forwarded-Host")+r.Header.Get("Authorization")))
	}))
	for vary, want := range map[string]int64{"user": 2, "client": 2, "none": 1} {
		t.Run(vary, func(t *testing.T) {
			asked.Store(0)
			config := strings.Replace(gatewaytest.ExampleText(t, "fhir_expand\n", "fhir_expand {\n\t\t\tvary_by "+vary+"\n\t\t}\n"),
				"reverse_proxy @backend {env.FHIR_BACKEND} {", "reverse_proxy @backend "+address+" {\n\t\t\theader_up X-Who {http.auth.user.id}", 1)
			g := newGateway(t, config)
			service := g.serviceToken()
			alice := g.Token()
			for range 3 {
				for token, name := range map[string]string{alice: "alice", service: "demo-service"} {
					response := g.Get(expandPath(foreign), token)
					if body := gatewaytest.Read(t, response); vary != "none" {
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
			if asked.Load() != want {
				t.Errorf("asked %d times, want %d", asked.Load(), want)
			}
		})
	}
}

// A client does not get what the same person let it, or another one, see more of: the
// next handler may know scopes.
func TestAnswersAreForTheScope(t *testing.T) { // not parallel: a write of another test would end the answer
	var asked atomic.Int64
	g := exampleGateway(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/fhir+json")
		_, _ = io.WriteString(w, expansionOf(foreign, fmt.Sprint("answer ", asked.Add(1))))
	}))
	for n, scope := range []string{"openid user/*.rs", "openid", "openid user/*.rs"} {
		clear(g.Cookies)
		request := gatewaytest.DemoRequest()
		request.Set("scope", scope)
		token := g.TokenOf(request)
		want := []string{"answer 1", "answer 2", "answer 1"}[n]
		checkCodes(t, gatewaytest.Read(t, g.Get(expandPath(foreign), token)), want)
	}
}

// serviceToken is an access token of a client that acts on its own.
func (g *gateway) serviceToken() string {
	g.t.Helper()
	return g.AccessToken(url.Values{
		"grant_type": {"client_credentials"}, "scope": {"system/*.rs"}, "client_id": {"demo-service"}, "client_secret": {"demo-service-secret"},
	})
}

// What one user brought along under a cache-id, another one with the same id does
// not get: neither from what is remembered nor from the cache.
func TestCacheIDIsTheUsers(t *testing.T) {
	g := exampleGateway(t, http.NotFoundHandler())
	alice, service := g.Token(), g.serviceToken()
	brought := g.Ask(http.MethodPost, "/fhir/R4/ValueSet/$expand", `{"resourceType":"Parameters","parameter":[
		{"name":"url","valueUri":"`+foreign+`"},{"name":"cache-id","valueId":"1"},{"name":"tx-resource","resource":`+listing("v", foreign, "secret")+`}]}`,
		"Content-Type", "application/fhir+json", "Authorization", "Bearer "+alice)
	checkCodes(t, gatewaytest.Read(t, brought), "secret")
	for range 3 {
		for _, id := range []string{"&cache-id=1", "&cache%2Did=1"} {
			path := expandPath(url.QueryEscape(foreign)) + id
			if got := gatewaytest.Read(t, g.Get(path, alice)); !slices.Equal(expandedCodes(t, got), []string{"secret"}) {
				t.Errorf("%s for who brought it along: %s", id, got)
			}
			if got := g.Get(path, service); got.StatusCode != http.StatusNotFound {
				t.Errorf("%s for another: %d", id, got.StatusCode)
			}
		}
	}
}
