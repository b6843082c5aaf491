package brands

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
)

var (
	idForm      = regexp.MustCompile(`^[A-Za-z0-9.-]{1,64}$`)
	versionForm = regexp.MustCompile(`^[0-9]+\.[0-9]+(\.[0-9]+)?(-[a-z0-9]+)?$`)
)

// isWebAddress reports whether a text is a URL that a browser can open.
func isWebAddress(text string, schemes ...string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Hostname() != "" && u.User == nil && slices.Contains(schemes, u.Scheme)
}

// webAddress checks a URL that must be there.
func (e element) webAddress(schemes ...string) {
	if text := e.required(); e.exists() && !isWebAddress(text, schemes...) {
		e.fail("%.100q must be a URL with %s and a host", text, strings.Join(schemes, ": or ")+":")
	}
}

// isImage reports whether a text is the address of a logo, or the logo itself.
func isImage(text string) bool {
	return strings.HasPrefix(text, "data:image/") || isWebAddress(text, "https")
}

func (e element) image() {
	if text := e.required(); e.exists() && !isImage(text) {
		e.fail("%.100q must be an https: URL, or an image as a data: URL", text)
	}
}

// CheckWebsite returns an error if a text is neither the URL of a website nor a reason why
// there is none.
func CheckWebsite(text string) error {
	if !isReason(text) && !isWebAddress(text, "https", "http") {
		return fmt.Errorf("%.100q must be a URL, such as https://hospital.example, or one of %s, %s", text, AskedDeclined, AskedUnknown)
	}
	return nil
}

// CheckPage returns an error if a text is not an https URL.
func CheckPage(text string) error {
	if !isWebAddress(text, "https") {
		return fmt.Errorf("%.100q must be an https URL", text)
	}
	return nil
}

// CheckLogo returns an error if a logo, or the page with its terms, cannot be shown. There
// may be no page.
func CheckLogo(image, license string) error {
	switch {
	case !isImage(image):
		return fmt.Errorf("%.100q must be an https: URL, or an image as a data: URL", image)
	case license != "" && !isWebAddress(license, "https", "http"):
		return fmt.Errorf("%.100q must be the URL of a page with the terms for the logo", license)
	}
	return nil
}

// instant checks a time that must be there (FHIR R4, instant).
func (e element) instant() time.Time {
	text := e.required()
	at, err := time.Parse(time.RFC3339, text)
	if e.exists() && err != nil {
		e.fail("%.50q is no instant, such as 2026-01-31T09:00:00Z", text)
	}
	return at
}

func (e element) id() string {
	id := e.required()
	if e.exists() && !idForm.MatchString(id) {
		e.fail("%.70q is no id: letters, digits, hyphens and dots, at most 64", id)
	}
	return id
}
