package caddymodule

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
)

// Failures of other products, see docs/regressions.md.

// counted counts what reaches a backend.
func counted(reached *atomic.Int32) http.Handler {
	return http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) })
}

// What is open to all is one method and path. Neither a query, nor what a proxy or
// a health check would send, nor a path that only looks like it opens anything else.
func TestNothingElseIsPublic(t *testing.T) {
	var reached atomic.Int32
	g := exampleGateway(t, counted(&reached))
	const open = "/fhir/R4/metadata"
	token := g.token() // and the cookies of a session come along from now on
	for name, change := range map[string]func(*http.Request){
		"an open path in the query":       func(r *http.Request) { r.URL.RawQuery = open },
		"an open path as a fragment":      func(r *http.Request) { r.URL.Path += "#" + open },
		"below the open path":             func(r *http.Request) { r.URL.Path = open + "/x" },
		"the open path in other letters":  func(r *http.Request) { r.URL.Path = "/fhir/R4/METADATA" },
		"the open path by another method": func(r *http.Request) { r.URL.Path, r.Method = open, http.MethodPost },
		"below the open document":         func(r *http.Request) { r.URL.Path = "/fhir/R4/.well-known/smart-configuration/Patient" },
		"X-Forwarded-Uri":                 func(r *http.Request) { r.Header.Set("X-Forwarded-Uri", open) },
		"X-Original-URL":                  func(r *http.Request) { r.Header.Set("X-Original-URL", open) },
		"X-Rewrite-URL":                   func(r *http.Request) { r.Header.Set("X-Rewrite-URL", open) },
		"X-HTTP-Method-Override":          func(r *http.Request) { r.Header.Set("X-HTTP-Method-Override", http.MethodOptions) },
		"X-Forwarded-Method":              func(r *http.Request) { r.Header.Set("X-Forwarded-Method", http.MethodOptions) },
		"a health check of Google":        func(r *http.Request) { r.Header.Set("User-Agent", "GoogleHC/1.0") },
		"a health check of Kubernetes":    func(r *http.Request) { r.Header.Set("User-Agent", "kube-probe/1.31") },
		"an upgrade":                      func(r *http.Request) { r.Header.Set("Connection", "Upgrade"); r.Header.Set("Upgrade", "websocket") },
		"a token in a cookie":             func(r *http.Request) { r.AddCookie(&http.Cookie{Name: "access_token", Value: token}) },
		"a preflight that asks for no method": func(r *http.Request) {
			r.Method = http.MethodOptions
			r.Header.Set("Origin", "https://app.example.org")
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodGet, "/fhir/R4/Patient", nil)
			change(r)
			response := g.send(r)
			if reached.Swap(0) != 0 || response.StatusCode != http.StatusUnauthorized {
				t.Errorf("status %d", response.StatusCode)
			}
		})
	}
}

// However a path is written: what Caddy's matcher, the guard and the backend may
// read differently does not reach the backend without a token.
func TestOddPathsReachNobody(t *testing.T) {
	var reached atomic.Int32
	g := exampleGateway(t, counted(&reached))
	for _, target := range []string{
		"/FHIR/R4/Patient", "/fhir/r4/Patient", "/%66hir/R4/Patient", "/%46HIR/R4/Patient", "/fhir%2FR4/Patient", "/fhir/R4%2fPatient",
		"/fhir/R4/%2e%2e/R4/Patient", "/fhir/R4/metadata/../Patient", "/fhir/R4/metadata%2f..%2fPatient", "/fhir/R4/metadata/..;/Patient",
		"/fhir%5cR4%5cPatient", "/fhir/R4/%5c..%5cPatient", "/fhir\\R4\\Patient", "//fhir/R4/Patient", "/fhir//R4/Patient", "/./fhir/R4/Patient",
		"/x/../fhir/R4/Patient", "/fhir/R4/Patient%00", "/fhir/R4/Patient%23/metadata", "/fhir/R4/Patient%3f/metadata", "/fhir/R4;x/Patient",
		"http://localhost:8443/fhir/R4/Patient", "/fhir/R4/%c0%ae%c0%ae/Patient", "/oauth2/..%2ffhir/R4/Patient",
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
			r := httptest.NewRequest(method, target, nil)
			if response := g.send(r); reached.Swap(0) != 0 || response.StatusCode < 400 {
				t.Errorf("%s %s: status %d", method, target, response.StatusCode)
			}
		}
	}
}

// After an upgrade the connection is a tunnel past the guard: none to HTTP/2 is
// asked of the backend for anybody, and none at all where no token is needed.
func TestNoTunnelPastTheGuard(t *testing.T) {
	g := exampleGateway(t, echo)
	token := g.token()
	for _, tt := range []struct {
		name, target, upgrade string
		passes                bool
	}{
		{"HTTP/2, open to all", "/fhir/R4/metadata", "h2c", false},
		{"HTTP/2, with a token", "/fhir/R4/Patient", "h2c", false},
		{"HTTP/2 beside WebSocket", "/fhir/R4/Patient", "websocket, h2c", false},
		{"WebSocket, open to all", "/fhir/R4/metadata", "websocket", false},
		{"WebSocket, with a token", "/fhir/R4/Patient", "websocket", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodGet, tt.target, nil)
			r.Header.Set("Authorization", "Bearer "+token)
			r.Header.Set("Connection", "Upgrade")
			r.Header.Set("Upgrade", tt.upgrade)
			r.Header.Set("HTTP2-Settings", "AAMAAABkAAQAAP__")
			sent := read(t, g.send(r))
			if got := strings.Contains(sent, "Upgrade: "+tt.upgrade); got != tt.passes || strings.Contains(sent, "Http2-Settings") != tt.passes {
				t.Errorf("the backend was sent %s", sent)
			}
		})
	}
}

// What needs no token brings no body either: a backend that leaves it unread would
// take it for the next request on the connection.
func TestNoBodyWhereNoTokenIsNeeded(t *testing.T) {
	g := exampleGateway(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Sent", strconv.Itoa(len(body))+" "+r.Header.Get("Content-Length")+strings.Join(r.TransferEncoding, " "))
	}))
	const smuggled = "GET /fhir/R4/Patient HTTP/1.1\r\nHost: x\r\n\r\n"
	for name, body := range map[string]io.Reader{"of a length": strings.NewReader(smuggled), "in chunks": io.MultiReader(strings.NewReader(smuggled))} {
		r := httptest.NewRequest(http.MethodGet, "/fhir/R4/metadata", body)
		if r.ContentLength > 0 {
			r.Header.Set("Content-Length", strconv.FormatInt(r.ContentLength, 10))
		}
		if got := g.send(r); got.StatusCode != http.StatusOK || got.Header.Get("Sent") != "0" {
			t.Errorf("%s: status %d, sent %q", name, got.StatusCode, got.Header.Get("Sent"))
		}
	}
}

// RFC 9112 §7.1.2: a client may send any trailer once it has announced one, and the
// guard is done with the headers by then. None reaches the backend.
func TestNoTrailerPastTheGuard(t *testing.T) {
	sent := make(chan http.Header, 1)
	g := exampleGateway(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		sent <- r.Trailer
	}))
	token := g.token()
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { g.server.ServeHTTP(w, r) }))
	t.Cleanup(front.Close)
	conn, err := net.Dial("tcp", front.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, err = fmt.Fprintf(conn, "POST /fhir/R4/Patient HTTP/1.1\r\nHost: localhost:8443\r\nAuthorization: Bearer %s\r\n"+
		"Transfer-Encoding: chunked\r\nTrailer: X-Checksum\r\n\r\n2\r\n{}\r\n0\r\nX-Checksum: 1\r\nX-Forwarded-User: admin\r\n\r\n", token)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%v, %v", response, err)
	}
	if got := <-sent; len(got) > 0 {
		t.Errorf("the backend was sent the trailers %v", got)
	}
}

// What a client sends is text, also where it looks like a placeholder of Caddy's:
// in what is sent back, shown, logged in tokens, or set for the next handler.
func TestPlaceholdersOfClientsStayText(t *testing.T) {
	t.Setenv("REGRESSION_SECRET", "expanded-secret")
	const placeholder = "{env.REGRESSION_SECRET}{file./etc/hostname}{http.request.host}"
	g := newGateway(t, exampleWith(t, "fhir_expand\n", `respond "{http.auth.user.id} {http.auth.user.client_id} {http.auth.user.scope} {http.request.header.X-Sent}"
`))
	state := g.get("/oauth2/authorize?"+url.Values{
		"client_id": {"demo-app"}, "redirect_uri": {demoCallback}, "scope": {"nonsense"}, "state": {placeholder},
	}.Encode(), "").Header.Get("Location")
	if u, err := url.Parse(state); err != nil || u.Query().Get("state") != placeholder {
		t.Errorf("state: %s", state)
	}
	page := read(t, g.get(g.get("/oauth2/authorize?"+demoRequest().Encode()+"&login_hint="+url.QueryEscape(placeholder), "").Header.Get("Location"), ""))
	if !strings.Contains(page, "{env.REGRESSION_SECRET}") {
		t.Errorf("sign-in page: %s", page)
	}
	r := httptest.NewRequest(http.MethodGet, "/fhir/R4/Patient", nil)
	r.Header.Set("Authorization", "Bearer "+g.token())
	r.Header.Set("X-Sent", placeholder)
	if got := read(t, g.send(r)); !strings.Contains(got, placeholder) {
		t.Errorf("for the next handler: %s", got)
	}
	if got := read(t, g.get("/fhir/R4/Patient?x="+url.QueryEscape(placeholder), placeholder)); strings.Contains(got, "expanded") {
		t.Errorf("outcome: %s", got)
	}
}

// The libraries are not older than the versions that closed what is known of them.
func TestLibrariesAreFixed(t *testing.T) {
	text, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for path, least := range map[string][3]int{
		"github.com/caddyserver/caddy/v2": {2, 11, 4}, // CVE-2026-30851 and -52845, -27586 to -27589, -30852, -52844
		"github.com/go-jose/go-jose/v4":   {4, 1, 4},  // CVE-2026-34986
		"golang.org/x/oauth2":             {0, 27, 0},
	} {
		found := regexp.MustCompile(regexp.QuoteMeta(path) + ` v(\d+)\.(\d+)\.(\d+)`).FindStringSubmatch(string(text))
		if found == nil {
			t.Errorf("go.mod has no %s", path)
			continue
		}
		for i, want := range least {
			if got, _ := strconv.Atoi(found[i+1]); got != want {
				if got < want {
					t.Errorf("%s is %s, want at least %v", path, found[0], least)
				}
				break
			}
		}
	}
}
