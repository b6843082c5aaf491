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

// Samples are the pages of a folder in all their states.
type Samples struct {
	Title string               // heading of the folder's section in docs/evidence/pages.md
	Files fs.FS                // folder with the templates
	Code  string               // path of the folder with the Go code that shows messages
	List  string               // path of docs/evidence/pages.md
	Views map[string]page.View // samples by the name of their template, with an optional suffix that starts with a hyphen
}

// Check renders the samples in each language. There must be a sample for each template, for each text of a template and for
// each message in the code. The list of the samples must be equal to the section in docs/evidence/pages.md.
func (s Samples) Check(t *testing.T) {
	t.Helper()
	site, err := page.New("https://sign-in.example", page.Branding{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	shown, rendered := map[string]bool{"layout": true}, list{}
	for name, view := range s.Views {
		view.Template, _, _ = strings.Cut(name, "-")
		shown[view.Template] = true
		for _, view.Locales = range page.Languages() {
			checkPage(t, site, name, view)
		}
		rendered[name] = render(site, view)
	}
	templates, err := fs.Glob(s.Files, "templates/*.html")
	if err != nil || len(templates) == 0 {
		t.Fatalf("%d templates: %v", len(templates), err)
	}
	for _, template := range templates {
		if name := strings.TrimSuffix(path.Base(template), ".html"); !shown[name] {
			t.Errorf("no sample for template %s", name)
		}
	}
	rendered.check(t, s.Files, s.Code, s.List, s.Title)
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
