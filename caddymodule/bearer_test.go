package caddymodule

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
)

// echo is a backend that tells what it was sent.
var echo = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/fhir+json")
	_ = r.Header.Write(w)
})

func TestBearerRefuses(t *testing.T) {
	g := exampleGateway(t, echo)
	token := g.token()
	tests := []struct {
		name, target string
		header       http.Header
		status       int
		challenge    string
		issue        string
	}{
		{"no token", "/fhir/R4/Patient", nil, 401, `Bearer realm="https://localhost:8443/fhir/R4"`, "login"},
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
			for name, values := range tt.header {
				r.Header[name] = values
			}
			if method := r.Header.Get("X-Method"); method != "" {
				r.Method = method
			}
			response := g.send(r)
			if response.StatusCode != tt.status || !strings.Contains(response.Header.Get("WWW-Authenticate"), tt.challenge) {
				t.Errorf("status %d, WWW-Authenticate %q", response.StatusCode, response.Header.Get("WWW-Authenticate"))
			}
			if allow := response.Header.Get("Allow"); (tt.status == http.StatusMethodNotAllowed) != (allow != "") {
				t.Errorf("Allow %q", allow)
			}
			if issue := g.outcome(response); issue.Code != tt.issue || issue.Diagnostics == "" {
				t.Errorf("issue %+v", issue)
			}
		})
	}
}

func TestBearerPasses(t *testing.T) {
	g := exampleGateway(t, echo)
	token := g.token()
	r := httptest.NewRequest(http.MethodGet, "/fhir/R4/Patient", nil)
	r.Header.Set("Authorization", "bearer "+token)
	for _, forged := range []string{"Remote-User", "X-Forwarded-User", "X_Remote_User", "X-HTTP-Method-Override"} {
		r.Header[forged] = []string{"admin"}
	}
	r.Header.Set("X-Request-Id", "1")
	r.AddCookie(&http.Cookie{Name: "theirs", Value: "kept"})
	response := g.send(r)
	sent := read(t, response)
	if response.StatusCode != http.StatusOK || !strings.Contains(sent, "X-Request-Id: 1") {
		t.Fatalf("%d: %s", response.StatusCode, sent)
	}
	if !strings.Contains(sent, "Cookie: theirs=kept") || strings.Contains(sent, "__Host-") {
		t.Errorf("the backend was sent %s", sent)
	}
	if strings.Contains(sent, "admin") || strings.Contains(sent, "Authorization") {
		t.Errorf("the backend was sent %s", sent)
	}
}

// Where a request came from, the backend is told by proxies that are trusted, and by
// nobody else.
func TestBearerPassesAddressesOfTrustedProxies(t *testing.T) {
	server := httptest.NewServer(echo)
	t.Cleanup(server.Close)
	t.Setenv("FHIR_BACKEND", strings.TrimPrefix(server.URL, "http://"))
	for range_, passes := range map[string]bool{"192.0.2.0/24": true, "198.51.100.0/24": false} {
		g := newGateway(t, exampleWith(t, "	fhir {\n", "	servers {\n\t\ttrusted_proxies static "+range_+"\n\t}\n	fhir {\n"))
		r := httptest.NewRequest(http.MethodGet, "/fhir/R4/Patient", nil)
		r.Header.Set("Authorization", "Bearer "+g.token())
		for _, name := range []string{"Forwarded", "X-Real-IP", "True-Client-IP", "X-Forwarded-Port", "X-Forwarded-For"} {
			r.Header.Set(name, "203.0.113.7")
		}
		r.Header.Set("X-Request-Id", "1")
		sent := read(t, g.send(r))
		if got := strings.Count(sent, "203.0.113.7"); got > 0 != passes || passes && got != 5 || !strings.Contains(sent, "X-Request-Id: 1") {
			t.Errorf("trusted_proxies %s: the backend was sent %s", range_, sent)
		}
	}
}

func TestMetadataIsPublic(t *testing.T) {
	g := exampleGateway(t, echo)
	for query, status := range map[string]int{
		"": 200, "?mode=terminology&_format=json&_pretty=true&_summary=true&_elements=rest": 200,
		"?_count=1": 401, "?mode=full&mode=terminology": 401, "?MODE=full": 401, "?a;b": 401, "?%zz": 401, "?access_token=a": 400,
	} {
		if r := g.get("/fhir/R4/metadata"+query, ""); r.StatusCode != status {
			t.Errorf("%s: status %d, want %d", query, r.StatusCode, status)
		}
	}
}

// What nobody has looked at does not go on with the public request.
func TestMetadataWithoutCredentials(t *testing.T) {
	server := httptest.NewServer(echo)
	t.Cleanup(server.Close)
	example := exampleWith(t, "fhir_bearer\n", "fhir_bearer {\n\t\t\tforward_token\n\t\t}\n")
	g := newGateway(t, strings.Replace(example, "{$FHIR_BACKEND:localhost:8080}", strings.TrimPrefix(server.URL, "http://"), 1))
	r := httptest.NewRequest(http.MethodGet, "/fhir/R4/metadata", nil)
	for _, name := range []string{"Authorization", "Proxy-Authorization", "Cookie"} {
		r.Header.Set(name, "secret=1")
	}
	if sent := read(t, g.send(r)); strings.Contains(sent, "secret") || !strings.Contains(sent, "Via") {
		t.Errorf("the backend was sent %s", sent)
	}
}

func TestBearerSetsPlaceholders(t *testing.T) {
	g := newGateway(t, exampleWith(t, "fhir_expand\n", `respond "{http.auth.user.id} {http.auth.user.client_id} {http.auth.user.scope} {http.auth.user.issuer} {http.auth.user.fhir_user} {http.request.header.X-User} {http.request.header.Authorization}"
		request_header X-User {http.auth.user.id}
`))
	r := httptest.NewRequest(http.MethodGet, "/fhir/R4/Patient", nil)
	r.Header.Set("Authorization", "Bearer "+g.token())
	r.Header.Set("X-User", "mallory")
	got := read(t, g.send(r))
	const issuer = "https://localhost:8443"
	if want := "alice demo-app openid user/*.rs " + issuer + " " + issuer + "/fhir/R4/Practitioner/alice alice "; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestBearerForwardsTokenIfAsked(t *testing.T) {
	server := httptest.NewServer(echo)
	t.Cleanup(server.Close)
	t.Setenv("FHIR_BACKEND", strings.TrimPrefix(server.URL, "http://"))
	g := newGateway(t, exampleWith(t, "fhir_bearer\n", "fhir_bearer {\n\t\t\tforward_token\n\t\t\tidentity_header X-Ward\n\t\t}\n"))
	r := httptest.NewRequest(http.MethodGet, "/fhir/R4/Patient", nil)
	r.Header.Set("Authorization", "Bearer "+g.token())
	r.Header.Set("X-Ward", "3")
	if sent := read(t, g.send(r)); !strings.Contains(sent, "Authorization: Bearer") || strings.Contains(sent, "X-Ward") {
		t.Errorf("the backend was sent %s", sent)
	}
}

// Nothing goes on but what is named, and the guard still finds the token.
func TestBearerForwardsNamedHeaders(t *testing.T) {
	g := newGateway(t, exampleWith(t, "fhir_bearer\n\t\tfhir_expand\n", `fhir_bearer {
			forward_header fhir X-Progress
		}
		respond "{http.request.header.Prefer} {http.request.header.X-Progress} {http.request.header.X-Ward} {http.request.header.Authorization}"
`))
	r := httptest.NewRequest(http.MethodGet, "/fhir/R4/Patient", nil)
	r.Header = http.Header{"Authorization": {"Bearer " + g.token()}, "Prefer": {"a"}, "X-Progress": {"b"}, "X-Ward": {"c"}}
	if got := read(t, g.send(r)); got != "a b  " {
		t.Errorf("the next handler got %q", got)
	}
}

// A token ends with its user and with its client, at the guard too.
func TestTokenEndsWithItsHolder(t *testing.T) {
	keys := t.TempDir()
	token := newGatewayAt(t, exampleWith(t, "", ""), keys).token()
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
		r := newGatewayAt(t, exampleWith(t, tt.old, tt.new), keys).get("/fhir/R4/Patient", token)
		if r.StatusCode != want {
			t.Errorf("%s: %d, want %d", name, r.StatusCode, want)
		}
	}
}

// The placeholders are set without a token too, to nothing.
func TestPlaceholdersOfPublicRequest(t *testing.T) {
	g := newGateway(t, exampleWith(t, "fhir_expand\n", "respond \"[{http.auth.user.id}]\"\n"))
	if got := read(t, g.get("/fhir/R4/metadata", "")); got != "[]" {
		t.Errorf("got %s", got)
	}
}

// A guard that keeps everybody out, because the API is at another path than it thinks,
// says so, once.
func TestGuardElsewhereIsLogged(t *testing.T) {
	var text bytes.Buffer
	h := &Bearer{FHIRBase: "/fhir/R4", logger: slog.New(slog.NewTextHandler(&text, nil))}
	for _, path := range []string{"/fhir/R4/Patient", "/fhir/R4", "/fhir/metadata", "/fhir/Patient"} {
		h.warnElsewhere(httptest.NewRequest(http.MethodGet, path, nil), fmt.Errorf("refused: %w", guard.ErrNoToken))
	}
	if logged := text.String(); strings.Count(logged, "\n") != 1 || !strings.Contains(logged, "path=/fhir/metadata fhir_base=/fhir/R4") {
		t.Errorf("logged %q", logged)
	}
}

// So does one behind something that takes the FHIR base off the path.
func TestGuardBehindRewriteIsLogged(t *testing.T) {
	var text bytes.Buffer
	h := &Bearer{FHIRBase: "/fhir/R4", logger: slog.New(slog.NewTextHandler(&text, nil))}
	asked := httptest.NewRequest(http.MethodGet, "/fhir/R4/Patient", nil)
	r := httptest.NewRequest(http.MethodGet, "/Patient", nil)
	r = r.WithContext(context.WithValue(r.Context(), caddyhttp.OriginalRequestCtxKey, *asked))
	h.warnElsewhere(r, guard.ErrNoToken)
	if logged := text.String(); !strings.Contains(logged, "put what rewrites it after fhir_bearer") {
		t.Errorf("logged %q", logged)
	}
}
