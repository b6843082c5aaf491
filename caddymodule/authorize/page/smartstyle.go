package page

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
)

// SMARTStyle is the look of the pages for the apps that an EHR launches (SMART App Launch 2.2,
// "Styling"): that of the light scheme, as there is only one.
type SMARTStyle struct {
	issuer, version string
	body            []byte
}

// smartStyle has the members that SMART names. Dimensions are in pixels.
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

const fonts = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"

// newSMARTStyle is made of the branding, and otherwise of the values of style.css.
func newSMARTStyle(issuer string, b *Branding) (*SMARTStyle, error) {
	accent, err := parseColor(cmp.Or(b.Color, "0b5c8a"))
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(smartStyle{
		Background: "#f2f5f7", Error: "#a3140a", Highlight: accent.shade(light, textContrast).String(),
		ModalBackdrop: "#14212b", Success: "#1b6e3c", Text: "#14212b",
		BorderRadius: "8px", FontSize: "16px", SpacingSize: "20px", BodyFont: fonts, HeadingFont: fonts,
	})
	sum := sha256.Sum256(body)
	return &SMARTStyle{issuer, base64.RawURLEncoding.EncodeToString(sum[:6]), body}, err
}

// URL is where the style is. It is another one whenever the style is, as apps may keep it for
// good.
func (s *SMARTStyle) URL() string { return s.issuer + endpoint.SMARTStyle + "?v=" + s.version }

// ServeHTTP implements [http.Handler].
func (s *SMARTStyle) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "public, max-age=86400")
	h.Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(s.body) // the client may have gone
}
