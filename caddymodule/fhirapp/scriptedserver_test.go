package fhirapp

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
)

// scripted is a FHIR server that answers $expand as it is told to, and counts.
type scripted struct {
	mode  atomic.Value // a string
	asked atomic.Int64
	gate  chan struct{} // nil: answers at once
}

func newScripted(mode string) *scripted {
	s := new(scripted)
	s.mode.Store(mode)
	return s
}

// expansionOf is an expansion with one code.
func expansionOf(url, code string) string {
	return fmt.Sprintf(`{"resourceType":"ValueSet","url":%q,"status":"active","expansion":{"timestamp":"2026-01-01","total":1,"contains":[{"system":"http://x.example/cs","code":%q}]}}`, url, code)
}

func (s *scripted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.asked.Add(1)
	if s.gate != nil {
		<-s.gate
	}
	_, _ = io.Copy(io.Discard, r.Body)
	whole := expansionOf(r.URL.Query().Get("url"), "theirs")
	header := w.Header()
	header.Set("Content-Type", "application/fhir+json")
	switch mode := s.mode.Load(); mode {
	case "good":
		_, _ = io.WriteString(w, whole)
	case "good at once only":
		header.Set("Cache-Control", "max-age=0")
		_, _ = io.WriteString(w, whole)
	case "killed":
		panic(http.ErrAbortHandler)
	case "hanging":
		<-r.Context().Done()
	case "garbage":
		_, _ = io.WriteString(w, `{"resourceType":"ValueSet","expansion":{`)
	case "a page":
		header.Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "<html>Welcome</html>")
	case "another resource":
		_, _ = io.WriteString(w, `{"resourceType":"Bundle"}`)
	case "500":
		w.WriteHeader(http.StatusInternalServerError)
	case "gzip bomb":
		header.Set("Content-Encoding", "gzip")
		_, _ = w.Write(gzipBomb())
	case "hints and trailers":
		header.Set("Link", "</style.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		header.Del("Link")
		header.Set("Trailer", "X-Checksum")
		_, _ = io.WriteString(w, whole)
		header.Set("X-Checksum", "1")
	case "half a body":
		header.Set("Content-Length", fmt.Sprint(len(whole)))
		_, _ = io.WriteString(w, whole[:len(whole)/2])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	default:
		panic(fmt.Sprint("no such mode: ", mode))
	}
}

// gzipBomb is an expansion of 32 MiB, twice of what is held of an answer.
var gzipBomb = sync.OnceValue(func() []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = io.WriteString(w, `{"resourceType":"ValueSet","expansion":{},"x":"`)
	for range 32 {
		_, _ = w.Write(bytes.Repeat([]byte("x"), 1<<20))
	}
	_, _ = io.WriteString(w, `"}`)
	_ = w.Close()
	return b.Bytes()
})

// frontGateway is fhir_expand with some settings before a backend, without a guard.
func frontGateway(t testing.TB, settings string, backend http.Handler) *gateway {
	t.Helper()
	return newGateway(t, frontCaddyfile(settings, gatewaytest.Backend(t, backend)))
}

func frontCaddyfile(settings, backend string) string {
	return `{
	auto_https disable_redirects
	skip_install_trust
}

https://localhost:8443 {
	fhir_expand {
		` + strings.ReplaceAll(settings, "\n", "\n\t\t") + `
	}
	reverse_proxy ` + backend + `
	handle_errors {
		fhir_outcome
	}
}
`
}

func expandPath(url string) string { return "/fhir/R4/ValueSet/$expand?url=" + url }

// askFor expands a value set for whom credentials stand.
func (g *gateway) askFor(url, credentials string) *http.Response {
	r := httptest.NewRequest(http.MethodGet, expandPath(url), nil)
	if credentials != "" {
		r.Header.Set("Authorization", credentials)
	}
	return g.Send(r)
}

const foreign = "http://x.example/vs"

// terminologyServer is one that upstream settings can name.
func terminologyServer(t testing.TB, handler http.Handler) string {
	t.Helper()
	return "http://" + gatewaytest.Backend(t, handler) + "/r4"
}
