package e2e

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
)

// TestGuardServerChallenges checks that a 401, 407 or redirect from the FHIR server becomes a 502 that contains only the
// gateway's headers, and that it is logged.
func TestGuardServerChallenges(t *testing.T) {
	t.Parallel()
	h := hapiServer(t)
	f := frontOf(t, h.fhirAPI)
	w := newTestPatients()
	f.before = func(rw http.ResponseWriter, r *http.Request) bool {
		_, path, _ := strings.Cut(r.URL.Path, "/fhir/")
		status, err := strconv.Atoi(strings.TrimPrefix(path, "Observation/s"))
		if err != nil {
			return false
		}
		rw.Header().Set("WWW-Authenticate", `Basic realm="`+f.base+`"`)
		rw.Header().Set("Location", f.base+"/login")
		rw.Header().Set("Set-Cookie", "server=1")
		rw.Header().Set("Refresh", "0; url="+f.base)
		rw.Header().Set("Content-Type", "text/html")
		rw.Header().Set("Content-Length", "9")
		rw.WriteHeader(status)
		if r.Method != http.MethodHead {
			_, _ = io.WriteString(rw, "sign in 9")
		}
		return true
	}
	g := startGuarded(t, "challenges", f.fhirAPI)
	for name, who := range holdersByScope(w) {
		for _, status := range []int{301, 302, 303, 307, 308, 401, 407} {
			for _, method := range []string{"GET", "HEAD", "DELETE"} {
				request := fmt.Sprintf("%s Observation/s%d", method, status)
				a, err := g.http1(t, who, request)
				if err != nil {
					t.Errorf("%s: %s: %v", name, request, err)
				}
				if a.status != http.StatusBadGateway {
					t.Errorf("%s: %s: %d, want 502", name, request, a.status)
				}
				for _, header := range []string{"WWW-Authenticate", "Proxy-Authenticate", "Location", "Set-Cookie", "Refresh"} {
					if value := a.header.Get(header); value != "" {
						t.Errorf("%s: %s: %s is %q", name, request, header, value)
					}
				}
				if _, err := g.trySend(t, g.token(t, who), method, fmt.Sprintf("Observation/s%d", status), ""); err != nil {
					t.Errorf("%s: %s by HTTP/2: %v", name, request, err)
				}
				if method == "GET" && a.status == http.StatusBadGateway {
					a.isOutcome(t)
				}
			}
		}
	}
	log, err := os.ReadFile(g.gateway.process.log)
	if err != nil {
		t.Fatal(err)
	}
	for _, status := range []string{"401", "302"} {
		if !strings.Contains(string(log), status) {
			t.Errorf("the log has no %s: %.500s", status, log)
		}
	}
}
