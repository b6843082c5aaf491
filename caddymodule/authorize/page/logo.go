package page

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/xml"
	"errors"
	"fmt"
	"image/png"
	"io"
	"net/http"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
)

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
