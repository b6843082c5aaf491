package documents

import (
	"html"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
)

// Every link on the example's start page into the gateway is answered; that of demo-app
// leads to the sign-in page.
func TestStartPage(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Example(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/fhir+json")
		_, _ = io.WriteString(w, "{}")
	}))
	response := g.Get("/", "")
	page := gatewaytest.Read(t, response)
	if response.StatusCode != http.StatusOK || response.Header.Get("Content-Type") != "text/html; charset=utf-8" || !strings.Contains(page, "<h1>caddy-fhir runs</h1>") {
		t.Fatalf("%d %v: %s", response.StatusCode, response.Header, page)
	}
	want := map[string]int{
		"/oauth2/launch_page": http.StatusSeeOther, "/oauth2/sandbox_app": http.StatusOK, "/oauth2/account": http.StatusSeeOther,
		"/oauth2/authorize": http.StatusFound, "/.well-known/openid-configuration": http.StatusOK,
		"/fhir/R4/.well-known/smart-configuration": http.StatusOK, "/fhir/R4/metadata": http.StatusOK, "/fhir/R4/Patient": http.StatusUnauthorized,
	}
	for _, link := range regexp.MustCompile(`href="(/[^"]*)"`).FindAllStringSubmatch(page, -1) {
		target := html.UnescapeString(link[1])
		path, _, _ := strings.Cut(target, "?")
		r := g.Get(target, "")
		if r.StatusCode != want[path] {
			t.Errorf("%s: %d, want %d", target, r.StatusCode, want[path])
		}
		if place := r.Header.Get("Location"); path == "/oauth2/authorize" && !strings.Contains(place, "/oauth2/login?") {
			t.Errorf("the sign-in leads to %s", place)
		}
		delete(want, path)
	}
	if len(want) > 0 {
		t.Errorf("no link to %v", want)
	}
}
