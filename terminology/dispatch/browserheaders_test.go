package dispatch

import (
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/caddy-fhir/caddy-fhir/terminology/negotiation"
)

// browserHeaders are values that browsers, and libraries in them, send. An empty one is not sent.
var browserHeaders = map[string][]string{
	"Accept-Language": {
		"", "*", "en-US,en;q=0.9", "en-US,en;q=0.5", "en-us,en;q=0.900", "de-DE,de;q=0.9,en-US;q=0.8,en;q=0.7", "de, en;q=0.5, *;q=0.1",
		"zh-Hans-CN,zh-Hant-TW;q=0.8,en-u-ca-gregory;q=0.3", "DE-ch, en-GB ;Q=0.50", "fr-CH, fr;q=0.9, en;q=0.8, de;q=0.7, *;q=0.5", "de,*;q=0", "en_US,12,;q=1", "de;q=2,en",
	},
	"Accept": {
		"", "*/*", "application/json, text/plain, */*", "application/fhir+json", "application/json+fhir", "application/fhir+xml", "application/xml+fhir;q=0.9, text/plain",
		"text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8", "application/xml;q=0.0004,application/json;q=0.5", "application/fhir+json; fhirVersion=4.0",
	},
	"Accept-Encoding": {"", "gzip, deflate, br", "gzip, deflate, br, zstd", "identity"},
	"Cache-Control":   {"", "no-cache", "max-age=0"},
	"Pragma":          {"", "no-cache"},
	"Sec-Fetch-Mode":  {"", "cors", "navigate"},
	"Origin":          {"", "https://app.example"},
	"User-Agent":      {"", "Mozilla/5.0 (X11; Linux x86_64)"},
}

// browserRequest makes a request with some of these headers.
func browserRequest(random *rand.Rand, path string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	for _, name := range slices.Sorted(maps.Keys(browserHeaders)) {
		values := browserHeaders[name]
		if value := values[random.IntN(len(values))]; value != "" {
			r.Header.Set(name, value)
		}
	}
	return r
}

// decoded returns the body of an answer, and its entity tag without what the coding adds.
func decoded(t *testing.T, response *http.Response) (body, tag string) {
	t.Helper()
	tag = strings.NewReplacer("-gz", "", "-zs", "").Replace(response.Header.Get("Etag"))
	var plain io.Reader = response.Body
	var err error
	switch response.Header.Get("Content-Encoding") {
	case "gzip":
		plain, err = gzip.NewReader(plain)
	case "zstd":
		plain, err = zstd.NewReader(plain)
	}
	if err != nil {
		t.Fatal(err)
	}
	all, err := io.ReadAll(plain)
	if err != nil {
		t.Fatal(err)
	}
	return string(all), tag
}

// What a browser asks for has the same body and the same tag at first and ever after, whoever asked before, stored or not:
// what it has, it need not get again.
func TestSameAnswerToABrowser(t *testing.T) {
	t.Parallel()
	stored, unstored := newSite(t, settings{}, http.NotFoundHandler()), newSite(t, settings{off: true}, http.NotFoundHandler())
	random := rand.New(rand.NewPCG(36, 1))
	for range 600 {
		r := browserRequest(random, "/fhir/R4/ValueSet/$expand?url="+genderSet)
		if !negotiation.HasXML() && negotiation.AcceptsXML(r.Header["Accept"]) {
			continue
		}
		body, tag := decoded(t, unstored.send(r.Clone(t.Context())))
		for n := range 3 {
			response := stored.send(r.Clone(t.Context()))
			if got, gotTag := decoded(t, response); response.StatusCode != http.StatusOK || got != body || gotTag != tag {
				t.Fatalf("%v: answer %d is %d %s\n%s\nnot %s\n%s", r.Header, n+1, response.StatusCode, gotTag, got, tag, body)
			}
		}
		again := r.Clone(t.Context())
		again.Header.Set("If-None-Match", tag)
		if got := stored.send(again); got.StatusCode != http.StatusNotModified {
			t.Fatalf("%v: %d to who has %s", r.Header, got.StatusCode, tag)
		}
	}
}

// What a browser sends reaches the next handler as browsers spell it.
func TestNextHandlerIsAskedAsBrowsersAsk(t *testing.T) {
	t.Parallel()
	g := newSite(t, settings{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/fhir+json")
		_, _ = io.WriteString(w, expansionOf(foreign, r.Header.Get("Accept-Language")))
	}))
	for _, language := range []string{"en-us , en;q=0.900", "en-US,en;q=0.9"} {
		r := httptest.NewRequest(http.MethodGet, "/fhir/R4/ValueSet/$expand?url="+foreign, nil)
		r.Header.Set("Accept-Language", language)
		if got := read(t, g.send(r)); !strings.Contains(got, `"en-US,en;q=0.9"`) {
			t.Errorf("%s: %s", language, got)
		}
	}
}
