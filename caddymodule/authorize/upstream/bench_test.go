package upstream_test

import (
	"net/http"
	"testing"
)

// What a key costs that is there already, by what the provider says of caching:
// Keycloak says no-cache.
func BenchmarkKey(b *testing.B) {
	for _, cacheControl := range []string{"max-age=600", "no-cache"} {
		b.Run(cacheControl, func(b *testing.B) {
			good, s := ecPair("good"), &keyServer{header: http.Header{"Cache-Control": {cacheControl}}}
			s.serveKeys(good.public())
			keys := newKeySet(b, s)
			for b.Loop() {
				if _, err := keys.Key(b.Context(), "good"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
