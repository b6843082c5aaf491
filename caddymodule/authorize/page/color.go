package page

import (
	"encoding/hex"
	"fmt"
	"math"
	"strings"
)

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
