package page

import (
	"bytes"
	"cmp"
	"html/template"
	"log/slog"
	"net/http"
	"strings"
)

// Site shows the pages of an issuer.
type Site struct {
	host   string
	style  string
	logger *slog.Logger
}

// New returns the site of an issuer.
func New(issuer string, logger *slog.Logger) *Site {
	return &Site{host: strings.TrimPrefix(issuer, "https://"), style: readFile("style.css"), logger: logger}
}

// View is a page to be shown.
type View struct {
	Template string // its file in templates, without .html
	Status   int    // Default: 200.
	Locales  string // the request's ui_locales. Default: those in the request's query.
	Policy   Policy // Default: the page loads nothing, and has no form.
	Script   string // its file in scripts, without .js. Default: none.
	Data     any    // what the template shows
}

// layout is what templates/layout.html shows.
type layout struct {
	Language string
	Host     string
	Style    template.CSS
	Script   template.JS
	Data     any
}

// Show writes a page in the person's language.
func (s *Site) Show(w http.ResponseWriter, r *http.Request, v View) {
	script := ""
	if v.Script != "" {
		script = readFile("scripts/" + v.Script + ".js")
	}
	h := w.Header()
	h.Set("Content-Security-Policy", v.Policy.header(s.style, script))
	l := languageOf(r, v.Locales)
	var body bytes.Buffer
	shown := layout{l.tag.String(), s.host, template.CSS(s.style), template.JS(script), v.Data}
	if err := templateSets()[l][v.Template].Execute(&body, shown); err != nil {
		s.logger.ErrorContext(r.Context(), "page not rendered", "error", err)
		http.Error(w, "Something went wrong here.", http.StatusServiceUnavailable)
		return
	}
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Language", l.tag.String())
	h.Add("Vary", "Accept-Language")
	h.Set("X-Frame-Options", "DENY")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(cmp.Or(v.Status, http.StatusOK))
	if _, err := body.WriteTo(w); err != nil {
		s.logger.DebugContext(r.Context(), "answer not written", "error", err)
	}
}
