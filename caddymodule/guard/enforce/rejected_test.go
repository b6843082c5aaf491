package enforce_test

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/capability"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/enforce"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
)

// wholeRequests are requests of each way through the guard: as method, path and body.
var wholeRequests = [][3]string{
	{"GET", "Observation/a1", ""},
	{"HEAD", "Observation/a1", ""},
	{"GET", "Observation/a1/_history/1", ""},
	{"GET", "Observation/a1/_history", ""},
	{"GET", "Observation", ""},
	{"GET", "Observation?patient=a", ""},
	{"GET", "Patient/a/$everything", ""},
	{"GET", "Observation/a1/$meta", ""},
	{"GET", "ValueSet/$expand?url=x", ""},
	{"GET", "Binary/a1", ""},
	{"POST", "Observation", `{"resourceType":"Observation","status":"final","subject":{"reference":"Patient/a"}}`},
	{"PUT", "Observation/a1", `{"resourceType":"Observation","id":"a1","status":"final","subject":{"reference":"Patient/a"}}`},
	{"DELETE", "Observation/a1", ""},
	{"GET", "metadata", ""},
}

// through has a request answered by a gateway over HTTP, in front of a handler.
func through(t *testing.T, h access.Holder, method, path, body string, next handler) *http.Response {
	t.Helper()
	response, _ := throughLogged(t, h, method, path, body, next)
	return response
}

// throughLogged is through, and returns the error that the gateway logs.
func throughLogged(t *testing.T, h access.Holder, method, path, body string, next handler) (*http.Response, error) {
	t.Helper()
	g := newGateway(t)
	var logged error
	outside := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Server", "Caddy")
		err := g.Serve(w, r, next, enforce.Bearer{Rights: access.New(h, g.Shared)})
		if refusal, ok := errors.AsType[*guard.Error](err); ok {
			logged = err
			http.Error(w, refusal.Description, refusal.Status)
		}
	}))
	defer outside.Close()
	request, err := http.NewRequestWithContext(t.Context(), method, outside.URL+"/fhir/R4/"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		request.Header.Set("Content-Type", "application/fhir+json")
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	response.Body = io.NopCloser(bytes.NewReader(text))
	return response, logged
}

// TestCredentialsAndRedirects checks that the FHIR server's requests for credentials and its redirects become 502 under
// every scope, without its headers, and that the log says what to do.
func TestCredentialsAndRedirects(t *testing.T) {
	t.Parallel()
	for _, status := range []int{300, 301, 302, 303, 307, 308, 401, 407} {
		next := handler(func(w http.ResponseWriter, _ *http.Request) error {
			w.Header().Set("Location", "https://files.internal/secret?signature=1")
			w.Header().Set("WWW-Authenticate", `Basic realm="internal"`)
			w.Header().Set("Proxy-Authenticate", `Basic realm="internal"`)
			w.Header().Set("Set-Cookie", "JSESSIONID=1")
			w.Header().Set("Content-Length", "7")
			w.Header().Set("Content-Type", "text/plain")
			w.WriteHeader(status)
			if _, err := io.WriteString(w, "backend"); err != nil {
				panic(http.ErrAbortHandler) // as httputil.ReverseProxy does
			}
			return nil
		})
		for _, h := range []access.Holder{clinician, {Scope: "system/*.cruds"}, patientA} {
			for _, request := range wholeRequests {
				t.Run(fmt.Sprintf("%d %s %s %s", status, h.Scope, request[0], request[1]), func(t *testing.T) {
					t.Parallel()
					got, logged := throughLogged(t, h, request[0], request[1], request[2], next)
					if got.StatusCode != http.StatusBadGateway {
						t.Errorf("status %d: %v", got.StatusCode, logged)
					}
					for _, name := range []string{"Location", "Www-Authenticate", "Proxy-Authenticate", "Set-Cookie"} {
						if got.Header.Get(name) != "" {
							t.Errorf("%s: %s", name, got.Header.Get(name))
						}
					}
					if text := bodyOf(t, got); strings.Contains(text, "backend") || got.ContentLength == 7 || got.Header.Get("Server") != "Caddy" {
						t.Errorf("%v: %s", got.Header, text)
					}
					hint := "reverse_proxy"
					if logged == nil || !strings.Contains(logged.Error(), hint) || strings.Contains(logged.Error(), "signature") {
						t.Errorf("logged %v", logged)
					}
				})
			}
			batch := `{"resourceType":"Bundle","type":"batch","entry":[{"request":{"method":"GET","url":"Observation/a1"}},{"request":{"method":"GET","url":"Observation?patient=a"}}]}`
			got := through(t, h, http.MethodPost, "", batch, next)
			if text := bodyOf(t, got); strings.Contains(text, "files.internal") || strings.Contains(text, `"status":"401`) || strings.Contains(text, `"status":"30`) ||
				got.StatusCode != http.StatusBadGateway && strings.Count(text, `"status":"502`) != 2 {
				t.Errorf("batch under %s: %d %s", h.Scope, got.StatusCode, text)
			}
		}
	}
}

// TestPublicMetadataRedirects checks the same for metadata, which needs no token.
func TestPublicMetadataRedirects(t *testing.T) {
	t.Parallel()
	for _, query := range []string{"", "?mode=terminology"} {
		m := &capability.Metadata{Base: "/fhir/R4"}
		w := httptest.NewRecorder()
		err := m.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/fhir/R4/metadata"+query, nil), handler(func(w http.ResponseWriter, _ *http.Request) error {
			w.Header().Set("WWW-Authenticate", "Basic")
			w.WriteHeader(http.StatusUnauthorized)
			return nil
		}))
		if refusal, ok := errors.AsType[*guard.Error](err); !ok || refusal.Status != http.StatusBadGateway || w.Body.Len() > 0 {
			t.Errorf("%q: %v, %d", query, err, w.Code)
		}
	}
}

// TestGatewayHeaders checks which headers of the FHIR server reach clients, and that those of other handlers stay.
func TestGatewayHeaders(t *testing.T) {
	t.Parallel()
	next := handler(func(w http.ResponseWriter, _ *http.Request) error {
		for _, name := range []string{"Set-Cookie", "Server", "X-Powered-By", "Link", "Refresh", "Alt-Svc", "Www-Authenticate"} {
			w.Header().Add(name, "internal")
		}
		w.Header().Set("X-Request-Id", "1")
		w.Header().Set("Link", "<http://backend.internal/style>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Set("Content-Type", "application/fhir+json")
		_, err := io.WriteString(w, `{"resourceType":"Observation","id":"a1","subject":{"reference":"Patient/a"}}`)
		return err
	})
	for _, h := range []access.Holder{clinician, patientA} {
		got := through(t, h, http.MethodGet, "Observation/a1", "", next)
		if text := fmt.Sprint(got.Header); strings.Contains(text, "internal") || got.Header.Get("Server") != "Caddy" || got.Header.Get("X-Request-Id") != "1" {
			t.Errorf("%s: %s", h.Scope, text)
		}
	}
}

// compressed is a text in an encoding.
func compressed(t *testing.T, encoding, text string) string {
	t.Helper()
	var b bytes.Buffer
	var w io.WriteCloser
	switch encoding {
	case "gzip":
		w = gzip.NewWriter(&b)
	case "deflate":
		w = zlib.NewWriter(&b)
	default:
		return text
	}
	_, err := io.WriteString(w, text)
	if err = errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestCompressedAnyway checks that a response that is compressed unasked is decompressed before it is judged or rewritten,
// or rejected.
func TestCompressedAnyway(t *testing.T) {
	t.Parallel()
	const found = `{"resourceType":"Bundle","type":"searchset","link":[{"relation":"self","url":"http://backend.internal/fhir/Observation?patient=a"},` +
		`{"relation":"next","url":"http://backend.internal/fhir?_getpages=1"}],"entry":[{"resource":{"resourceType":"Observation","id":"a1","subject":{"reference":"Patient/a"}}}]}`
	for _, tt := range []struct {
		name, encoding string
		cut            int
		status         int
	}{
		{"gzip", "gzip", 0, 200},
		{"deflate", "deflate", 0, 200},
		{"identity", "identity", 0, 200},
		{"gzip that ends early", "gzip", 12, 502},
		{"gzip that is none", "gzip", -1, 502},
		{"brotli", "br", 0, 502},
		{"two encodings", "gzip, gzip", 0, 502},
	} {
		for _, h := range []access.Holder{clinician, {Scope: "system/*.cruds"}, patientA} {
			t.Run(tt.name+" "+h.Scope, func(t *testing.T) {
				t.Parallel()
				got := through(t, h, http.MethodGet, "Observation?patient=a&_count=1", "", func(w http.ResponseWriter, r *http.Request) error {
					text := compressed(t, tt.encoding, strings.Replace(found, "next", map[bool]string{true: "previous", false: "next"}[r.URL.Path == "/fhir/R4"], 1))
					if tt.cut < 0 {
						text = found
					} else {
						text = text[:len(text)-tt.cut]
					}
					w.Header().Set("Content-Type", "application/fhir+json")
					w.Header().Set("Content-Encoding", tt.encoding)
					w.Header().Set("Content-Length", fmt.Sprint(len(text)))
					for n := range len(text) {
						if _, err := io.WriteString(w, text[n:n+1]); err != nil {
							panic(http.ErrAbortHandler)
						}
					}
					return nil
				})
				body := bodyOf(t, got)
				if got.StatusCode != tt.status || strings.Contains(body, "_getpages") || got.Header.Get("Content-Encoding") != "" {
					t.Errorf("%d %v %s", got.StatusCode, got.Header, body)
				}
				if tt.status == http.StatusOK && !strings.Contains(body, "/_page/") {
					t.Errorf("no page: %s", body)
				}
			})
		}
	}
}

// TestTooLong checks that a response above the limit is rejected with the limit and a remedy, as another error than one
// that cannot be read.
func TestTooLong(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"Observation?patient=a", "Observation/a1", "Patient/a/$everything"} {
		got, logged := throughLogged(t, patientA, http.MethodGet, path, "", func(w http.ResponseWriter, _ *http.Request) error {
			w.Header().Set("Content-Type", "application/fhir+json")
			for range 17 << 4 {
				if _, err := w.Write(bytes.Repeat([]byte(" "), 1<<16)); err != nil {
					panic(http.ErrAbortHandler)
				}
			}
			return nil
		})
		text := bodyOf(t, got)
		for _, want := range []string{"16777216", "_count", "_elements"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: %d %s lacks %s", path, got.StatusCode, text, want)
			}
		}
		if got.StatusCode != http.StatusBadGateway || logged == nil || !strings.Contains(logged.Error(), "max_memory") {
			t.Errorf("%s: %d, logged %v", path, got.StatusCode, logged)
		}
	}
}
