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
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
)

// maxName bounds a site's name, so that it fits a small telephone.
const maxName = 80

// Branding makes the pages look like a site's own.
type Branding struct {
	Name  string // of the site, on every page. Default: the issuer's host.
	Color string // of buttons and links, such as "#0b5c8a". Default: a blue.
	Logo  *Logo  // above the name. Default: none.
}

func (b *Branding) check() error {
	if b.Name != "" {
		if err := CheckName(b.Name); err != nil {
			return err
		}
	}
	if b.Color != "" {
		return CheckColor(b.Color)
	}
	return nil
}

// CheckName returns an error if a text cannot be a site's name.
func CheckName(name string) error {
	switch {
	case !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl):
		return errors.New("the name must be text without control characters")
	case strings.TrimSpace(name) == "":
		return errors.New("the name is empty")
	case utf8.RuneCountInString(name) > maxName:
		return fmt.Errorf("the name is longer than %d characters", maxName)
	}
	return nil
}

// CheckColor returns an error if a text is no colour. All colours can be used: where one has
// too little contrast, pages use a lighter or darker shade of it.
func CheckColor(text string) error {
	_, err := parseColor(text)
	return err
}

// style is the style sheet with the site's colour in it.
func (b *Branding) style() template.CSS {
	style := readFile("style.css")
	if b.Color != "" {
		brand, _ := parseColor(b.Color) // checked
		style += fmt.Sprintf(":root { %s }\n@media (prefers-color-scheme: dark) { :root { %s } }\n", brand.palette(light), brand.palette(dark))
	}
	return template.CSS(style)
}

// MaxLogo is how large a logo may be, in bytes.
const MaxLogo = 256 << 10

var errNoLogo = errors.New("not a PNG, SVG or WebP image")

// Logo is a site's image.
type Logo struct {
	contentType string
	image       []byte
	version     string // changes with the image
}

// NewLogo tells what an image is from what it contains.
func NewLogo(image []byte) (*Logo, error) {
	if len(image) > MaxLogo {
		return nil, fmt.Errorf("larger than %d KiB", MaxLogo>>10)
	}
	l := &Logo{image: image, contentType: http.DetectContentType(image)}
	switch l.contentType {
	case "image/png":
		if _, err := png.DecodeConfig(bytes.NewReader(image)); err != nil {
			return nil, fmt.Errorf("a PNG image that cannot be read: %w", err)
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

// checkSVG accepts an XML document whose root is SVG's. Browsers show no other as an image.
func checkSVG(image []byte) error {
	root, decoder := xml.Name{}, xml.NewDecoder(bytes.NewReader(image))
	for {
		token, err := decoder.Token()
		isSVG := root == xml.Name{Space: "http://www.w3.org/2000/svg", Local: "svg"}
		switch {
		case errors.Is(err, io.EOF) && isSVG:
			return nil
		case err != nil && isSVG:
			return fmt.Errorf("an SVG image that cannot be read: %w", err)
		case err != nil:
			return errNoLogo
		}
		if start, ok := token.(xml.StartElement); ok && root.Local == "" {
			root = start.Name
		}
	}
}

// address is where the logo is, under a name of its own for each image, so that browsers can
// keep it.
func (l *Logo) address() string {
	if l == nil {
		return ""
	}
	return endpoint.Logo + "?" + l.version
}

// ServeHTTP sends the image. The policy keeps scripts in an SVG image from running, even if
// somebody opens it as a page.
func (l *Logo) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", l.contentType)
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; sandbox")
	h.Set("X-Content-Type-Options", "nosniff")
	if r.URL.RawQuery == l.version {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	_, _ = w.Write(l.image) // the browser may have gone
}

// The contrasts that WCAG 2.2 asks for: of text (§1.4.3), and of what one must make out, such
// as a button (§1.4.11).
const (
	textContrast  = 4.5
	shapeContrast = 3
)

// color is one of sRGB, in parts of 1.
type color [3]float64

var (
	white, black = color{1, 1, 1}, color{}

	// light and dark are the schemes' backgrounds: of those in style.css, the ones with less
	// contrast.
	light = color{0xf2 / 255., 0xf5 / 255., 0xf7 / 255.}
	dark  = color{0x18 / 255., 0x23 / 255., 0x2b / 255.}
)

// parseColor reads three bytes in hexadecimal, after a # or not: in a Caddyfile, # begins a
// comment unless there are quotes.
func parseColor(text string) (c color, err error) {
	bytes, err := hex.DecodeString(strings.TrimPrefix(text, "#"))
	if err != nil || len(bytes) != len(c) {
		return c, fmt.Errorf("color %q must be like 0b5c8a: red, green and blue in hexadecimal", text)
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

// palette is what a scheme makes of a site's colour: buttons as they are, as far as one can
// make them out, and links of a shade that can be read.
func (c color) palette(background color) string {
	button := c.shade(background, shapeContrast)
	return fmt.Sprintf("--accent: %s; --button: %s; --on-button: %s;", c.shade(background, textContrast), button, button.readable())
}

// shade is the color, mixed with as much black or white as gives it the contrast.
func (c color) shade(background color, contrast float64) color {
	toward := black
	if background == dark {
		toward = white
	}
	shade := c
	for part := 0.; shade.rounded().contrast(background) < contrast && part <= 1; part += 1. / 64 {
		shade = c.mix(toward, part)
	}
	return shade.rounded()
}

// readable is white or black, whichever can be read on the color. One of them always can.
func (c color) readable() color {
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

// rounded is the color as style sheets write it.
func (c color) rounded() (rounded color) {
	for i := range c {
		rounded[i] = math.Round(c[i]*255) / 255
	}
	return rounded
}

// contrast is the contrast ratio of WCAG 2.2.
func (c color) contrast(other color) float64 {
	lighter, darker := c.luminance(), other.luminance()
	if lighter < darker {
		lighter, darker = darker, lighter
	}
	return (lighter + 0.05) / (darker + 0.05)
}

// luminance is the relative luminance of WCAG 2.2.
func (c color) luminance() float64 {
	linear := func(v float64) float64 {
		if v <= 0.04045 {
			return v / 12.92
		}
		return math.Pow((v+0.055)/1.055, 2.4)
	}
	return 0.2126*linear(c[0]) + 0.7152*linear(c[1]) + 0.0722*linear(c[2])
}
