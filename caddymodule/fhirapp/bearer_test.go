package fhirapp

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirbase"
)

func TestBearerRefuses(t *testing.T) {
	t.Parallel()
	g := exampleGateway(t, echo)
	token := g.Token()
	tests := []struct {
		name, target string
		header       http.Header
		status       int
		challenge    string // value of WWW-Authenticate
		issue        string
	}{
		{"no token", "/fhir/R4/Patient", nil, 401,
			`Bearer realm="https://localhost:8443/fhir/R4", resource_metadata="https://localhost:8443/.well-known/oauth-protected-resource/fhir/R4"`, "login"},
		{"no token for $expand", "/fhir/R4/ValueSet/$expand?url=x", nil, 401, `Bearer realm="https://localhost:8443/fhir/R4"`, "login"},
		{"another scheme", "/fhir/R4/Patient", http.Header{"Authorization": {"Basic YTpi"}}, 401, `Bearer realm=`, "login"},
		{"an invalid token", "/fhir/R4/Patient", http.Header{"Authorization": {"Bearer " + token[:len(token)-2]}}, 401, `error="invalid_token"`, "login"},
		{"two tokens", "/fhir/R4/Patient", http.Header{"Authorization": {"Bearer " + token, "Bearer " + token}}, 400, `error="invalid_request"`, "security"},
		{"a token in the query", "/fhir/R4/Patient?access_token=" + token, nil, 400, `error="invalid_request"`, "security"},
		{"a hop-by-hop identity", "/fhir/R4/Patient", http.Header{"Authorization": {"Bearer " + token}, "Connection": {"close, Remote-User"}}, 400, "", "security"},
		{"another case of the path", "/FHIR/r4/Patient", nil, 400, "", "security"},
		{"metadata by another spelling", "/fhir/R4%2Fmetadata", nil, 400, "", "security"},
		{"a path that leads elsewhere", "/fhir/R4/..;/admin", nil, 400, "", "security"},
		{"metadata by another method", "/fhir/R4/metadata?", http.Header{"X-Method": {"POST"}}, 401, `Bearer realm=`, "login"},
		{"a method that sends headers back", "/fhir/R4/Patient", http.Header{"X-Method": {"TRACE"}}, 405, "", "not-supported"},
		{"something below metadata", "/fhir/R4/metadata/", nil, 401, `Bearer realm=`, "login"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodGet, tt.target, nil)
			maps.Copy(r.Header, tt.header)
			if method := r.Header.Get("X-Method"); method != "" {
				r.Method = method
			}
			response := g.Send(r)
			if response.StatusCode != tt.status || !strings.Contains(response.Header.Get("WWW-Authenticate"), tt.challenge) {
				t.Errorf("status %d, WWW-Authenticate %q", response.StatusCode, response.Header.Get("WWW-Authenticate"))
			}
			if allow := response.Header.Get("Allow"); (tt.status == http.StatusMethodNotAllowed) != (allow != "") {
				t.Errorf("Allow %q", allow)
			}
			if issue := g.DecodeOutcome(response); issue.Code != tt.issue || issue.Diagnostics == "" {
				t.Errorf("issue %+v", issue)
			}
		})
	}
}

// Removing a token's user or client invalidates the token at the guard too.
func TestTokenEndsWithItsHolder(t *testing.T) {
	t.Parallel()
	keys := gatewaytest.StorageFolder(t)
	token := newGatewayAt(t, gatewaytest.ExampleText(t, "", ""), keys).Token()
	for name, tt := range map[string]struct{ old, new string }{
		"nothing changed":    {"", ""},
		"the user disabled":  {"phone +15550100\n", "phone +15550100\n\t\t\tdisabled\n"},
		"the user removed":   {"user alice {", "user alan {"},
		"the client removed": {"client demo-app {", "client other-app {"},
	} {
		want := http.StatusUnauthorized
		if tt.old == "" {
			want = http.StatusBadGateway
		}
		r := newGatewayAt(t, gatewaytest.ExampleText(t, tt.old, tt.new), keys).Get("/fhir/R4/Patient", token)
		if r.StatusCode != want {
			t.Errorf("%s: %d, want %d", name, r.StatusCode, want)
		}
	}
}

// A path that Caddy's matcher, the guard and the backend could interpret differently does not reach the backend without a
// token.
func TestOddPathsReachNoBackend(t *testing.T) {
	t.Parallel()
	var reached atomic.Int32
	g := exampleGateway(t, countingBackend(&reached))
	for _, target := range []string{
		"/FHIR/R4/Patient", "/fhir/r4/Patient", "/%66hir/R4/Patient", "/%46HIR/R4/Patient", "/fhir%2FR4/Patient", "/fhir/R4%2fPatient",
		"/fhir/R4/%2e%2e/R4/Patient", "/fhir/R4/metadata/../Patient", "/fhir/R4/metadata%2f..%2fPatient", "/fhir/R4/metadata/..;/Patient",
		"/fhir%5cR4%5cPatient", "/fhir/R4/%5c..%5cPatient", "/fhir\\R4\\Patient", "//fhir/R4/Patient", "/fhir//R4/Patient", "/./fhir/R4/Patient",
		"/x/../fhir/R4/Patient", "/fhir/R4/Patient%00", "/fhir/R4/Patient%23/metadata", "/fhir/R4/Patient%3f/metadata", "/fhir/R4;x/Patient",
		"http://localhost:8443/fhir/R4/Patient", "/fhir/R4/%c0%ae%c0%ae/Patient", "/oauth2/..%2ffhir/R4/Patient",
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
			r := httptest.NewRequest(method, target, nil)
			if response := g.Send(r); reached.Swap(0) != 0 || response.StatusCode < 400 {
				t.Errorf("%s %s: status %d", method, target, response.StatusCode)
			}
		}
	}
}

// countingBackend returns a backend that counts its requests.
func countingBackend(reached *atomic.Int32) http.Handler {
	return http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) })
}

// Only one combination of method and path is public. Queries, headers of proxies or health checks, and similar paths do not
// make other paths public.
func TestNothingElseIsPublic(t *testing.T) {
	t.Parallel()
	var reached atomic.Int32
	g := exampleGateway(t, countingBackend(&reached))
	const open = "/fhir/R4/metadata"
	token := g.Token() // later requests also send the session cookies
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
			response := g.Send(r)
			if reached.Swap(0) != 0 || response.StatusCode != http.StatusUnauthorized {
				t.Errorf("status %d", response.StatusCode)
			}
		})
	}
}

// The guard removes the request body if there is no token, because a backend that does not read the body could interpret it as
// the next request on the connection.
func TestNoBodyWithoutToken(t *testing.T) {
	t.Parallel()
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
		if got := g.Send(r); got.StatusCode != http.StatusOK || got.Header.Get("Sent") != "0" {
			t.Errorf("%s: status %d, sent %q", name, got.StatusCode, got.Header.Get("Sent"))
		}
	}
}

func TestMetadataIsPublic(t *testing.T) {
	t.Parallel()
	g := exampleGateway(t, echo)
	for query, status := range map[string]int{
		"": 200, "?mode=terminology&_format=json&_pretty=true&_summary=true&_elements=rest": 200,
		"?_count=1": 401, "?mode=full&mode=terminology": 401, "?MODE=full": 401, "?a;b": 401, "?%zz": 401, "?access_token=a": 400,
	} {
		if r := g.Get("/fhir/R4/metadata"+query, ""); r.StatusCode != status {
			t.Errorf("%s: status %d, want %d", query, r.StatusCode, status)
		}
	}
}

// Unverified credentials are not forwarded with a public request.
func TestMetadataWithoutCredentials(t *testing.T) {
	t.Parallel()
	g := exampleGateway(t, echo, "fhir_bearer\n", "fhir_bearer {\n\t\t\tforward_header fhir Authorization\n\t\t}\n")
	r := httptest.NewRequest(http.MethodGet, "/fhir/R4/metadata", nil)
	credentials := []string{"Authorization", "Proxy-Authorization", "Cookie"}
	for _, name := range credentials {
		r.Header.Set(name, "secret=1")
	}
	sent := forwarded(t, g.Send(r))
	if sent["Via"] == nil {
		t.Errorf("not sent by the proxy: %v", sent)
	}
	for _, name := range credentials {
		if sent[name] != nil {
			t.Errorf("the backend was sent %s: %q", name, sent[name])
		}
	}
}

// The placeholders are empty if there is no token.
func TestPlaceholdersOfPublicRequest(t *testing.T) {
	t.Parallel()
	g := newGateway(t, gatewaytest.ExampleText(t, "fhir_expand\n", "respond \"[{http.auth.user.id}]\"\n"))
	if got := gatewaytest.ReadBody(t, g.Get("/fhir/R4/metadata", "")); got != "[]" {
		t.Errorf("got %s", got)
	}
}

// echo is a backend that responds with the request headers.
var echo = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/fhir+json")
	_ = json.NewEncoder(w).Encode(r.Header)
})

// forwarded decodes the request headers that echo returned.
func forwarded(t *testing.T, r *http.Response) (sent http.Header) {
	t.Helper()
	if err := json.NewDecoder(r.Body).Decode(&sent); err != nil || r.StatusCode != http.StatusOK {
		t.Fatalf("status %d: %v", r.StatusCode, err)
	}
	return sent
}

func TestBearerPasses(t *testing.T) {
	t.Parallel()
	g := exampleGateway(t, echo)
	token := g.Token()
	r := httptest.NewRequest(http.MethodGet, "/fhir/R4/Patient", nil)
	r.Header.Set("Authorization", "bearer "+token)
	forged := []string{"Remote-User", "X-Forwarded-User", "X_Remote_User", "X-HTTP-Method-Override", "X-Org", "X-Api-Key"}
	for _, name := range forged {
		r.Header[name] = []string{"admin"}
	}
	r.Header.Set("X-Request-Id", "1")
	r.AddCookie(&http.Cookie{Name: "theirs", Value: "admin"})
	sent := forwarded(t, g.Send(r))
	if sent.Get("X-Request-Id") != "1" || sent["Cookie"] != nil || sent["Authorization"] != nil {
		t.Errorf("the backend was sent %v", sent)
	}
	for name, values := range sent {
		if slices.Contains(values, "admin") {
			t.Errorf("the backend was sent %s: %q", name, values)
		}
	}
}

// The backend receives forwarded client addresses only from proxies in trusted_proxies.
func TestBearerPassesAddressesOfTrustedProxies(t *testing.T) {
	t.Parallel()
	for trusted, passes := range map[string]bool{"192.0.2.0/24": true, "198.51.100.0/24": false} {
		g := exampleGateway(t, echo, gatewaytest.ServersBlock, gatewaytest.ServersBlock+"\t\ttrusted_proxies static "+trusted+"\n")
		r := httptest.NewRequest(http.MethodGet, "/fhir/R4/Patient", nil)
		r.Header.Set("Authorization", "Bearer "+g.Token())
		names := []string{"Forwarded", "X-Real-IP", "True-Client-IP", "X-Forwarded-Port"}
		for _, name := range append(names, "X-Forwarded-For") {
			r.Header.Set(name, "203.0.113.7")
		}
		r.Header.Set("X-Request-Id", "1")
		sent := forwarded(t, g.Send(r))
		client, passed := "192.0.2.1", ""
		if passes {
			client, passed = "203.0.113.7, 192.0.2.1", "203.0.113.7"
		}
		if sent.Get("X-Forwarded-For") != client || sent.Get("X-Request-Id") != "1" {
			t.Errorf("trusted_proxies %s: the backend was sent %v", trusted, sent)
		}
		for _, name := range names {
			if sent.Get(name) != passed {
				t.Errorf("trusted_proxies %s: the backend was sent %s %q", trusted, name, sent[name])
			}
		}
	}
}

func TestBearerSetsPlaceholders(t *testing.T) {
	t.Parallel()
	g := newGateway(t, gatewaytest.ExampleText(t, "fhir_expand\n", `respond "{http.auth.user.id} {http.auth.user.client_id} {http.auth.user.scope} {http.auth.user.issuer} {http.auth.user.fhir_user} {http.request.header.X-User} {http.request.header.Authorization}"
		request_header X-User {http.auth.user.id}
`))
	got := gatewaytest.ReadBody(t, g.Get("/fhir/R4/Patient", g.Token(), "X-User", "mallory"))
	const issuer = "https://localhost:8443"
	if want := "alice demo-app openid user/*.rs " + issuer + " " + issuer + "/fhir/R4/Practitioner/alice alice "; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestBearerForwardsTokenIfConfigured(t *testing.T) {
	t.Parallel()
	for names, passed := range map[string]bool{"fhir Authorization": true, "authorization": true, "*": false, "fhir Auth* *ization": false} {
		g := exampleGateway(t, echo, "fhir_bearer\n", "fhir_bearer {\n\t\t\tforward_header "+names+"\n\t\t}\n")
		token := g.Token()
		want := []string{"Bearer " + token}
		if !passed {
			want = nil
		}
		if sent := forwarded(t, g.Get("/fhir/R4/Patient", token, "Remote-User", "3")); !slices.Equal(sent["Authorization"], want) || sent["Remote-User"] != nil {
			t.Errorf("forward_header %s: the backend was sent %v", names, sent)
		}
	}
}

// With forward_header, only the named headers are forwarded, and none of the gateway's cookies. The guard still reads the token
// from its header.
func TestBearerForwardsNamedHeaders(t *testing.T) {
	t.Parallel()
	g := newGateway(t, gatewaytest.ExampleText(t, "fhir_bearer\n\t\tfhir_expand\n", `fhir_bearer {
			forward_header fhir X-Progress Cookie
		}
		respond "{http.request.header.Prefer} {http.request.header.X-Progress} {http.request.header.Cookie} {http.request.header.X-Ward} {http.request.header.Authorization}"
`))
	token := g.Token() // later requests also send the session cookies
	if got := gatewaytest.ReadBody(t, g.Get("/fhir/R4/Patient", token, "Prefer", "a", "X-Progress", "b", "Cookie", "theirs=c", "X-Ward", "d")); got != "a b theirs=c  " {
		t.Errorf("the next handler got %q", got)
	}
}

// An upgraded connection would bypass the guard. Upgrades to HTTP/2 are never forwarded to the backend, and public requests are
// forwarded without any upgrade.
func TestNoTunnelPastTheGuard(t *testing.T) {
	t.Parallel()
	g := exampleGateway(t, echo)
	token := g.Token()
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
			sent := forwarded(t, g.Get(tt.target, token, "Connection", "Upgrade", "Upgrade", tt.upgrade, "HTTP2-Settings", "AAMAAABkAAQAAP__"))
			upgrade := ""
			if tt.passes {
				upgrade = tt.upgrade
			}
			if sent.Get("Upgrade") != upgrade || sent.Get("HTTP2-Settings") != "" {
				t.Errorf("the backend was sent %v", sent)
			}
		})
	}
}

// A client that has announced a trailer can send any trailer field after the guard has checked the headers (RFC 9112 §7.1.2).
// No trailer reaches the backend.
func TestNoTrailerPastTheGuard(t *testing.T) {
	t.Parallel()
	sent := make(chan http.Header, 1)
	g := exampleGateway(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		sent <- r.Trailer
	}))
	token := g.Token()
	conn, err := net.Dial("tcp", gatewaytest.Backend(t, g.Server))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, err = fmt.Fprintf(conn, "POST /fhir/R4/Patient/_search HTTP/1.1\r\nHost: localhost:8443\r\nAuthorization: Bearer %s\r\n"+
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

// The base must be a path or a URL that clients can use. If the global option fhir is set, it must be a path.
func TestFHIRBaseOfBearer(t *testing.T) {
	t.Parallel()
	for base, ok := range map[string]bool{
		"/fhir/R4": true, "https://fhir.example/fhir/R4": true, "http://localhost:8080/r4": true,
		"http://fhir.example/r4": false, "https://fhir.example": false, "https://fhir.example/": false, "https://a@fhir.example/r4": false,
		"https:///r4": false, "https://fhir.example/r4?a": false, "https://fhir.example/r4#a": false, "fhir/R4": false, "ftp://fhir.example/r4": false,
	} {
		if err := fhirbase.CheckBaseOrURL(base); (err == nil) != ok {
			t.Errorf("%q: %v", base, err)
		}
	}
	_, err := gatewaytest.Provision(t, gatewaytest.Adapt(t, siteWith("https://localhost", "https://localhost", "fhir_bearer {\n\tfhir_base https://fhir.example/fhir/R4\n}")))
	if err == nil || !strings.Contains(err.Error(), "fhir_base must be a path if the global option fhir is set") {
		t.Errorf("%v", err)
	}
}

// Unhandled requests below the FHIR base get 404 instead of Caddy's empty 200 response, which could be mistaken for a
// successful transaction.
func TestUnhandledRequest(t *testing.T) {
	t.Parallel()
	g := newGateway(t, siteWith("https://localhost:8443", "https://localhost:8443", `fhir_authorize
handle /fhir/R4/Patient/* {
	respond ok
}
handle /fhir/R4/empty {
	respond 204
}
handle /other {
	header X-Other yes
}`))
	for _, tt := range []struct {
		name, method, path string
		status             int
	}{
		{"a transaction beside the matcher", http.MethodPost, "/fhir/R4", http.StatusNotFound},
		{"a read beside it", http.MethodGet, "/fhir/R4/Observation/1", http.StatusNotFound},
		{"allowed request", http.MethodGet, "/fhir/R4/Patient/1", http.StatusOK},
		{"with an empty body", http.MethodGet, "/fhir/R4/empty", http.StatusNoContent},
		{"outside the API", http.MethodGet, "/other", http.StatusOK},
	} {
		t.Run(tt.name, func(t *testing.T) {
			response := g.Send(httptest.NewRequest(tt.method, tt.path, strings.NewReader(`{"resourceType":"Bundle","type":"transaction"}`)))
			body, err := io.ReadAll(response.Body)
			if err != nil || response.StatusCode != tt.status {
				t.Errorf("%d %q, %v, want %d", response.StatusCode, body, err, tt.status)
			}
			if tt.status == http.StatusNotFound && !strings.Contains(string(body), `"not-found"`) {
				t.Errorf("body %q", body)
			}
		})
	}
}

// Unhandled requests get 404 behind the guard too, whether the guard inspects the response or forwards it unread.
func TestUnhandledRequestBehindGuard(t *testing.T) {
	t.Parallel()
	for _, scope := range []string{"user/*.rs", "user/Patient.rs?gender=female"} {
		g := exampleGateway(t, nil, "\t\tfhir_sample\n", "", `!= ""`, `== "not this"`)
		request := gatewaytest.DemoRequest()
		request.Set("scope", scope)
		if response := g.Get("/fhir/R4/Patient/p01", g.TokenFor(request)); response.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %d %s", scope, response.StatusCode, gatewaytest.ReadBody(t, response))
		}
	}
}
