package fhirapp

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
)

// counted is a backend that counts its requests.
func counted(reached *atomic.Int32) http.Handler {
	return http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) })
}

// One method and path is open to all. No query, header of a proxy or health check, or
// similar path opens anything else.
func TestNothingElseIsPublic(t *testing.T) {
	t.Parallel()
	var reached atomic.Int32
	g := exampleGateway(t, counted(&reached))
	const open = "/fhir/R4/metadata"
	token := g.Token() // and the cookies of a session come along from now on
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

// A request without a token has its body removed: a backend that leaves it unread would
// take it for the next request on the connection.
func TestNoBodyWhereNoTokenIsNeeded(t *testing.T) {
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

// Credentials that nobody has checked are not passed on with a public request.
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

// Without a token the placeholders are set to nothing.
func TestPlaceholdersOfPublicRequest(t *testing.T) {
	t.Parallel()
	g := newGateway(t, gatewaytest.ExampleText(t, "fhir_expand\n", "respond \"[{http.auth.user.id}]\"\n"))
	if got := gatewaytest.Read(t, g.Get("/fhir/R4/metadata", "")); got != "[]" {
		t.Errorf("got %s", got)
	}
}
