package page

import (
	"net/url"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
)

// AppLinks are what an app that registered itself shows of itself (RFC 7591 §2). Nobody has
// checked them. A browser loads nothing from the app: its logo comes from here.
type AppLinks struct {
	Client string // the client's title
	Logo   string // the address of its logo here, or ""
	Policy string // the address of its privacy policy, or ""
	Terms  string // that of its terms of use, or ""
}

// LogoOf is where the logo of a client is.
func LogoOf(clientID string) string {
	return endpoint.ClientLogo + "?client_id=" + url.QueryEscape(clientID)
}

// Images are what a page with these links loads, for its [Policy].
func (a AppLinks) Images() string {
	if a.Logo == "" {
		return ""
	}
	return "'self'"
}
