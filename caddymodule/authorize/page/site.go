package page

import (
	"bytes"
	"cmp"
	"fmt"
	"html/template"
	"log/slog"
	"net/http"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// Site shows the pages of an issuer.
type Site struct {
	name   string
	logo   *Logo
	style  template.CSS
	smart  *SMARTStyle
	logger *slog.Logger
}

// New returns the site of an issuer, or an error if the branding is invalid.
func New(issuer string, branding Branding, logger *slog.Logger) (*Site, error) {
	if err := branding.check(); err != nil {
		return nil, fmt.Errorf("branding: %w", err)
	}
	smart, err := newSMARTStyle(issuer, &branding)
	if err != nil {
		return nil, fmt.Errorf("branding: %w", err)
	}
	name := cmp.Or(branding.Name, strings.TrimPrefix(issuer, "https://"))
	return &Site{name: name, logo: branding.Logo, style: branding.style(), smart: smart, logger: logger}, nil
}

// Name is the site's, which is its host unless it has another.
func (s *Site) Name() string { return s.name }

// Logo is the site's image, to be served at [endpoint.Logo], or nil.
func (s *Site) Logo() *Logo { return s.logo }

// SMARTStyle is the look of the pages, for apps.
func (s *Site) SMARTStyle() *SMARTStyle { return s.smart }

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
	Name     string // of the site
	Logo     string // its address
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
	if s.logo != nil {
		v.Policy.Images += " 'self'"
	}
	h.Set("Content-Security-Policy", v.Policy.header(string(s.style), script))
	l := languageOf(r, v.Locales)
	var body bytes.Buffer
	shown := layout{l.tag.String(), s.name, s.logo.address(), s.style, template.JS(script), v.Data}
	if err := templateSets()[l][v.Template].Execute(&body, shown); err != nil {
		s.logger.ErrorContext(r.Context(), "page not rendered", "error", err)
		http.Error(w, "Something went wrong here.", http.StatusServiceUnavailable)
		return
	}
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Language", l.tag.String())
	h.Add("Vary", "Accept-Language")
	if v.Policy.Ancestors == "" {
		h.Set("X-Frame-Options", "DENY")
	}
	h.Set("X-Content-Type-Options", "nosniff")
	oauth2.SetRetryAfter(h, v.Status)
	w.WriteHeader(cmp.Or(v.Status, http.StatusOK))
	if _, err := body.WriteTo(w); err != nil {
		s.logger.DebugContext(r.Context(), "answer not written", "error", err)
	}
}
