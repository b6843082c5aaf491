package page

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"html/template"
	"image/png"
	"io"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

const forgotPassword = "forgot_password"

// maxNameLength is the maximum length of a site's name, in characters, so that it fits on a small phone.
const maxNameLength = 80

// Branding adapts the pages to a site.
type Branding struct {
	Name  string // name of the site, shown on every page; default: the issuer's host
	Color string // color of buttons and links, e.g. "#0b5c8a"; default: blue
	Logo  *Logo  // logo above the name; default: none

	Icons map[string]*Logo // icons of the sign-in buttons, by key of the identity provider; default: none

	// URLs of the site's pages help, privacy and imprint, which the footer links, and forgot_password, which the sign-in page
	// links; default: none.
	Links map[string]string
}

func (b *Branding) check() error {
	if b.Name != "" {
		if err := CheckName(b.Name); err != nil {
			return err
		}
	}
	if b.Color != "" {
		if err := CheckColor(b.Color); err != nil {
			return err
		}
	}
	for name, address := range b.Links {
		if err := CheckLink(name, address); err != nil {
			return err
		}
	}
	return nil
}

// footerLinks returns the links in the footer of every page.
func (b *Branding) footerLinks() (links []Link) {
	for _, link := range []Link{{b.Links["help"], T("Help")}, {b.Links["privacy"], T("Privacy")}, {b.Links["imprint"], T("Legal notice")}} {
		if link.Address != "" {
			links = append(links, link)
		}
	}
	return links
}

// CheckName returns an error if the name of a site is invalid.
func CheckName(name string) error {
	switch {
	case !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl):
		return errors.New("site name must be UTF-8 without control characters")
	case strings.TrimSpace(name) == "":
		return errors.New("site name is empty")
	case utf8.RuneCountInString(name) > maxNameLength:
		return fmt.Errorf("site name is longer than %d characters", maxNameLength)
	}
	return nil
}

// CheckColor returns an error if text is not a color. It does not check the contrast: if it is too low, pages use a lighter or
// darker shade.
func CheckColor(text string) error {
	_, err := parseColor(text)
	return err
}

// CheckLink returns an error if there is no link with this name, or if address is neither an https URL nor a path at the issuer.
func CheckLink(name, address string) error {
	if !slices.Contains([]string{"help", "privacy", "imprint", forgotPassword}, name) {
		return fmt.Errorf("unknown link %q: use help, privacy, imprint or %s", name, forgotPassword)
	}
	u, err := url.Parse(address)
	isURL := err == nil && u.Scheme == "https" && u.Hostname() != "" && u.User == nil
	isPath := err == nil && u.Scheme == "" && u.Host == "" && strings.HasPrefix(address, "/") && !strings.HasPrefix(address, "//")
	if !isURL && !isPath || strings.ContainsAny(address, "\\ ") {
		return fmt.Errorf("link %s: %q must be an https URL, or a path such as /help", name, address)
	}
	return nil
}

// style returns the style sheet with the site's color.
func (b *Branding) style() template.CSS {
	style := readFile("style.css")
	if b.Color != "" {
		brand, _ := parseColor(b.Color) // CheckColor has validated the color
		style += fmt.Sprintf(":root { %s }\n@media (prefers-color-scheme: dark) { :root { %s } }\n", brand.palette(lightBackground), brand.palette(darkBackground))
	}
	return template.CSS(style)
}

// MaxLogoSize is the maximum size of a logo in bytes.
const MaxLogoSize = 256 << 10

var errUnsupportedLogo = errors.New("logo is not a PNG, SVG or WebP image")

// Logo is a site's logo or the icon of an identity provider.
type Logo struct {
	contentType string
	image       []byte
	version     string // changes with the image; part of the URL
}

// NewLogo returns a logo. It detects the media type of the image from its content.
func NewLogo(image []byte) (*Logo, error) {
	if len(image) > MaxLogoSize {
		return nil, fmt.Errorf("logo is larger than %d KiB", MaxLogoSize>>10)
	}
	l := &Logo{image: image, contentType: http.DetectContentType(image)}
	switch l.contentType {
	case "image/png":
		if _, err := png.DecodeConfig(bytes.NewReader(image)); err != nil {
			return nil, fmt.Errorf("decoding the PNG logo: %w", err)
		}
	case "image/webp":
	default:
		if err := checkSVG(image); err != nil {
			return nil, err
		}
		l.contentType = "image/svg+xml"
	}
	hash := sha256.Sum256(image)
	l.version = base64.RawURLEncoding.EncodeToString(hash[:12])
	return l, nil
}

// checkSVG returns an error unless the image is an XML document with an SVG root element. Browsers display only those.
func checkSVG(image []byte) error {
	root, decoder := xml.Name{}, xml.NewDecoder(bytes.NewReader(image))
	for {
		token, err := decoder.Token()
		isSVG := root == xml.Name{Space: "http://www.w3.org/2000/svg", Local: "svg"}
		switch {
		case errors.Is(err, io.EOF) && isSVG:
			return nil
		case err != nil && isSVG:
			return fmt.Errorf("decoding the SVG logo: %w", err)
		case err != nil:
			return errUnsupportedLogo
		}
		if start, ok := token.(xml.StartElement); ok && root.Local == "" {
			root = start.Name
		}
	}
}

// url returns the URL at which path serves the logo, or "" without a logo. Each image has its own URL, so that browsers can cache it.
func (l *Logo) url(path string) string {
	if l == nil {
		return ""
	}
	return path + "?" + l.version
}

// ServeHTTP sends the image. The Content-Security-Policy prevents scripts in SVG images, even if one is opened as a page.
func (l *Logo) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", l.contentType)
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; sandbox")
	h.Set("X-Content-Type-Options", "nosniff")
	if r.URL.RawQuery == l.version {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	_, _ = w.Write(l.image) // the browser may have disconnected
}

// Contrast ratios required by WCAG 2.2 for text (§1.4.3), and for controls such as buttons (§1.4.11).
const (
	textContrast  = 4.5
	shapeContrast = 3
)

// color is an sRGB color with components from 0 to 1.
type color [3]float64

var (
	white, black = color{1, 1, 1}, color{}

	// Backgrounds of the light and dark color schemes: in each, the background in style.css that has the lower contrast.
	lightBackground = color{0xf2 / 255., 0xf5 / 255., 0xf7 / 255.}
	darkBackground  = color{0x18 / 255., 0x23 / 255., 0x2b / 255.}
)

// parseColor parses a color of three hexadecimal bytes. The # is optional, because it starts a comment in an unquoted Caddyfile
// token.
func parseColor(text string) (c color, err error) {
	bytes, err := hex.DecodeString(strings.TrimPrefix(text, "#"))
	if err != nil || len(bytes) != len(c) {
		return c, fmt.Errorf("color %q must be six hexadecimal digits such as 0b5c8a", text)
	}
	for i, b := range bytes {
		c[i] = float64(b) / 255
	}
	return c, nil
}

func (c color) String() string {
	channel := func(v float64) int { return int(math.Round(v * 255)) }
	return fmt.Sprintf("#%02x%02x%02x", channel(c[0]), channel(c[1]), channel(c[2]))
}

// palette returns a color scheme's CSS variables for a color: the color itself for buttons if visible, a readable shade for
// links.
func (c color) palette(background color) string {
	button := c.shade(background, shapeContrast)
	return fmt.Sprintf("--accent: %s; --button: %s; --on-button: %s;", c.shade(background, textContrast), button, button.contrastColor())
}

// shade mixes the color with as much black or white as necessary to reach the contrast with the background.
func (c color) shade(background color, contrast float64) color {
	target := black
	if background == darkBackground {
		target = white
	}
	shade := c
	for part := 0.; shade.round().contrast(background) < contrast && part <= 1; part += 1. / 64 {
		shade = c.mix(target, part)
	}
	return shade.round()
}

// contrastColor returns white or black, whichever has sufficient contrast with the color. At least one of them always has.
func (c color) contrastColor() color {
	if c.contrast(white) >= textContrast {
		return white
	}
	return black
}

func (c color) mix(other color, part float64) (mixed color) {
	for i := range c {
		mixed[i] = c[i]*(1-part) + other[i]*part
	}
	return mixed
}

// round rounds the color to the precision of CSS hexadecimal colors.
func (c color) round() (rounded color) {
	for i := range c {
		rounded[i] = math.Round(c[i]*255) / 255
	}
	return rounded
}

// contrast returns the contrast ratio of two colors (WCAG 2.2).
func (c color) contrast(other color) float64 {
	lighter, darker := c.luminance(), other.luminance()
	if lighter < darker {
		lighter, darker = darker, lighter
	}
	return (lighter + 0.05) / (darker + 0.05)
}

// luminance returns the relative luminance of the color (WCAG 2.2).
func (c color) luminance() float64 {
	linear := func(v float64) float64 {
		if v <= 0.04045 {
			return v / 12.92
		}
		return math.Pow((v+0.055)/1.055, 2.4)
	}
	return 0.2126*linear(c[0]) + 0.7152*linear(c[1]) + 0.0722*linear(c[2])
}
