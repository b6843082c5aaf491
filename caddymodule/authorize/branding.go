package authorize

import "github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"

type (
	// Branding makes the pages look like a site's own.
	Branding = page.Branding

	// Logo is a site's image.
	Logo = page.Logo
)

// MaxLogo is how many bytes a [Logo] may have.
const MaxLogo = page.MaxLogo

// NewLogo tells what an image is from what it contains.
func NewLogo(image []byte) (*Logo, error) { return page.NewLogo(image) }

// CheckSiteName returns an error if a text cannot be a site's name.
func CheckSiteName(name string) error { return page.CheckName(name) }

// CheckColor returns an error if a text is no colour.
func CheckColor(text string) error { return page.CheckColor(text) }

// CheckFrameAncestor refuses what is no origin that may frame a page.
func CheckFrameAncestor(origin string) error { return page.CheckAncestor(origin) }
