package fhirapp

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
)

func TestBearerRefuses(t *testing.T) {
	t.Parallel()
	g := exampleGateway(t, echo)
	token := g.Token()
	tests := []struct {
		name, target string
		header       http.Header
		status       int
		challenge    string // in WWW-Authenticate
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
			if issue := g.Outcome(response); issue.Code != tt.issue || issue.Diagnostics == "" {
				t.Errorf("issue %+v", issue)
			}
		})
	}
}

// A token ends with its user and its client, at the guard too.
func TestTokenEndsWithItsHolder(t *testing.T) {
	t.Parallel()
	keys := gatewaytest.Folder(t)
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

// No spelling of a path that Caddy's matcher, the guard and the backend may read
// differently reaches the backend without a token.
func TestOddPathsReachNobody(t *testing.T) {
	t.Parallel()
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
			if response := g.Send(r); reached.Swap(0) != 0 || response.StatusCode < 400 {
				t.Errorf("%s %s: status %d", method, target, response.StatusCode)
			}
		}
	}
}
