package dispatch

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestBeginOwn checks that answers made here are begun as such, stored or not, and those of other servers never are: a
// guard that knows nothing else of them lets the former pass.
func TestBeginOwn(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, who, url string
		settings       settings
		own            bool
	}{
		{"made here", "next handler", genderSet, settings{}, true},
		{"made here, not stored", "next handler", genderSet, settings{off: true}, true},
		{"the next handler's", "next handler", foreign, settings{}, false},
		{"the next handler's, not stored", "next handler", foreign, settings{off: true}, false},
		{"an upstream's", "upstream", foreign, settings{}, false},
		{"an upstream's, not stored", "upstream", foreign, settings{off: true}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newSiteBefore(t, tt.who, tt.settings, expanding())
			for n := range 4 {
				for _, method := range []string{http.MethodGet, http.MethodHead} {
					before := g.host.own
					response := g.send(httptest.NewRequest(method, "/fhir/R4/ValueSet/$expand?url="+tt.url, nil))
					if got := g.host.own > before; got != tt.own || response.StatusCode != http.StatusOK {
						t.Errorf("%s %d: begun as made here: %v, %d %s", method, n, got, response.StatusCode, response.Header.Get("Cache-Status"))
					}
				}
			}
		})
	}
	g := newSite(t, settings{all: true}, http.NotFoundHandler())
	if response := g.get("/fhir/R4/ValueSet?url=" + genderSet); g.host.own > 0 || response.StatusCode/100 == 5 {
		t.Errorf("a search is begun as made here: %d, %d", g.host.own, response.StatusCode)
	}
}
