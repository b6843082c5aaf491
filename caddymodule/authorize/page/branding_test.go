package page

import (
	"bytes"
	"image"
	"image/png"
	"math"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

const svg = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1 1"><script>alert(1)</script></svg>`

func onePixel(t *testing.T) []byte {
	t.Helper()
	var file bytes.Buffer
	if err := png.Encode(&file, image.NewGray(image.Rect(0, 0, 1, 1))); err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

func TestNewLogo(t *testing.T) {
	t.Parallel()
	pixel := onePixel(t)
	tests := []struct{ name, image, contentType, err string }{
		{"PNG", string(pixel), "image/png", ""},
		{"WebP", "RIFF\x24\x00\x00\x00WEBPVP8 ", "image/webp", ""},
		{"SVG", svg, "image/svg+xml", ""},
		{"SVG after a declaration", `<?xml version="1.0" encoding="UTF-8"?><!-- x -->` + svg, "image/svg+xml", ""},
		{"PNG cut off", string(pixel[:12]), "", "decoding the PNG logo"},
		{"SVG cut off", svg[:60], "", "decoding the SVG logo"},
		{"SVG without a namespace", `<svg/>`, "", errUnsupportedLogo.Error()},
		{"page", `<!doctype html><title>x</title>`, "", errUnsupportedLogo.Error()},
		{"GIF", "GIF89a", "", errUnsupportedLogo.Error()},
		{"nothing", "", "", errUnsupportedLogo.Error()},
		{"large", strings.Repeat(" ", MaxLogoSize+1), "", "256 KiB"},
	}
	for _, tt := range tests {
		logo, err := NewLogo([]byte(tt.image))
		switch {
		case tt.err != "":
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%s: %v", tt.name, err)
			}
		case err != nil || logo.contentType != tt.contentType:
			t.Errorf("%s: %v, %v", tt.name, logo, err)
		}
	}
}

// An SVG image cannot run scripts, no matter how it is opened.
func TestLogoIsServedWithoutScripts(t *testing.T) {
	t.Parallel()
	logo, err := NewLogo([]byte(svg))
	if err != nil {
		t.Fatal(err)
	}
	for address, cached := range map[string]bool{logo.url("/oauth2/logo"): true, "/oauth2/logo": false} {
		w := httptest.NewRecorder()
		logo.ServeHTTP(w, httptest.NewRequest(http.MethodGet, address, nil))
		h := w.Header()
		if h.Get("Content-Security-Policy") != "default-src 'none'; style-src 'unsafe-inline'; sandbox" || h.Get("X-Content-Type-Options") != "nosniff" ||
			h.Get("Content-Type") != "image/svg+xml" || strings.Contains(h.Get("Cache-Control"), "immutable") != cached || w.Body.String() != svg {
			t.Errorf("%s: %v", address, h)
		}
	}
	w := httptest.NewRecorder()
	newSite(t, Branding{Logo: logo}).Show(w, httptest.NewRequest(http.MethodGet, "/", nil), View{Template: "message", Data: Message{Title: T("A"), Text: T("B")}})
	if body := w.Body.String(); !strings.Contains(body, `<img src="`+logo.url("/oauth2/logo")+`" alt="">`) || strings.Contains(body, "<svg") ||
		!strings.Contains(w.Header().Get("Content-Security-Policy"), "; img-src 'self';") {
		t.Errorf("%v %s", w.Header(), body)
	}
}

func TestName(t *testing.T) {
	t.Parallel()
	r := showView(t, httptest.NewRequest(http.MethodGet, "/", nil), View{Template: "signout", Data: SignOut{}})
	if body := readBody(t, r); !strings.Contains(body, "<title>Sign out · sign-in.example</title>") || strings.Contains(body, "<img") {
		t.Error(body)
	}
	w := httptest.NewRecorder()
	newSite(t, Branding{Name: "St. Mary's <b>"}).Show(w, httptest.NewRequest(http.MethodGet, "/", nil), View{Template: "signout", Data: SignOut{}})
	for _, want := range []string{"<title>Sign out · St. Mary&#39;s &lt;b&gt;</title>", "</header>", "You’re signed in to St. Mary&#39;s &lt;b&gt;."} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("no %s in %s", want, w.Body)
		}
	}
}

func TestBrandingErrors(t *testing.T) {
	t.Parallel()
	link := func(name, address string) Branding { return Branding{Links: map[string]string{name: address}} }
	for name, b := range map[string]Branding{
		"control character": {Name: "a\nb"}, "blank": {Name: " "}, "long": {Name: strings.Repeat("a", 81)}, "not UTF-8": {Name: "\xff"},
		"link over http": link("help", "http://help.example/"), "script": link("forgot_password", "javascript:alert(1)"), "other host": link("privacy", "//help.example/"),
		"relative link": link("imprint", "imprint"), "backslashes": link("help", `/\help.example`), "credentials": link("help", "https://a:b@help.example/"),
		"unknown link": link("terms", "/terms"), "no address": link("help", ""),
		"named colour": {Color: "blue"}, "short": {Color: "#fff"}, "no hexadecimal": {Color: "#12345g"}, "style": {Color: "#000000;}"},
	} {
		if _, err := New("https://sign-in.example", b, nil); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestLinks(t *testing.T) {
	t.Parallel()
	site := newSite(t, Branding{Links: map[string]string{"help": "https://help.example/", "imprint": "/imprint", "forgot_password": "/forgot"}})
	w := httptest.NewRecorder()
	site.Show(w, httptest.NewRequest(http.MethodGet, "/", nil), View{Template: "signout", Data: SignOut{}})
	body := w.Body.String()
	for want, count := range map[string]int{`<a href="https://help.example/" target="_blank" rel="noopener noreferrer">Help</a>`: 1, `href="/imprint"`: 1, "Privacy": 0, "/forgot": 0} {
		if strings.Count(body, want) != count {
			t.Errorf("want %d of %s in %s", count, want, body)
		}
	}
}

// Examples from the definition of WCAG and from well-known tools.
func TestContrast(t *testing.T) {
	t.Parallel()
	for pair, want := range map[[2]string]float64{
		{"#000000", "#ffffff"}: 21, {"#767676", "#ffffff"}: 4.54, {"#ffffff", "#777777"}: 4.48, {"#ff0000", "#ffffff"}: 4.00,
	} {
		if got := mustParseColor(t, pair[0]).contrast(mustParseColor(t, pair[1])); math.Abs(got-want) > 0.005 {
			t.Errorf("%v: %.3f, want %.2f", pair, got, want)
		}
	}
}

func mustParseColor(t *testing.T, text string) color {
	t.Helper()
	c, err := parseColor(text)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// With any site color, links and buttons are readable in both color schemes.
func TestEveryColorIsReadable(t *testing.T) {
	t.Parallel()
	values := regexp.MustCompile(`--accent: (#\w{6}); --button: (#\w{6}); --on-button: (#\w{6});`)
	channels := []float64{0, 0.2, 0.4, 0.5, 0.6, 0.8, 1}
	for _, background := range []color{lightBackground, white, darkBackground, mustParseColor(t, "0f171d")} {
		derivedFor := lightBackground
		if background.luminance() < 0.5 {
			derivedFor = darkBackground
		}
		for _, r := range channels {
			for _, g := range channels {
				for _, b := range channels {
					c := color{r, g, b}.round()
					m := values.FindStringSubmatch(c.palette(derivedFor))
					accent, button, text := mustParseColor(t, m[1]), mustParseColor(t, m[2]), mustParseColor(t, m[3])
					if accent.contrast(background) < 4.5 || button.contrast(background) < 3 || text.contrast(button) < 4.5 {
						t.Fatalf("%s on %s: %s", c, background, m[0])
					}
				}
			}
		}
	}
}

// A color with sufficient contrast is used unchanged.
func TestReadableColorIsUnchanged(t *testing.T) {
	t.Parallel()
	if got := mustParseColor(t, "#0b5c8a").palette(lightBackground); got != "--accent: #0b5c8a; --button: #0b5c8a; --on-button: #ffffff;" {
		t.Error(got)
	}
	style := string((&Branding{Color: "ffe000"}).style())
	if !strings.Contains(style, ":root { --accent: #") || !strings.Contains(style, "--button: #ffe000; --on-button: #000000; } }") {
		t.Error(style)
	}
}

// Buttons that end access, in the color --wrong, are readable on the page and on the card in both color schemes.
func TestDestructiveButtonsAreReadable(t *testing.T) {
	t.Parallel()
	colors := regexp.MustCompile(`(?s)--page: (#\w+); --card: (#\w+);.*?--wrong: (#\w+);`).FindAllStringSubmatch(readFile("style.css"), -1)
	if len(colors) != 2 {
		t.Fatalf("color schemes %q", colors)
	}
	for _, scheme := range colors {
		for _, background := range scheme[1:3] {
			background = strings.Replace(background, "#fff", "#ffffff", 1)
			if contrast := mustParseColor(t, scheme[3]).contrast(mustParseColor(t, background)); contrast < textContrast {
				t.Errorf("%s on %s: %.2f", scheme[3], background, contrast)
			}
		}
	}
}

func TestBackgroundsAreThoseOfTheStyle(t *testing.T) {
	t.Parallel()
	style := readFile("style.css")
	for _, want := range []string{"--page: " + lightBackground.String(), "--card: " + darkBackground.String()} {
		if !strings.Contains(style, want) {
			t.Errorf("no %s", want)
		}
	}
}
