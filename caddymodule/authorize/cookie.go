package authorize

import (
	"net/http"
	"strconv"
	"strings"
)

// The __Host- prefix makes the browser refuse these cookies from any other host
// or over plain HTTP (RFC 6265bis §4.1.3.2).
const (
	sessionCookie = "__Host-fhir-session"
	browserCookie = "__Host-fhir-browser"
	awayPrefix    = "__Host-fhir-away-"
)

const (
	// pieceSize keeps a cookie below the 4096 bytes that browsers take.
	pieceSize = 3800

	// maxPieces bounds what one sign-in at a provider may leave in a browser.
	maxPieces = 5
)

var errTooLong = invalidRequest("the request is too long to sign in to by an identity provider")

// newCookie is a cookie that scripts and other sites' forms cannot use.
func newCookie(name, value string) *http.Cookie {
	return &http.Cookie{
		Name: name, Value: value, Path: "/",
		Secure: true, HttpOnly: true, SameSite: http.SameSiteLaxMode,
	}
}

func removeCookie(w http.ResponseWriter, name string) {
	c := newCookie(name, "")
	c.MaxAge = -1
	http.SetCookie(w, c)
}

// awayCookie names the cookie of one sign-in at a provider, so that several at
// once, in several tabs, do not replace each other's.
func awayCookie(state string) string {
	return awayPrefix + strings.TrimPrefix(storeKey("", state), ":")[:12]
}

// setPieces spreads a value over as many cookies as it needs.
func setPieces(w http.ResponseWriter, name, value string) error {
	if len(value) > maxPieces*pieceSize {
		return errTooLong
	}
	for i := 0; len(value) > 0; i++ {
		piece := value[:min(len(value), pieceSize)]
		value = value[len(piece):]
		c := newCookie(name+"-"+strconv.Itoa(i), piece)
		c.MaxAge = int(awayTime.Seconds())
		http.SetCookie(w, c)
	}
	return nil
}

// takePieces puts the value together again and removes the cookies.
func takePieces(w http.ResponseWriter, r *http.Request, name string) string {
	var value strings.Builder
	for i := range maxPieces {
		piece := name + "-" + strconv.Itoa(i)
		c, err := r.Cookie(piece)
		if err != nil {
			break
		}
		value.WriteString(c.Value)
		removeCookie(w, piece)
	}
	return value.String()
}
