package terminologytest_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/expansion"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
)

// synthetic is the code system used by the benchmarks.
var synthetic = terminologytest.CodeSystem{URL: "http://x/synthetic", Concepts: 100_000, Designations: 3}

// library returns a library with the code system synthetic. It is loaded once.
var library = sync.OnceValues(func() (*terminology.Library, error) {
	folder, err := os.MkdirTemp("", "synthetic")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	f, err := os.Create(filepath.Join(folder, "cs.json"))
	if err != nil {
		return nil, err
	}
	if err := synthetic.Write(f); err != nil {
		return nil, err
	}
	if err := f.Close(); err != nil {
		return nil, err
	}
	all, tree := synthetic.ValueSets()
	if err := os.WriteFile(filepath.Join(folder, "vs.json"), []byte(all+tree+synthetic.ListValueSet("/listed", 2000)), 0o600); err != nil {
		return nil, err
	}
	return terminology.Load(context.Background(), definitions.Options{Definitions: []string{folder}})
})

// discardWriter is a response writer that discards the body and counts its bytes.
type discardWriter struct {
	header http.Header
	n      int64
}

func (d *discardWriter) Header() http.Header { return d.header }
func (*discardWriter) WriteHeader(int)       {}
func (d *discardWriter) Write(p []byte) (int, error) {
	d.n += int64(len(p))
	return len(p), nil
}

// benchmark sends $expand requests with the given queries in rotation.
func benchmark(b *testing.B, valueSet string, queries ...string) {
	l, err := library()
	if err != nil {
		b.Fatal(err)
	}
	h := &api.Handler{Library: l, Limits: expansion.Limits{Entries: synthetic.Concepts}}
	var requests []*http.Request
	for _, query := range queries {
		query = "url=" + url.QueryEscape(synthetic.URL+valueSet) + "&" + query
		requests = append(requests, &http.Request{Method: http.MethodGet, Header: http.Header{}, URL: &url.URL{Path: "/ValueSet/$expand", RawQuery: query}})
	}
	w := &discardWriter{header: http.Header{}}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if err := h.Expand(w, requests[i%len(requests)]); err != nil {
			b.Fatal(err)
		}
		i++
	}
	b.SetBytes(w.n / int64(i))
}

// BenchmarkTyping measures filters by length. They are prefixes of texts that users type.
func BenchmarkTyping(b *testing.B) {
	typed := synthetic.SearchTexts(1000)
	for length := 1; length <= 10; length++ {
		var queries []string
		for _, t := range typed {
			if runes := []rune(t); len(runes) >= length {
				queries = append(queries, "count=20&filter="+url.QueryEscape(string(runes[:length])))
			}
		}
		b.Run(fmt.Sprintf("letters=%d", length), func(b *testing.B) { benchmark(b, "/all", queries...) })
	}
}

// BenchmarkTypingWords measures filters of one to ten letters. They are prefixes of single words and codes.
func BenchmarkTypingWords(b *testing.B) {
	var queries []string
	for _, word := range typedWords() {
		queries = append(queries, "count=20&filter="+word)
	}
	benchmark(b, "/all", queries...)
}

// typedWords returns prefixes of single words and codes with one to ten letters, escaped for a query.
func typedWords() (words []string) {
	for _, t := range synthetic.SearchTexts(2000) {
		runes := []rune(t)
		for length := 1; length <= min(10, len(runes)) && !strings.Contains(t, " "); length++ {
			words = append(words, url.QueryEscape(string(runes[:length])))
		}
	}
	return words
}

// BenchmarkOrigins measures filters on the same codes in a loaded value set, an implicit value set, and a value set that is
// posted with each request.
func BenchmarkOrigins(b *testing.B) {
	all, _ := synthetic.ValueSets()
	for _, tt := range []struct{ name, query, body string }{
		{"loaded", "url=" + synthetic.URL + "/all", ""},
		{"implied=valueSet", "url=" + synthetic.URL + "/entire", ""},
		{"implied=fhir_vs", "url=" + url.QueryEscape(synthetic.URL+"?fhir_vs"), ""},
		{"posted", "", strings.Replace(all, "/all", "/posted", 1)},
		{"tree=loaded", "url=" + synthetic.URL + "/tree", ""},
		{"tree=implied", "url=" + url.QueryEscape(synthetic.URL+"?fhir_vs=isa/"+synthetic.Code(0)), ""},
		{"list=loaded", "url=" + synthetic.URL + "/listed", ""},
		{"list=posted", "", synthetic.ListValueSet("/posted", 2000)},
	} {
		b.Run(tt.name, func(b *testing.B) { benchmarkRequests(b, tt.query, tt.body, typedWords()) })
	}
}

// benchmarkRequests sends the filters in rotation. If body, a value set, is not empty, it uses POST, otherwise GET.
func benchmarkRequests(b *testing.B, query, body string, filters []string) {
	l, err := library()
	if err != nil {
		b.Fatal(err)
	}
	h, w := &api.Handler{Library: l}, &discardWriter{header: http.Header{}}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		r := httptest.NewRequest(http.MethodGet, "/ValueSet/$expand?"+query+"&count=20&filter="+filters[i%len(filters)], nil)
		if body != "" {
			r = httptest.NewRequest(http.MethodPost, r.URL.String(), strings.NewReader(body))
			r.Header.Set("Content-Type", "application/fhir+json")
		}
		if err := h.Expand(w, r); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkTypo(b *testing.B) { benchmark(b, "/all", "count=20&filter=nelpoasm") }

func BenchmarkIsA(b *testing.B) { benchmark(b, "/tree", "count=20") }

func BenchmarkIsAFiltered(b *testing.B) { benchmark(b, "/tree", "count=20&filter=dia") }

func BenchmarkUnpaged(b *testing.B) { benchmark(b, "/all", "") }
