// Package pagetest tests the pages of package page and of features.
package pagetest

import (
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
)

// CheckInEachLanguage renders samples of pages in each language. A sample is named after its template, optionally with a suffix
// that starts with a hyphen. There must be a sample for each template in files.
func CheckInEachLanguage(t *testing.T, files fs.FS, samples map[string]page.View) {
	t.Helper()
	site, err := page.New("https://sign-in.example", page.Branding{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]bool{"layout": true}
	for name, view := range samples {
		view.Template, _, _ = strings.Cut(name, "-")
		shown[view.Template] = true
		for _, view.Locales = range page.Languages() {
			checkPage(t, site, name, view)
		}
	}
	templates, err := fs.Glob(files, "templates/*.html")
	if err != nil || len(templates) == 0 {
		t.Fatalf("%d templates: %v", len(templates), err)
	}
	for _, template := range templates {
		if name := strings.TrimSuffix(path.Base(template), ".html"); !shown[name] {
			t.Errorf("no sample for template %s", name)
		}
	}
}

func checkPage(t *testing.T, site *page.Site, name string, view page.View) {
	t.Helper()
	w := httptest.NewRecorder()
	site.Show(w, httptest.NewRequest(http.MethodGet, "/", nil), view)
	body := w.Body.String()
	if w.Code != http.StatusOK || strings.Contains(body, "%!") || strings.Contains(body, "%s") || strings.Count(body, "<h1>") != 1 ||
		!strings.Contains(body, `<html lang="`+view.Locales+`">`) {
		t.Errorf("%s in %s: %s", name, view.Locales, body)
	}
}
