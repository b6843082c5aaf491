package e2e

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// TestGuardLargePages checks that a search for 50 records of 20 MB in total returns all of them. If a single resource exceeds
// the size limit under a bound scope, the error contains the limit.
func TestGuardLargePages(t *testing.T) {
	t.Parallel()
	h := hapiServer(t)
	w := newTestPatients()
	_, reports := h.manyReports(t, w)
	f := frontOf(t, h.fhirAPI)
	f.naming = ownAddress(f.base)
	f.body = func(r *http.Request, body []byte) []byte {
		if !bytes.Contains(body, []byte(`"conclusion":"pad"`)) {
			return body
		}
		size := 400 << 10
		if strings.HasSuffix(r.URL.Path, reports[0]) {
			size = 17 << 20
		}
		return bytes.ReplaceAll(body, []byte(`"conclusion":"pad"`), []byte(`"conclusion":"`+strings.Repeat("lorem ipsum ", size/12)+`"`))
	}
	g := startGuarded(t, "large", f.fhirAPI)
	for holder, size := range map[string]int{"system": 50, "user": 120, "patient": 50} {
		t.Run(holder, func(t *testing.T) {
			g.finds120(t, holdersByScope(w)[holder], fmt.Sprintf("DiagnosticReport?patient=%s&_count=%d", w.names["{patient}"], size))
		})
	}
	t.Run("above the limit", func(t *testing.T) {
		a := g.send(t, holdersByScope(w)["patient"], http.MethodGet, "DiagnosticReport/"+reports[0], "")
		if a.status < 400 || !strings.Contains(string(a.body), "16777216 bytes") {
			t.Errorf("%d with %d bytes does not contain the size limit: %.300s", a.status, len(a.body), a.body)
		}
	})
}
