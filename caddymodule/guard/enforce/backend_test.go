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
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/fhirserver"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/responsemark"
)

// Requests to the FHIR server contain no client headers that would affect the access check.
func TestBackendRequestHeaders(t *testing.T) {
	t.Parallel()
	g := newGateway(t, records...)
	var header http.Header
	g.server.OnRequest = func(r *http.Request) { header = r.Header }
	r := httptest.NewRequest(http.MethodGet, "/fhir/R4/Observation/a1", nil)
	for _, name := range []string{
		"If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since", "If-None-Exist", "If-Range", "Range",
		"Prefer", "X-Cascade", "X-Provenance",
	} {
		r.Header.Set(name, "x")
	}
	r.Header.Set("Accept", "application/fhir+xml, */*;q=0.1")
	r.Header.Set("Accept-Encoding", "gzip")
	r.Header.Set("X-Request-Id", "1")
	if got := g.send(patientA, r); got.StatusCode != http.StatusOK {
		t.Fatalf("status %d", got.StatusCode)
	}
	if header.Get("Accept") != "application/fhir+json" || header.Get("Accept-Encoding") != "identity" || header.Get("X-Request-Id") != "1" {
		t.Errorf("request headers %v", header)
	}
	for name, values := range header {
		if values[0] == "x" {
			t.Errorf("%s was passed on", name)
		}
	}
}

// Responses that pass unjudged are requested in full and uncompressed, because their links and addresses are rewritten.
func TestBackendRequestUnrestricted(t *testing.T) {
	t.Parallel()
	g := newGateway(t, records...)
	var header http.Header
	g.server.OnRequest = func(r *http.Request) { header = r.Header }
	r := httptest.NewRequest(http.MethodGet, "/fhir/R4/Observation/a1", nil)
	r.Header = http.Header{"Range": {"bytes=0-6"}, "If-Range": {`"1"`}, "Accept-Encoding": {"gzip"}, "If-None-Match": {`W/"9"`}}
	if got := g.send(staff, r); got.StatusCode != http.StatusOK {
		t.Fatalf("status %d", got.StatusCode)
	}
	if header.Get("If-None-Match") != `W/"9"` || header.Get("Accept-Encoding") != "identity" || header.Get("Range") != "" || header.Get("If-Range") != "" {
		t.Errorf("request headers %v", header)
	}
}

// Responses that cannot be judged are withheld.
func TestUnjudgeableResponses(t *testing.T) {
	t.Parallel()
	const own = `{"resourceType":"Observation","id":"a1","subject":{"reference":"Patient/a"}}`
	for _, tt := range []struct {
		name, media, body string
		header, status    int
	}{
		{"own", "application/fhir+json", own, 200, 200},
		{"JSON by another name", "application/json; charset=utf-8", own, 200, 200},
		{"XML", "application/fhir+xml", "<Observation/>", 200, 502},
		{"no type", "", own, 200, 502},
		{"cut off", "application/fhir+json", own[:len(own)-1], 200, 502},
		{"more behind", "application/fhir+json", own + own, 200, 502},
		{"a name twice", "application/fhir+json", strings.Replace(own, `"id"`, `"id":"b1","id"`, 1), 200, 502},
		{"no type of resource", "application/fhir+json", `{"id":"a1"}`, 200, 502},
		{"another resource", "application/fhir+json", strings.Replace(own, "a1", "a2", 1), 200, 404},
		{"another type", "application/fhir+json", strings.Replace(own, "Observation", "Condition", 1), 200, 404},
		{"another patient's", "application/fhir+json", strings.Replace(own, "Patient/a", "Patient/b", 1), 200, 404},
		{"too long", "application/fhir+json", own + strings.Repeat(" ", 1000), 200, 502},
		{"deleted", "application/fhir+json", `{"resourceType":"OperationOutcome"}`, 410, 404},
		{"not there", "application/fhir+json", `{"resourceType":"OperationOutcome"}`, 404, 404},
		{"refused", "application/fhir+json", own, 400, 404},
		{"credentials required", "application/fhir+json", own, 401, 502},
		{"failed", "application/fhir+json", own, 500, 500},
		{"overloaded", "application/fhir+json", own, 503, 503},
		{"too many requests", "application/fhir+json", own, 429, 429},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t)
			g.Limits = fhirserver.Limits{ResponseBytes: 1000}
			g.server.Handlers = map[string]http.HandlerFunc{"Observation/a1": func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", tt.media)
				w.WriteHeader(tt.header)
				_, _ = w.Write([]byte(tt.body))
			}}
			expectStatus(t, g.get(patientA, "Observation/a1"), tt.status)
		})
	}
}

// handler implements the next handler by a function.
type handler func(w http.ResponseWriter, r *http.Request) error

func (f handler) ServeHTTP(w http.ResponseWriter, r *http.Request) error { return f(w, r) }

// read sends a read of patient a's resource with f as the next handler.
func (f handler) read(t *testing.T, limit int64) (*httptest.ResponseRecorder, error) {
	t.Helper()
	g := newGateway(t)
	g.Limits = fhirserver.Limits{ResponseBytes: limit}
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, "/fhir/R4/Observation/a1", nil)
	return w, g.Serve(w, r, f, enforce.Bearer{Rights: access.New(patientA, g.TypeRules)})
}

// Next handlers that violate their contract cause an error.
func TestNextHandler(t *testing.T) {
	t.Parallel()
	failure := errors.New("no connection")
	if _, err := handler(func(http.ResponseWriter, *http.Request) error { return failure }).read(t, 0); !errors.Is(err, failure) {
		t.Errorf("a handler's error became %v", err)
	}
	_, err := handler(func(http.ResponseWriter, *http.Request) error { return nil }).read(t, 0)
	if refusal, ok := errors.AsType[*guard.Error](err); !ok || refusal.Status != http.StatusBadGateway {
		t.Errorf("no answer became %v", err)
	}
	_, err = handler(func(w http.ResponseWriter, _ *http.Request) error {
		if _, err := w.Write(make([]byte, 200)); err != nil {
			panic(http.ErrAbortHandler) // as httputil.ReverseProxy does
		}
		return nil
	}).read(t, 100)
	if refusal, ok := errors.AsType[*guard.Error](err); !ok || refusal.Status != http.StatusBadGateway || !errors.Is(err, message.ErrResponseWithheld) {
		t.Errorf("an answer that was aborted became %v", err)
	}
}

// A panic is recovered only if the guard aborted the response itself.
func TestPanic(t *testing.T) {
	t.Parallel()
	for _, cause := range []any{http.ErrAbortHandler, "a bug"} {
		func() {
			defer func() {
				if got := recover(); got != cause {
					t.Errorf("%v became %v", cause, got)
				}
			}()
			_, err := handler(func(http.ResponseWriter, *http.Request) error { panic(cause) }).read(t, 0)
			t.Errorf("%v became %v", cause, err)
		}()
	}
}

// The number of requests to the FHIR server per client request is limited.
func TestRequests(t *testing.T) {
	t.Parallel()
	g := newGateway(t, records...)
	g.Limits = fhirserver.Limits{Requests: 2}
	requests := 0
	g.server.OnRequest = func(*http.Request) { requests++ }
	for target, want := range map[string]int{"Observation/a1": 200, "?_type=Patient,Observation,Device&_sort=_lastUpdated": 403} {
		requests = 0
		if got := g.get(patientA, target); got.StatusCode != want || requests > 2 {
			t.Errorf("%s: status %d after %d requests", target, got.StatusCode, requests)
		}
	}
}

// bodyOf returns the body of a response.
func bodyOf(t *testing.T, response *http.Response) string {
	t.Helper()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A judged response has no headers that describe the original body or reveal the FHIR server.
func TestResponseHeaders(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	g.server.Handlers = map[string]http.HandlerFunc{"Observation/a1": func(w http.ResponseWriter, r *http.Request) {
		for name, value := range map[string]string{
			"Digest": "x", "Trailer": "X", "Keep-Alive": "x", "Content-Range": "bytes 0-1/9", "Refresh": "1",
			"Content-Location": "http://backend.internal:8080/secret", "X-Request-Id": "1",
		} {
			w.Header().Set(name, value)
		}
		newHandler(`{"resourceType":"Observation","id":"a1","subject":{"reference":"Patient/a"}}`)(w, r)
	}}
	for _, method := range []string{http.MethodGet, http.MethodHead} {
		got := g.send(patientA, httptest.NewRequest(method, "/fhir/R4/Observation/a1", nil))
		for _, name := range []string{"Digest", "Trailer", "Keep-Alive", "Content-Range", "Refresh", "Content-Location"} {
			if got.Header.Get(name) != "" {
				t.Errorf("%s: %s: %s", method, name, got.Header.Get(name))
			}
		}
		if text := bodyOf(t, got); got.Header.Get("X-Request-Id") != "1" || (text == "") != (method == http.MethodHead) {
			t.Errorf("%s: %v, %q", method, got.Header, text)
		}
	}
}

// Search responses that reveal too much, or are errors, are withheld.
func TestSearchResponse(t *testing.T) {
	t.Parallel()
	const own = `{"resource":{"resourceType":"Observation","id":"a1","subject":{"reference":"Patient/a"},"performer":[{"reference":"Practitioner/alice"}]},"search":{"mode":"match","score":0.7}}`
	bundle := func(entries ...string) string {
		return `{"resourceType":"Bundle","type":"searchset","entry":[` + strings.Join(entries, ",") + `]}`
	}
	for _, tt := range []struct {
		name, answer string
		header       int
		status       int
		not          string
	}{
		{"a score", bundle(own), 200, 200, "score"},
		{"another type", bundle(own, `{"resource":{"resourceType":"Condition","id":"a1","subject":{"reference":"Patient/a"}}}`), 200, 200, "Condition"},
		{"another patient's", bundle(own, strings.NewReplacer("a1", "b1", "Patient/a", "Patient/b").Replace(own)), 200, 200, "b1"},
		{"unrequested include", bundle(own, `{"resource":{"resourceType":"Practitioner","id":"alice"},"search":{"mode":"include"}}`), 200, 200, `"id":"alice"`},
		{"words of the server", bundle(own, `{"resource":{"resourceType":"OperationOutcome","text":"secret"},"search":{"mode":"outcome"}}`), 200, 200, "secret"},
		{"a refusal", `{"resourceType":"OperationOutcome","text":"secret"}`, 400, 400, "secret"},
		{"no Bundle", `{"resourceType":"Observation","id":"b1"}`, 200, 502, "b1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t)
			g.server.Handlers = map[string]http.HandlerFunc{"Observation": func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/fhir+json")
				w.WriteHeader(tt.header)
				_, _ = io.WriteString(w, tt.answer)
			}}
			response := g.get(patientA, "Observation?status=final")
			text := bodyOf(t, response)
			if tt.status == http.StatusOK && !strings.Contains(text, `"search":{"mode":"match"}`) {
				t.Errorf("no match: %s", text)
			}
			if response.StatusCode != tt.status || strings.Contains(text, tt.not) {
				t.Errorf("status %d: %s", response.StatusCode, text)
			}
		})
	}
}

// A page link works only with GET. It returns 404 if the request would now be split into different searches.
func TestPageLinkIsOnlyRead(t *testing.T) {
	t.Parallel()
	g := newGateway(t, records...)
	link := nextIn([]byte(bodyOf(t, g.get(patientA, "Observation?_count=1"))))
	path := strings.TrimPrefix(link, "https://gateway.example")
	if got := g.send(patientA, httptest.NewRequest(http.MethodPost, path, nil)); got.StatusCode != http.StatusNotFound {
		t.Errorf("by POST: status %d", got.StatusCode)
	}
	g.SupportsCompartmentSearch = true
	if got := g.get(patientA, link); got.StatusCode != http.StatusNotFound {
		t.Errorf("after a change: status %d", got.StatusCode)
	}
}

// paging is a next handler that returns a page with the FHIR server's links.
type paging func(w http.ResponseWriter)

const serverPage = `{"resourceType":"Bundle","type":"searchset","link":[{"relation":"next","url":"http://server.example/fhir/Patient?page=2"}]}`

func (a paging) ServeHTTP(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/fhir+json")
	a(w)
	_, err := w.Write([]byte(serverPage))
	return err
}

// lateHeaderWriter delays the header until the first write of the body.
type lateHeaderWriter struct {
	http.ResponseWriter
	status int
}

func (l *lateHeaderWriter) WriteHeader(status int) { l.status = status }

func (l *lateHeaderWriter) Unwrap() http.ResponseWriter { return l.ResponseWriter }

func (l *lateHeaderWriter) Write(b []byte) (int, error) {
	l.ResponseWriter.WriteHeader(l.status)
	return l.ResponseWriter.Write(b)
}

// Only responses to terminology operations pass unbuffered, and only if this process generated them. Responses from other
// servers cannot mark themselves as local.
func TestLocalResponseHeader(t *testing.T) {
	t.Parallel()
	const expand, everything = "/fhir/R4/ValueSet/$expand", "/fhir/R4/Patient/$everything"
	for _, tt := range []struct {
		name, path string
		answer     paging
		passes     bool
	}{
		{"our own", expand, func(w http.ResponseWriter) { responsemark.WriteHeader(w, http.StatusOK) }, true},
		{"our own, below other handlers' writers", expand, func(w http.ResponseWriter) {
			responsemark.WriteHeader(http.ResponseWriter(wrappedWriter{w}), http.StatusOK)
		}, true},
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
			responsemark.WriteHeader(&lateHeaderWriter{ResponseWriter: w}, http.StatusOK)
			w.WriteHeader(http.StatusOK)
		}, false},
		{"held back by a handler in between", expand, func(w http.ResponseWriter) {
			l := &lateHeaderWriter{ResponseWriter: w}
			responsemark.WriteHeader(l, http.StatusOK)
			_, _ = l.Write(nil)
		}, false},
		{"an operation on records", everything, func(w http.ResponseWriter) { responsemark.WriteHeader(w, http.StatusOK) }, false},
		{"a search", "/fhir/R4/Patient", func(w http.ResponseWriter) { responsemark.WriteHeader(w, http.StatusOK) }, false},
		{"a search of definitions", "/fhir/R4/ValueSet", func(w http.ResponseWriter) { responsemark.WriteHeader(w, http.StatusOK) }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t)
			w := httptest.NewRecorder()
			rights := access.New(access.Holder{Scope: "system/*.rs"}, g.TypeRules)
			if err := g.Serve(w, httptest.NewRequest(http.MethodGet, tt.path, nil), tt.answer, enforce.Bearer{Rights: rights}); err != nil {
				t.Fatal(err)
			}
			if got := w.Body.String(); strings.Contains(got, "server.example") != tt.passes || !strings.Contains(got, `"Bundle"`) {
				t.Errorf("%d %s", w.Code, got)
			}
		})
	}
	w := httptest.NewRecorder()
	if responsemark.WriteHeader(w, http.StatusTeapot); w.Code != http.StatusTeapot {
		t.Errorf("without a guard: %d", w.Code)
	}
}

// wrappedWriter is a writer as wrapped by another handler.
type wrappedWriter struct{ http.ResponseWriter }

func (w wrappedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// wholeRequests contains a request for each code path of the guard: method, path and body.
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

// sendThroughGateway sends a request over HTTP to a gateway with next as its next handler.
func sendThroughGateway(t *testing.T, h access.Holder, method, path, body string, next handler) *http.Response {
	t.Helper()
	response, _ := sendThroughGatewayLogged(t, h, method, path, body, next)
	return response
}

// sendThroughGatewayLogged is like sendThroughGateway, but also returns the error that the gateway logs.
func sendThroughGatewayLogged(t *testing.T, h access.Holder, method, path, body string, next handler) (*http.Response, error) {
	t.Helper()
	g := newGateway(t)
	var logged error
	outside := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Server", "Caddy")
		err := g.Serve(w, r, next, enforce.Bearer{Rights: access.New(h, g.TypeRules)})
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

// If the FHIR server requests credentials or redirects, the client gets 502 without the server's headers for every scope. The
// log contains a remedy.
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
					got, logged := sendThroughGatewayLogged(t, h, request[0], request[1], request[2], next)
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
			got := sendThroughGateway(t, h, http.MethodPost, "", batch, next)
			if text := bodyOf(t, got); strings.Contains(text, "files.internal") || strings.Contains(text, `"status":"401`) || strings.Contains(text, `"status":"30`) ||
				got.StatusCode != http.StatusBadGateway && strings.Count(text, `"status":"502`) != 2 {
				t.Errorf("batch under %s: %d %s", h.Scope, got.StatusCode, text)
			}
		}
	}
}

// Redirects and requests for credentials become 502 for metadata too, which requires no token.
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

// Only some of the FHIR server's headers reach clients. Headers of other handlers stay.
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
		got := sendThroughGateway(t, h, http.MethodGet, "Observation/a1", "", next)
		if text := fmt.Sprint(got.Header); strings.Contains(text, "internal") || got.Header.Get("Server") != "Caddy" || got.Header.Get("X-Request-Id") != "1" {
			t.Errorf("%s: %s", h.Scope, text)
		}
	}
}

func compress(t *testing.T, encoding, text string) string {
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

// Compression that was not requested is decoded before judging or rewriting; unsupported codings are rejected.
func TestCompressedUnrequested(t *testing.T) {
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
		{"invalid gzip", "gzip", -1, 502},
		{"brotli", "br", 0, 502},
		{"two encodings", "gzip, gzip", 0, 502},
	} {
		for _, h := range []access.Holder{clinician, {Scope: "system/*.cruds"}, patientA} {
			t.Run(tt.name+" "+h.Scope, func(t *testing.T) {
				t.Parallel()
				got := sendThroughGateway(t, h, http.MethodGet, "Observation?patient=a&_count=1", "", func(w http.ResponseWriter, r *http.Request) error {
					text := compress(t, tt.encoding, strings.Replace(found, "next", map[bool]string{true: "previous", false: "next"}[r.URL.Path == "/fhir/R4"], 1))
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

// The error for a response above the size limit contains the limit and a remedy; the error for an unreadable response does not.
func TestTooLong(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"Observation?patient=a", "Observation/a1", "Patient/a/$everything"} {
		got, logged := sendThroughGatewayLogged(t, patientA, http.MethodGet, path, "", func(w http.ResponseWriter, _ *http.Request) error {
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
