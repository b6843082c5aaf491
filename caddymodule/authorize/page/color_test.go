package page

import (
	"math"
	"regexp"
	"strings"
	"testing"
)

// The examples of WCAG's definition, and of well-known tools.
func TestContrast(t *testing.T) {
	t.Parallel()
	for pair, want := range map[[2]string]float64{
		{"#000000", "#ffffff"}: 21, {"#767676", "#ffffff"}: 4.54, {"#ffffff", "#777777"}: 4.48, {"#ff0000", "#ffffff"}: 4.00,
	} {
		if got := parsed(t, pair[0]).contrast(parsed(t, pair[1])); math.Abs(got-want) > 0.005 {
			t.Errorf("%v: %.3f, want %.2f", pair, got, want)
		}
	}
}

func parsed(t *testing.T, text string) color {
	t.Helper()
	c, err := parseColor(text)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Whatever colour a site has, its links and buttons can be read in both schemes.
func TestEveryColorCanBeRead(t *testing.T) {
	t.Parallel()
	values := regexp.MustCompile(`--accent: (#\w{6}); --button: (#\w{6}); --on-button: (#\w{6});`)
	channels := []float64{0, 0.2, 0.4, 0.5, 0.6, 0.8, 1}
	for _, background := range []color{light, white, dark, parsed(t, "0f171d")} {
		derivedFor := light
		if background.luminance() < 0.5 {
			derivedFor = dark
		}
		for _, r := range channels {
			for _, g := range channels {
				for _, b := range channels {
					c := color{r, g, b}.rounded()
					m := values.FindStringSubmatch(c.palette(derivedFor))
					accent, button, text := parsed(t, m[1]), parsed(t, m[2]), parsed(t, m[3])
					if accent.contrast(background) < 4.5 || button.contrast(background) < 3 || text.contrast(button) < 4.5 {
						t.Fatalf("%s on %s: %s", c, background, m[0])
					}
				}
			}
		}
	}
}

// A colour that has enough contrast stays as it is.
func TestColorIsKept(t *testing.T) {
	t.Parallel()
	if got := parsed(t, "#0b5c8a").palette(light); got != "--accent: #0b5c8a; --button: #0b5c8a; --on-button: #ffffff;" {
		t.Error(got)
	}
	style := string((&Branding{Color: "ffe000"}).style())
	if !strings.Contains(style, ":root { --accent: #") || !strings.Contains(style, "--button: #ffe000; --on-button: #000000; } }") {
		t.Error(style)
	}
}

func TestBackgroundsAreThoseOfTheStyle(t *testing.T) {
	t.Parallel()
	style := readFile("style.css")
	for _, want := range []string{"--page: " + light.String(), "--card: " + dark.String()} {
		if !strings.Contains(style, want) {
			t.Errorf("no %s", want)
		}
	}
}
