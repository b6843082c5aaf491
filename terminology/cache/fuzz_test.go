package cache

import (
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology/negotiation"
)

// FuzzHeaders parses arbitrary headers and queries.
func FuzzHeaders(f *testing.F) {
	f.Add("gzip;q=0.5, *;q=0", `W/"a", "b"`, "text/html, */*;q=0.1", "max-age=1, no-store", "a=b&_format=json")
	f.Add(`"`, `W/`, `a/b;c="`, `="`, "%")
	f.Fuzz(func(t *testing.T, encoding, match, accept, control, query string) {
		w := acceptedCodings([]string{encoding})
		for c, q := range w {
			if q < 0 || q > negotiation.MaxWeight {
				t.Fatalf("weight of %d is %d", c, q)
			}
		}
		if best := w.best(func(coding) bool { return true }); best != identityCoding && (w[best] == 0 || w[best] < w[identityCoding]) {
			t.Fatalf("%q chooses %d of %v", encoding, best, w)
		}
		for tag := range entityTags([]string{match}) {
			if strings.Contains(tag, `"`) || tag != "*" && !strings.Contains(match, `"`+tag+`"`) {
				t.Fatalf("%q has tag %q", match, tag)
			}
		}
		parseClientDirectives(http.Header{"Cache-Control": {control}})
		r := get("http://h/p", "Accept: "+accept)
		r.URL.RawQuery = query
		if q, err := plain.target(r, Principal{}, nil); err == nil {
			header := make(http.Header)
			q.representation.apply(header)
			if format, _ := negotiation.PreferredFormat(header["Accept"]); format != q.representation.format {
				t.Fatalf("Accept: %s asks for %d, not %d", header["Accept"], format, q.representation.format)
			}
		}
	})
}
