package browser

import "net/http"

// CookiePrefix begins the names of all our cookies, which are for this server alone, not for
// one behind it. Because of __Host-, browsers refuse them from other hosts and over plain
// HTTP (RFC 6265bis §4.1.3.2).
const CookiePrefix = "__Host-fhir-"

// The names of cookies, and prefixes of names.
const (
	SessionCookie = CookiePrefix + "session"
	IDPrefix      = CookiePrefix + "browser-"
	PendingPrefix = CookiePrefix + "away-" // of pending sign-ins at identity providers
	deviceCookie  = CookiePrefix + "device"
)

// NewCookie makes a cookie that scripts and other sites' forms cannot use.
func NewCookie(name, value string) *http.Cookie {
	return &http.Cookie{
		Name: name, Value: value, Path: "/",
		Secure: true, HttpOnly: true, SameSite: http.SameSiteLaxMode,
	}
}

// RemoveCookie removes a cookie from the browser.
func RemoveCookie(w http.ResponseWriter, name string) {
	c := NewCookie(name, "")
	c.MaxAge = -1
	http.SetCookie(w, c)
}
