package gatewaytest

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

// scriptHeaders lists request headers that scripts set, or that browsers and tracing tools add.
const scriptHeaders = "accept,authorization,baggage,cache-control,content-type,dpop,if-match,if-modified-since,if-none-exist,if-none-match," +
	"pragma,prefer,sentry-trace,traceparent,tracestate,x-custom-of-an-app,x-requested-with"

// CheckCORS checks the CORS headers of preflight responses, other responses and errors at an endpoint that supports method.
// from specifies which origins' scripts may call the endpoint: "clients", "*", or "" for none.
func CheckCORS(t *testing.T, g *Gateway, method, path, from, token string) {
	t.Helper()
	for origin, isClient := range map[string]bool{
		"https://app.example.org": true, "http://localhost:3000": true,
		"https://anybody.example": false, "https://app.example.org.attacker.example": false, "http://app.example.org": false, "null": false,
	} {
		allowed := ""
		switch {
		case from == "*":
			allowed = "*"
		case from == "clients" && isClient:
			allowed = origin
		}
		ask := func(by string, headers ...string) *http.Response {
			return g.NewBrowser().Do(by, path, "", append(headers, "Origin", origin)...)
		}
		preflight := ask(http.MethodOptions, "Access-Control-Request-Method", method, "Access-Control-Request-Headers", scriptHeaders)
		if got := preflight.Header; AllowedOrigin(preflight) != allowed || allowed != "" && (preflight.StatusCode != http.StatusNoContent ||
			got.Get("Access-Control-Allow-Methods") != method || got.Get("Access-Control-Allow-Headers") != scriptHeaders) {
			t.Errorf("preflight from %s: %d %v", origin, preflight.StatusCode, got)
		}
		responses := map[string]*http.Response{
			"preflight":                preflight,
			"without a token":          ask(method),
			"with a token":             ask(method, "Authorization", "Bearer "+token),
			"with a wrong token":       ask(method, "Authorization", "Bearer x"),
			"by a method that is none": ask("PURGE", "Authorization", "Bearer "+token),
		}
		for name, r := range responses {
			checkCORS(t, name+" from "+origin, r, allowed, name == "preflight")
		}
	}
}

// AllowedOrigin returns the origin that may read a response, from Access-Control-Allow-Origin.
func AllowedOrigin(r *http.Response) string {
	return strings.Join(r.Header["Access-Control-Allow-Origin"], " and ")
}

// checkCORS checks the CORS headers of a response. If allowed is empty, only the response to a preflight may indicate that the
// endpoint has a CORS policy.
func checkCORS(t *testing.T, name string, r *http.Response, allowed string, isPreflight bool) {
	t.Helper()
	if AllowedOrigin(r) != allowed || r.Header.Get("Access-Control-Allow-Credentials") != "" {
		t.Errorf("%s: %d, allowed %q, want %q: %v", name, r.StatusCode, AllowedOrigin(r), allowed, r.Header)
	}
	if allowed != "" && allowed != "*" && !slices.Contains(HeaderList(r.Header, "Vary"), "Origin") {
		t.Errorf("%s: Vary %q", name, r.Header["Vary"])
	}
	exposed := HeaderList(r.Header, "Access-Control-Expose-Headers")
	for _, header := range []string{
		"Www-Authenticate", "Location", "Content-Location", "Link", "Etag", "Last-Modified", "Date", "Retry-After", "X-Progress", "X-Request-Id", "X-Correlation-Id",
	} {
		if want := allowed != "" && !isPreflight; slices.Contains(exposed, header) != want {
			t.Errorf("%s: exposes %s: %t: %q", name, header, !want, exposed)
		}
	}
}
