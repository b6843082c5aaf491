package enforce_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/enforce"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/ownheader"
)

// paging is a next handler that answers with a page whose links are the server's.
type paging func(w http.ResponseWriter)

const serverPage = `{"resourceType":"Bundle","type":"searchset","link":[{"relation":"next","url":"http://server.example/fhir/Patient?page=2"}]}`

func (a paging) ServeHTTP(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/fhir+json")
	a(w)
	_, err := w.Write([]byte(serverPage))
	return err
}

// late is a handler in between that writes the header with the body.
type late struct {
	http.ResponseWriter
	status int
}

func (l *late) WriteHeader(status int) { l.status = status }

func (l *late) Unwrap() http.ResponseWriter { return l.ResponseWriter }

func (l *late) Write(b []byte) (int, error) {
	l.ResponseWriter.WriteHeader(l.status)
	return l.ResponseWriter.Write(b)
}

// TestOwnHeader checks that only an answer to an operation on definitions passes unread, and only as far as it was begun by
// the process itself: nothing that another server sends makes its answer one.
func TestOwnHeader(t *testing.T) {
	t.Parallel()
	const expand, everything = "/fhir/R4/ValueSet/$expand", "/fhir/R4/Patient/$everything"
	for _, tt := range []struct {
		name, path string
		answer     paging
		passes     bool
	}{
		{"our own", expand, func(w http.ResponseWriter) { ownheader.Write(w, http.StatusOK) }, true},
		{"our own, below other handlers' writers", expand, func(w http.ResponseWriter) { ownheader.Write(http.ResponseWriter(wrapping{w}), http.StatusOK) }, true},
		{"the next handler's", expand, func(w http.ResponseWriter) { w.WriteHeader(http.StatusOK) }, false},
		{"the next handler's, begun by its body", expand, func(http.ResponseWriter) {}, false},
		{"the next handler's, with headers", expand, func(w http.ResponseWriter) {
			for _, name := range []string{"Own", "X-Own", "X-Begin-Own", "Cache-Status", "X-Guard-Decision", "Via"} {
				w.Header().Set(name, "own; caddy-fhir; hit")
			}
			w.Header().Set("Trailer", "Own")
			w.WriteHeader(http.StatusOK)
		}, false},
		{"the next handler's, after one of ours that came to nothing", expand, func(w http.ResponseWriter) {
			ownheader.Write(&late{ResponseWriter: w}, http.StatusOK)
			w.WriteHeader(http.StatusOK)
		}, false},
		{"held back by a handler in between", expand, func(w http.ResponseWriter) {
			l := &late{ResponseWriter: w}
			ownheader.Write(l, http.StatusOK)
			_, _ = l.Write(nil)
		}, false},
		{"an operation on records", everything, func(w http.ResponseWriter) { ownheader.Write(w, http.StatusOK) }, false},
		{"a search", "/fhir/R4/Patient", func(w http.ResponseWriter) { ownheader.Write(w, http.StatusOK) }, false},
		{"a search of definitions", "/fhir/R4/ValueSet", func(w http.ResponseWriter) { ownheader.Write(w, http.StatusOK) }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t)
			w := httptest.NewRecorder()
			rights := access.New(access.Holder{Scope: "system/*.rs"}, g.Shared)
			if err := g.Serve(w, httptest.NewRequest(http.MethodGet, tt.path, nil), tt.answer, enforce.Bearer{Rights: rights}); err != nil {
				t.Fatal(err)
			}
			if got := w.Body.String(); strings.Contains(got, "server.example") != tt.passes || !strings.Contains(got, `"Bundle"`) {
				t.Errorf("%d %s", w.Code, got)
			}
		})
	}
	w := httptest.NewRecorder()
	if ownheader.Write(w, http.StatusTeapot); w.Code != http.StatusTeapot {
		t.Errorf("without a guard: %d", w.Code)
	}
}

// wrapping is another handler's writer.
type wrapping struct{ http.ResponseWriter }

func (w wrapping) Unwrap() http.ResponseWriter { return w.ResponseWriter }
