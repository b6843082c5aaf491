package browser

import (
	"net/http"
)

// The __Host- prefix makes the browser refuse these cookies from any other host
// or over plain HTTP (RFC 6265bis §4.1.3.2).
const (
	SessionCookie = CookiePrefix + "session"
	IDPrefix      = CookiePrefix + "browser-"
	deviceCookie  = CookiePrefix + "device"
	AwayPrefix    = CookiePrefix + "away-"
)

// CookiePrefix begins the names of all cookies that are set here. They are for
// this server alone, and not for a server behind it.
const CookiePrefix = "__Host-fhir-"

// NewCookie is a cookie that scripts and other sites' forms cannot use.
func NewCookie(name, value string) *http.Cookie {
	return &http.Cookie{
		Name: name, Value: value, Path: "/",
		Secure: true, HttpOnly: true, SameSite: http.SameSiteLaxMode,
	}
}

// RemoveCookie has the browser forget a cookie.
func RemoveCookie(w http.ResponseWriter, name string) {
	c := NewCookie(name, "")
	c.MaxAge = -1
	http.SetCookie(w, c)
}
