package remote

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/terminology/cache"
)

const (
	expansionJSON  = `{"resourceType":"ValueSet","status":"active","expansion":{"timestamp":"2026-01-02","contains":[]}}`
	outcomeJSON    = `{"resourceType":"OperationOutcome","issue":[{"severity":"error","code":"not-found"}]}`
	parametersJSON = `{"resourceType":"Parameters","parameter":[{"name":"result","valueBoolean":true}]}`
	inXML          = `<?xml version="1.0"?><ValueSet xmlns="http://hl7.org/fhir"><status value="active"/><expansion><timestamp value="2026-01-02"/></expansion></ValueSet>`
)

// serve starts a server with the handler h and returns a client of it.
func serve(t *testing.T, h http.HandlerFunc, change func(*Options)) *Server {
	t.Helper()
	backend := httptest.NewServer(h)
	t.Cleanup(backend.Close)
	o := Options{Base: backend.URL + "/r4/", MaxResponseSize: 1 << 20}
	if change != nil {
		change(&o)
	}
	s, err := NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// reply returns a handler that sends a fixed response.
func reply(status int, contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// raw returns a handler that writes raw bytes to the connection and closes it, with a TCP reset if reset is true.
func raw(reset bool, bytes string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		if tcp, ok := conn.(*net.TCPConn); ok && reset {
			_ = tcp.SetLinger(0)
		}
		_, _ = io.WriteString(conn, bytes)
		_ = conn.Close()
	}
}

const fhirJSON = "application/fhir+json"

var expandGender = Request{Path: "ValueSet/$expand", Query: "url=http://x/vs"}

func TestResponses(t *testing.T) {
	tests := []struct {
		name, path, contentType, body string
		status                        int
		negative                      bool
	}{
		{"expansion", "ValueSet/$expand", fhirJSON, expansionJSON, 200, false},
		{"of an instance", "ValueSet/a-1.b/$expand", fhirJSON, expansionJSON, 200, false},
		{"plain JSON, with a character set", "ValueSet/$expand", "application/json; charset=UTF-8", expansionJSON, 200, false},
		{"XML", "ValueSet/$expand", "application/fhir+xml", inXML, 200, false},
		{"Parameters", "CodeSystem/$lookup", fhirJSON, parametersJSON, 200, false},
		{"Bundle", "CodeSystem", fhirJSON, `{"type":"searchset","resourceType":"Bundle"}`, 200, false},
		{"read", "ValueSet/a", fhirJSON, `{"resourceType":"ValueSet","id":"a"}`, 200, false},
		{"capabilities", "metadata", fhirJSON, `{"resourceType":"TerminologyCapabilities"}`, 200, false},
		{"not found", "ValueSet/$expand", fhirJSON, outcomeJSON, 404, true},
		{"unprocessable", "ValueSet/$expand", fhirJSON, outcomeJSON, 422, true},
		{"bad request", "CodeSystem/$lookup", fhirJSON, outcomeJSON, 400, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := serve(t, reply(test.status, test.contentType, test.body), nil)
			a, err := s.Do(t.Context(), Request{Path: test.path})
			if err != nil {
				t.Fatal(err)
			}
			if string(a.Body) != test.body || a.Status != test.status || a.IsNegative() != test.negative {
				t.Errorf("got %d %q, negative %t", a.Status, a.Body, a.IsNegative())
			}
			if a.Header.Get("Content-Type") != test.contentType {
				t.Errorf("got %v", a.Header)
			}
		})
	}
}

// large is larger than the maximum response size in the tests.
var large = `{"resourceType":"ValueSet","expansion":{},"x":"` + strings.Repeat("x", 11<<20) + `"}`

func TestFailures(t *testing.T) {
	head := "HTTP/1.1 200 OK\r\nContent-Type: application/fhir+json\r\n"
	tests := []struct {
		name   string
		answer http.HandlerFunc
		is     error
		status int
	}{
		{"500", reply(500, fhirJSON, outcomeJSON), errServerFailed, 502},
		{"503", reply(503, "text/html", "<html>"), errBusy, 503},
		{"429", reply(429, fhirJSON, outcomeJSON), errBusy, 503},
		{"401", reply(401, fhirJSON, outcomeJSON), ErrRejected, 502},
		{"403", reply(403, fhirJSON, outcomeJSON), ErrRejected, 502},
		{"204", reply(204, fhirJSON, ""), errMalformed, 502},
		{"201", reply(201, fhirJSON, expansionJSON), errMalformed, 502},
		{"304 to nothing", reply(304, fhirJSON, ""), errMalformed, 502},
		{"405", reply(405, fhirJSON, outcomeJSON), errMalformed, 502},
		{"HTML", reply(200, "text/html", "<html><body>Sign in</body></html>"), errMalformed, 502},
		{"HTML labeled as JSON", reply(200, fhirJSON, "<html><body>Sign in</body></html>"), errMalformed, 502},
		{"JSON labeled as HTML", reply(200, "text/html", expansionJSON), errMalformed, 502},
		{"no media type", reply(200, "", expansionJSON), errMalformed, 502},
		{"another character set", reply(200, fhirJSON+";charset=iso-8859-1", expansionJSON), errMalformed, 502},
		{"garbage", reply(200, fhirJSON, "\x00\xff\x17garbage"), errMalformed, 502},
		{"invalid UTF-8", reply(200, fhirJSON, strings.Replace(expansionJSON, "active", "\xff", 1)), errMalformed, 502},
		{"nothing", reply(200, fhirJSON, ""), errMalformed, 502},
		{"half a resource", reply(200, fhirJSON, expansionJSON[:len(expansionJSON)/2]), errMalformed, 502},
		{"without the last brace", reply(200, fhirJSON, expansionJSON[:len(expansionJSON)-1]), errMalformed, 502},
		{"more after it", reply(200, fhirJSON, expansionJSON+expansionJSON), errMalformed, 502},
		{"array", reply(200, fhirJSON, "["+expansionJSON+"]"), errMalformed, 502},
		{"half of XML", reply(200, "application/fhir+xml", inXML[:len(inXML)/2]), errMalformed, 502},
		{"XML with a document type", reply(200, "application/fhir+xml", "<!DOCTYPE x>"+inXML), errMalformed, 502},
		{"XML of another namespace", reply(200, "application/fhir+xml", "<ValueSet><expansion/></ValueSet>"), errMalformed, 502},
		{"two XML documents", reply(200, "application/fhir+xml", inXML+inXML), errMalformed, 502},
		{"wrong resource", reply(200, fhirJSON, parametersJSON), errMalformed, 502},
		{"ValueSet without an expansion", reply(200, fhirJSON, `{"resourceType":"ValueSet","status":"active"}`), errMalformed, 502},
		{"ValueSet with no expansion", reply(200, fhirJSON, `{"resourceType":"ValueSet","expansion":null}`), errMalformed, 502},
		{"outcome with 200", reply(200, fhirJSON, outcomeJSON), errMalformed, 502},
		{"expansion with 404", reply(404, fhirJSON, expansionJSON), errMalformed, 502},
		{"HTML with 404", reply(404, "text/html", "<html>"), errMalformed, 502},
		{"too large", reply(200, fhirJSON, large), errTooLarge, 502},
		{"too large when decompressed", bomb(), errTooLarge, 502},
		{"too large by its length", raw(false, head+"Content-Length: 11534336\r\n\r\n"), errTooLarge, 502},
		{"half a body by Content-Length", raw(false, head+fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(expansionJSON)+1, expansionJSON)), errTruncated, 502},
		{"half a body by chunk", raw(false, head+fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n", len(expansionJSON), expansionJSON)), errTruncated, 502},
		{"half a chunk", raw(false, head+"Transfer-Encoding: chunked\r\n\r\nfff\r\n{"), errTruncated, 502},
		{"killed before the headers", raw(false, ""), errUnreachable, 502},
		{"killed in the headers", raw(false, head), errUnreachable, 502},
		{"reset before the headers", raw(true, ""), errUnreachable, 502},
		{"reset in the body", raw(true, head+"Content-Length: 1000\r\n\r\n{"), errTruncated, 502},
		{"no HTTP", raw(false, "SSH-2.0-OpenSSH_9.6\r\n"), errUnreachable, 502},
		{"endless headers", raw(false, head+"X: "+strings.Repeat("x", 1<<20)), errUnreachable, 502},
		{"redirect without an end", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, r.URL.Path, http.StatusTemporaryRedirect)
		}, errMalformed, 502},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := serve(t, test.answer, nil)
			a, err := s.Do(t.Context(), expandGender)
			wantFailure(t, a, err, test.is, test.status)
			if failed, _ := errors.AsType[*Error](err); strings.Contains(failed.Diagnostics(), "127.0.0.1") {
				t.Errorf("an address in %q", failed.Diagnostics())
			}
		})
	}
}

// bomb returns a handler that sends a decompression bomb. The body is compressed in advance because this could exceed the
// timeout on a busy machine.
func bomb() http.HandlerFunc {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = io.WriteString(z, large)
	_ = z.Close()
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", fhirJSON)
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(packed.Bytes())
	}
}

// wantFailure checks that err is an [*Error] that wraps is and has the given status, and that a is nil.
func wantFailure(t *testing.T, a *Response, err, is error, status int) {
	t.Helper()
	var failed *Error
	if !errors.As(err, &failed) || a != nil {
		t.Fatalf("got %v and error %v, want an *Error", a, err)
	}
	if !errors.Is(err, is) || failed.Status != status || failed.Code == "" || failed.Text == "" {
		t.Errorf("got %d %s %q: %v; want %d: %v", failed.Status, failed.Code, failed.Text, failed.Err, status, is)
	}
}

func TestRefusedConnection(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	s, err := NewServer(Options{Base: "http://" + address})
	if err != nil {
		t.Fatal(err)
	}
	a, err := s.Do(t.Context(), expandGender)
	wantFailure(t, a, err, errUnreachable, 502)
	if strings.Contains(err.Error(), "?") {
		t.Errorf("the error would log the query: %v", err)
	}
}

// pipes is an in-memory listener, so that the fake clock of synctest advances while all goroutines wait.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (p pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p pipes) Close() error   { close(p.closed); return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p pipes) dial(context.Context, string, string) (net.Conn, error) {
	near, far := net.Pipe()
	p.conns <- far
	return near, nil
}

func TestTimeouts(t *testing.T) {
	tests := []struct {
		name   string
		answer http.HandlerFunc
	}{
		{"hanging before the headers", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }},
		{"hanging in the body", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", fhirJSON)
			_, _ = io.WriteString(w, expansionJSON[:10])
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}},
		{"dripping", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", fhirJSON)
			for _, c := range []byte(expansionJSON) {
				_, _ = w.Write([]byte{c})
				_ = http.NewResponseController(w).Flush()
				select {
				case <-time.After(time.Second):
				case <-r.Context().Done():
					return
				}
			}
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := pipes{make(chan net.Conn), make(chan struct{})}
				backend := &http.Server{Handler: test.answer}
				go func() { _ = backend.Serve(p) }()
				transport := &http.Transport{DialContext: p.dial, DisableKeepAlives: true}
				s, err := NewServer(Options{Base: "https://tx.example", Timeout: 7 * time.Second, Transport: plainHTTPTransport{transport}})
				if err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				a, err := s.Do(t.Context(), expandGender)
				wantFailure(t, a, err, errTimeout, 504)
				if took := time.Since(start); took != 7*time.Second {
					t.Errorf("took %v", took)
				}
				if err := backend.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// plainHTTPTransport sends requests for https URLs without TLS.
type plainHTTPTransport struct{ http.RoundTripper }

func (o plainHTTPTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Scheme = "http"
	return o.RoundTripper.RoundTrip(r)
}

func TestCanceled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) { cancel(); <-r.Context().Done() }, nil)
	_, err := s.Do(ctx, expandGender)
	if !errors.Is(err, context.Canceled) || errors.Is(err, errTimeout) {
		t.Errorf("got %v", err)
	}
}

func TestCredentials(t *testing.T) {
	var stolen []string
	thief := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		stolen = append(stolen, r.Header.Get("Authorization"))
		reply(200, fhirJSON, expansionJSON)(w, r)
	}))
	t.Cleanup(thief.Close)
	tests := []struct {
		name   string
		change func(*Options)
		want   string
	}{
		{"none", func(*Options) {}, ""},
		{"bearer", func(o *Options) { o.Bearer = "t0ken" }, "Bearer t0ken"},
		{"basic", func(o *Options) { o.Username, o.Password = "u", "p" }, "Basic dTpw"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var got string
			h := func(w http.ResponseWriter, r *http.Request) {
				got = r.Header.Get("Authorization")
				switch r.URL.Query().Get("to") {
				case "away":
					http.Redirect(w, r, thief.URL+"/r4/ValueSet/$expand", http.StatusTemporaryRedirect)
				case "here":
					http.Redirect(w, r, "/r4/other/$expand", http.StatusFound)
				default:
					reply(200, fhirJSON, expansionJSON)(w, r)
				}
			}
			s := serve(t, h, test.change)
			for _, method := range []string{"GET", "POST"} {
				if _, err := s.Do(t.Context(), Request{Method: method, Path: "ValueSet/$expand"}); err != nil || got != test.want {
					t.Errorf("%s: got %q, %v", method, got, err)
				}
				a, err := s.Do(t.Context(), Request{Method: method, Path: "ValueSet/$expand", Query: "to=away"})
				wantFailure(t, a, err, errMalformed, 502)
			}
			if _, err := s.Do(t.Context(), Request{Path: "ValueSet/$expand", Query: "to=here"}); err != nil || got != test.want {
				t.Errorf("redirected: got %q, %v", got, err)
			}
			a, err := s.Do(t.Context(), Request{Method: "POST", Path: "ValueSet/$expand", Query: "to=here"})
			wantFailure(t, a, err, errMalformed, 502) // if the redirect were followed, the method would change to GET
			if len(stolen) > 0 {
				t.Errorf("request to another server with %q", stolen)
			}
		})
	}
}

func TestRequest(t *testing.T) {
	var got *http.Request
	var body []byte
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body)
		w.Header().Set("Set-Cookie", "a=b")
		w.Header().Set("ETag", `"1"`)
		w.Header().Set("Cache-Control", "max-age=60")
		if r.Header.Get("If-None-Match") == `"1"` {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		reply(200, fhirJSON, expansionJSON)(w, r)
	}, nil)
	q := Request{Method: "POST", Path: "ValueSet/a/$expand", Query: "count=1&filter=a%26b", Body: []byte(parametersJSON), AcceptLanguage: "de"}
	a, err := s.Do(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	if got.URL.Path != "/r4/ValueSet/a/$expand" || got.URL.RawQuery != q.Query || string(body) != parametersJSON {
		t.Errorf("got %s %s", got.URL, body)
	}
	if h := got.Header; h.Get("Accept") != fhirJSON || h.Get("Content-Type") != fhirJSON || h.Get("Accept-Language") != "de" || len(h["Idempotency-Key"]) > 0 {
		t.Errorf("got %v", got.Header)
	}
	if a.Header.Get("ETag") != `"1"` || a.Header.Get("Cache-Control") != "max-age=60" || a.Header.Get("Set-Cookie") != "" {
		t.Errorf("got %v", a.Header)
	}
	q.IfNoneMatch = `"1"`
	if a, err = s.Do(t.Context(), q); err != nil || !a.NotModified || a.Body != nil || a.Header.Get("ETag") != `"1"` {
		t.Errorf("got %+v, %v", a, err)
	}
}

func TestRequestDefaults(t *testing.T) {
	var got *http.Request
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got = r
		reply(200, fhirJSON, expansionJSON)(w, r)
	}, nil)
	for accept, want := range map[string]string{
		"": fhirJSON, "*/*": fhirJSON, "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8": fhirJSON,
		"application/fhir+xml": "application/fhir+xml", "application/json": "application/json",
	} {
		if a, err := s.Do(t.Context(), Request{Method: "HEAD", Path: "ValueSet/$expand", Accept: accept}); err != nil || string(a.Body) != expansionJSON {
			t.Errorf("%q: got %v, %v", accept, a, err)
		}
		if got.Header.Get("Accept") != want || got.Method != "GET" {
			t.Errorf("%q: request %s %q", accept, got.Method, got.Header.Get("Accept"))
		}
	}
}

func TestPaths(t *testing.T) {
	s := serve(t, reply(200, fhirJSON, expansionJSON), nil)
	for _, path := range []string{"", "/", "/ValueSet/$expand", "../$expand", "ValueSet/../../admin/$expand", "ValueSet/%2e%2e/$expand", "ValueSet//$expand", "ValueSet/a?b/$expand", "ValueSet/a b/$expand", "a@b/$expand", "ValueSet/./$expand", "https://x/$expand"} {
		a, err := s.Do(t.Context(), Request{Path: path})
		wantFailure(t, a, err, errInvalidRequest, 400)
	}
}

// TestRetryAfter checks that requests to a server are suspended until its Retry-After has elapsed (RFC 9110 §10.2.3). Other
// responses and invalid values do not suspend requests.
func TestRetryAfter(t *testing.T) {
	tests := []struct {
		name, retryAfter string
		status           int
		want             time.Duration
		wantRequests     int
	}{
		{"seconds", "17", 503, 17 * time.Second, 1},
		{"too many requests", "17", 429, 17 * time.Second, 1},
		{"date in the future", time.Now().Add(time.Hour).UTC().Format(http.TimeFormat), 503, cache.MaxRetryAfter, 1},
		{"a date in the past", "Fri, 31 Dec 1999 23:59:59 GMT", 503, 0, 2},
		{"a year", "31536000", 503, cache.MaxRetryAfter, 1},
		{"another failure", "17", 500, 0, 2},
		{"nothing", "", 503, 0, 2},
		{"a text", "soon; see http://10.0.0.1/", 503, 0, 2},
		{"a negative number", "-1", 503, 0, 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			requests := 0
			s := serve(t, func(w http.ResponseWriter, r *http.Request) {
				requests++
				w.Header().Set("Retry-After", tt.retryAfter)
				reply(tt.status, fhirJSON, outcomeJSON)(w, r)
			}, nil)
			for range 2 {
				var failed *Error
				if _, err := s.Do(t.Context(), expandGender); !errors.As(err, &failed) || errors.Is(err, errBusy) != (tt.status != 500) || (failed.RetryAfter-tt.want).Abs() > 2*time.Second {
					t.Errorf("got %v, again in %v", err, failed.RetryAfter)
				}
			}
			if requests != tt.wantRequests {
				t.Errorf("%d requests, want %d", requests, tt.wantRequests)
			}
		})
	}
}

// TestContentLocation checks that Content-Location, which clients may be unable to access, is not sent to them.
func TestContentLocation(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Location", "http://10.0.0.1/fhir/ValueSet/1")
		if r.Header.Get("If-None-Match") != "" {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		reply(200, fhirJSON, expansionJSON)(w, r)
	}, nil)
	for _, tag := range []string{"", `"1"`} {
		q := expandGender
		q.IfNoneMatch = tag
		if a, err := s.Do(t.Context(), q); err != nil || a.Header.Get("Content-Location") != "" {
			t.Errorf("got %v, %v", a, err)
		}
	}
}

func TestOptions(t *testing.T) {
	tests := []struct {
		name string
		o    Options
		part string // part of the error; "" if the options are valid
	}{
		{"https", Options{Base: "https://tx.example/r4"}, ""},
		{"http on loopback", Options{Base: "http://127.0.0.1:8080"}, ""},
		{"http on localhost", Options{Base: "http://localhost:8080"}, ""},
		{"http on IPv6 loopback", Options{Base: "http://[::1]:8080"}, ""},
		{"http by choice", Options{Base: "http://tx.internal", AllowHTTP: true}, ""},
		{"http", Options{Base: "http://tx.example"}, "https"},
		{"http on what only looks like loopback", Options{Base: "http://localhost.example"}, "https"},
		{"nothing", Options{}, "https"},
		{"no host", Options{Base: "https:///r4"}, "https"},
		{"ftp", Options{Base: "ftp://tx.example"}, "https"},
		{"query", Options{Base: "https://tx.example?a=b"}, "query"},
		{"credentials", Options{Base: "https://u:secret@tx.example"}, "credentials"},
		{"malformed", Options{Base: "https://u:secret@[tx"}, "malformed"},
		{"bearer and basic", Options{Base: "https://x", Bearer: "a", Username: "b"}, "credentials"},
		{"negative timeout", Options{Base: "https://x", Timeout: -1}, "negative"},
		{"negative size", Options{Base: "https://x", MaxResponseSize: -1}, "negative"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := NewServer(test.o)
			if (err == nil) != (test.part == "") || err != nil && !strings.Contains(err.Error(), test.part) {
				t.Errorf("got %v", err)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("a secret in %q", err)
			}
		})
	}
}
