package page

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// Site shows the pages of an issuer.
type Site struct {
	name       string
	logo       *Logo
	style      template.CSS
	smartStyle *SMARTStyle
	logger     *slog.Logger
}

// New returns the site of an issuer, or an error for invalid branding.
func New(issuer string, branding Branding, logger *slog.Logger) (*Site, error) {
	if err := branding.check(); err != nil {
		return nil, fmt.Errorf("branding: %w", err)
	}
	smart, err := newSMARTStyle(issuer, &branding)
	if err != nil {
		return nil, fmt.Errorf("branding: %w", err)
	}
	name := cmp.Or(branding.Name, strings.TrimPrefix(issuer, "https://"))
	return &Site{name: name, logo: branding.Logo, style: branding.style(), smartStyle: smart, logger: logger}, nil
}

// Name returns the site's name; default: its host.
func (s *Site) Name() string { return s.name }

// Logo returns the site's logo, to be served at [endpoint.Logo], or nil.
func (s *Site) Logo() *Logo { return s.logo }

// SMARTStyle returns the style of the pages for apps.
func (s *Site) SMARTStyle() *SMARTStyle { return s.smartStyle }

// View is a page to show.
type View struct {
	Template string // file name in templates without .html
	Status   int    // HTTP status; default: 200
	Locales  string // ui_locales of the request; default: from the request's query
	Policy   Policy // CSP extensions; default: no resources and no form
	Script   string // file name in scripts without .js; default: none
	Data     any    // data of the template
}

// layout is the data of templates/layout.html.
type layout struct {
	Language string
	Name     string // name of the site
	Logo     string // URL of the logo
	Style    template.CSS
	Script   template.JS
	Data     any
}

// Show writes a page in the user's language.
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
	shown := layout{l.tag.String(), s.name, s.logo.url(), s.style, template.JS(script), v.Data}
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
	if _, err := body.WriteTo(w); err != nil {
		s.logger.DebugContext(r.Context(), "response not written", "error", err)
	}
}

// Policy contains the permissions of a page beyond showing text, as sources of its Content-Security-Policy.
// No page may load anything else, run another script, or be framed by other sites (RFC 9700 §4.16).
type Policy struct {
	Ancestors  string // origins that may frame the page; default: none
	FormAction string // targets of forms; default: none
	Images     string // image sources, e.g. "data:"; default: none
	Connect    string // connections of scripts, e.g. "'self'"; default: none
}

// originPattern matches the origin of a framing page: CSP 3 §2.3.1 without wildcards.
var originPattern = regexp.MustCompile(`^(https://[a-z0-9.-]+|http://localhost)(:[0-9]{1,5})?$`)

// CheckAncestor returns an error for an invalid origin of a framing page.
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

// FormAction returns the CSP sources for forms that submit to the gateway and may redirect to addresses. For
// addresses at other servers, Chromium applies the policy to every following redirect: to the client,
// to an identity provider, and on to any https URL. Plain http is limited to loopback and listed. A
// policy can express neither IPv6 addresses (CSP 3 §2.3.1) nor hosts of private-use schemes.
func FormAction(addresses ...string) string {
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

// SMARTStyle is the style of the pages for apps launched by an EHR (SMART App Launch 2.2,
// "Styling"). It uses the light scheme, because SMART defines only one.
type SMARTStyle struct {
	issuer, version string
	body            []byte
}

// smartStyle contains the members defined by SMART. Dimensions are in pixels.
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

// newSMARTStyle uses the branding, with defaults from style.css.
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

// URL returns the URL of the style, which changes with its content, because apps may cache it forever.
func (s *SMARTStyle) URL() string { return s.issuer + endpoint.SMARTStyle + "?v=" + s.version }

// ServeHTTP implements [http.Handler].
func (s *SMARTStyle) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "public, max-age=86400")
	h.Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(s.body) // the client may have disconnected
}
