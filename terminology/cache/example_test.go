package cache_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/caddy-fhir/caddy-fhir/terminology/cache"
)

// A handler serves responses from the cache and passes a producer for misses.
func ExampleCache_Serve() {
	answers := cache.New(cache.Options{MaxSize: 256 << 20})
	scheme := &cache.Scheme{Namespace: "/fhir/R4", VaryBy: cache.VaryByNone}
	expand := func(r *http.Request) (*cache.Response, error) {
		fmt.Println("asked for", r.URL.Query().Get("filter"), "as", r.Header.Get("Accept"))
		return &cache.Response{
			Status: http.StatusOK,
			Header: http.Header{"Content-Type": {"application/fhir+json"}, "Cache-Control": {"max-age=600"}},
			Body:   []byte(`{"resourceType":"ValueSet"}`),
			Tags:   []string{"http://example.org/vs|1.0", "http://example.org/cs"},
		}, nil
	}
	handler := func(w http.ResponseWriter, r *http.Request) {
		err := answers.Serve(w, r, &cache.Call{Scheme: scheme, Produce: expand})
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
		}
	}
	ask := func(query string) {
		w := httptest.NewRecorder()
		handler(w, httptest.NewRequest(http.MethodGet, "/fhir/R4/ValueSet/$expand?"+query, nil))
		fmt.Println(w.Header().Get("Cache-Status"))
	}
	ask("url=http://example.org/vs&filter=asth")
	ask("filter=asth&url=http://example.org/vs&_format=json")
	fmt.Println("removed:", answers.InvalidateSystem("http://example.org/cs"))
	ask("url=http://example.org/vs&filter=asth")

	// Output:
	// asked for asth as application/fhir+json
	// caddy-fhir; fwd=miss; fwd-status=200; stored
	// caddy-fhir; hit; ttl=600
	// removed: 1
	// asked for asth as application/fhir+json
	// caddy-fhir; fwd=miss; fwd-status=200; stored
}
