package page

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/controlchar"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// Site shows the pages of an issuer.
type Site struct {
	name       string
	branding   Branding
	style      template.CSS
	smartStyle *SMARTStyle
	logger     *slog.Logger
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
	return &Site{name: name, branding: branding, style: branding.style(), smartStyle: smart, logger: logger}, nil
}

// Name returns the site's name. The default is the issuer's host.
func (s *Site) Name() string { return s.name }

// Logo returns the site's logo, which is served at [endpoint.Logo], or nil if there is none.
func (s *Site) Logo() *Logo { return s.branding.Logo }

// Icons returns the icons of identity providers by key. Each is served at [endpoint.Logo], followed by a slash and the key.
func (s *Site) Icons() map[string]*Logo { return s.branding.Icons }

// IconURL returns the URL of an identity provider's icon, or "" if there is none.
func (s *Site) IconURL(provider string) string {
	return s.branding.Icons[provider].url(endpoint.Logo + "/" + provider)
}

// ForgotPassword returns the URL of the page for people who forgot their password, or "" if there is none.
func (s *Site) ForgotPassword() string { return s.branding.Links[forgotPassword] }

// SMARTStyle returns the site's style, for apps launched by an EHR.
func (s *Site) SMARTStyle() *SMARTStyle { return s.smartStyle }

// View is a page to show.
type View struct {
	Template string // name of a file in templates, without .html
	Status   int    // HTTP status; default: 200
	Locales  string // ui_locales of the request; default: the parameter in the request's query
	Policy   Policy // extensions of the Content-Security-Policy; default: no resources and no form
	Script   string // name of a file in scripts, without .js; default: no script
	Data     any    // data for the template

	SignedIn *SignedIn // signed-in person, shown at the top; nil if nobody is signed in
}

// layout is the data of templates/layout.html.
type layout struct {
	Language string
	Name     string // name of the site
	Logo     string // URL of the logo; "" if none
	Style    template.CSS
	Script   template.JS
	SignedIn *SignedIn
	Links    []Link // links in the footer
	Data     any
}

// patientPages are the templates of pages that list patients or visits. Their script reloads a page that the browser kept for its
// Back button.
var patientPages = []string{"selectpatient", "confirmpatient", "selectencounter"}

// Show writes a page in the user's language, without control characters: names could use them to look like other names.
func (s *Site) Show(w http.ResponseWriter, r *http.Request, v View) {
	script := ""
	if v.Script != "" {
		script = readFile("scripts/" + v.Script + ".js")
	}
	if slices.Contains(patientPages, v.Template) {
		script += readFile("scripts/reload.js")
	}
	h := w.Header()
	if s.branding.Logo != nil || len(s.branding.Icons) > 0 {
		v.Policy.Images += " 'self'"
	}
	h.Set("Content-Security-Policy", v.Policy.header(string(s.style), script))
	l := languageOf(r, v.Locales)
	var body bytes.Buffer
	shown := layout{l.tag.String(), s.name, s.branding.Logo.url(endpoint.Logo), s.style, template.JS(script), v.SignedIn, s.branding.footerLinks(), v.Data}
	if err := templateSets()[l][v.Template].Execute(&body, shown); err != nil {
		s.logger.ErrorContext(r.Context(), "page not rendered", "error", err)
		http.Error(w, "Something went wrong.", http.StatusServiceUnavailable)
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
	if _, err := io.WriteString(w, controlchar.Remove(body.String(), "\n\t")); err != nil {
		s.logger.DebugContext(r.Context(), "response not written", "error", err)
	}
}

// Policy contains what a page may do in addition to showing text, as sources of its Content-Security-Policy. Pages may not load
// other resources, run other scripts or be framed by other sites (RFC 9700 §4.16).
type Policy struct {
	Ancestors  string // origins that may frame the page; default: none
	FormAction string // URLs to which forms may be submitted; default: none
	Images     string // image sources, e.g. "data:"; default: none
	Connect    string // URLs to which scripts may connect, e.g. "'self'"; default: none
}

// originPattern matches an origin that may frame a page: the syntax of CSP 3 §2.3.1, but without wildcards.
var originPattern = regexp.MustCompile(`^(https://[a-z0-9.-]+|http://localhost)(:[0-9]{1,5})?$`)

// CheckAncestor returns an error if an origin cannot be used in [Policy].Ancestors.
func CheckAncestor(origin string) error {
	if !originPattern.MatchString(origin) {
		return fmt.Errorf("frame_ancestors: %q is not an origin: use https://host or https://host:port in lower case, such as https://ehr.example.org", origin)
	}
	return nil
}

func (p Policy) header(style, script string) string {
	header := "default-src 'none'; base-uri 'none'; frame-ancestors " + cmp.Or(p.Ancestors, "'none'") + "; style-src " + hashSource(style)
	add := func(directive, sources string) {
		if sources != "" {
			header += "; " + directive + " " + sources
		}
	}
	add("img-src", strings.TrimSpace(p.Images))
	add("connect-src", p.Connect)
	if p.FormAction == "" {
		p.FormAction = "'none'"
	}
	add("form-action", p.FormAction)
	if script != "" {
		add("script-src", hashSource(script))
	}
	return header
}

func hashSource(text string) string {
	hash := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(hash[:]) + "'"
}

// FormActionSources returns the CSP sources for forms that are submitted to the gateway, which may redirect to addresses. Chromium
// also applies the policy to every further redirect after an address at another server, e.g. through an identity provider.
// Therefore, if there is such an address, any https URL is permitted. Plain http URLs are permitted only if listed in
// addresses. A policy can contain neither IPv6 addresses (CSP 3 §2.3.1) nor the host of a URL with a private-use scheme.
func FormActionSources(addresses ...string) string {
	allowed, isExternal := "", false
	for _, address := range addresses {
		u, err := url.Parse(address)
		isExternal = isExternal || err != nil || u.Scheme != ""
		switch {
		case err != nil || u.Scheme == "https" || u.Scheme == "":
		case u.Scheme == "http" && !strings.HasPrefix(u.Host, "["):
			allowed += " http://" + u.Host
		default:
			allowed += " " + u.Scheme + ":"
		}
	}
	if isExternal {
		allowed = " https:" + allowed
	}
	return "'self'" + allowed
}

// SMARTStyle is the style of a site, for apps launched by an EHR (SMART App Launch 2.2, "Styling"). It corresponds to the light
// color scheme, because SMART defines only one.
type SMARTStyle struct {
	issuer, version string
	body            []byte
}

// smartStyle contains the members defined by SMART App Launch. Dimensions are in pixels.
type smartStyle struct {
	Background    string `json:"color_background"`
	Error         string `json:"color_error"`
	Highlight     string `json:"color_highlight"`
	ModalBackdrop string `json:"color_modal_backdrop"`
	Success       string `json:"color_success"`
	Text          string `json:"color_text"`
	BorderRadius  string `json:"dim_border_radius"`
	FontSize      string `json:"dim_font_size"`
	SpacingSize   string `json:"dim_spacing_size"`
	BodyFont      string `json:"font_family_body"`
	HeadingFont   string `json:"font_family_heading"`
}

const fontFamilies = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"

// newSMARTStyle returns the style with the branding. Other values are those of style.css.
func newSMARTStyle(issuer string, b *Branding) (*SMARTStyle, error) {
	accent, err := parseColor(cmp.Or(b.Color, "0b5c8a"))
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(smartStyle{
		Background: "#f2f5f7", Error: "#a3140a", Highlight: accent.shade(lightBackground, textContrast).String(),
		ModalBackdrop: "#14212b", Success: "#1b6e3c", Text: "#14212b",
		BorderRadius: "8px", FontSize: "16px", SpacingSize: "20px", BodyFont: fontFamilies, HeadingFont: fontFamilies,
	})
	sum := sha256.Sum256(body)
	return &SMARTStyle{issuer, base64.RawURLEncoding.EncodeToString(sum[:6]), body}, err
}

// URL returns the URL of the style. It changes with the content, because apps may cache the style forever.
func (s *SMARTStyle) URL() string { return s.issuer + endpoint.SMARTStyle + "?v=" + s.version }

// ServeHTTP implements [http.Handler].
func (s *SMARTStyle) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "public, max-age=86400")
	h.Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(s.body) // the client may have disconnected
}
