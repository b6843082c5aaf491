package authorize

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
)

// The __Host- prefix makes the browser refuse these cookies from any other host
// or over plain HTTP (RFC 6265bis §4.1.3.2).
const (
	sessionCookie = CookiePrefix + "session"
	browserPrefix = CookiePrefix + "browser-"
	deviceCookie  = CookiePrefix + "device"
	awayPrefix    = CookiePrefix + "away-"
)

// CookiePrefix begins the names of all cookies that are set here. They are for
// this server alone, and not for a server behind it.
const CookiePrefix = "__Host-fhir-"

const (
	// pieceSize keeps a cookie below the 4096 bytes that browsers take.
	pieceSize = 3960

	// maxPieces bounds what sign-ins at providers may leave in a browser. All of
	// it comes back with each request, of whose header Caddy takes 16 KiB.
	maxPieces = 3
)

var errTooLong = oauth2.InvalidRequest("the request is too long to sign in to by an identity provider")

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

// setPieces spreads a value over as many cookies as it needs. Those of sign-ins
// that were never finished make room, if there is too little.
func setPieces(w http.ResponseWriter, r *http.Request, name, value string) error {
	if len(value) > maxPieces*pieceSize {
		return errTooLong
	}
	makeRoom(w, r, maxPieces*pieceSize-len(value))
	for i := 0; len(value) > 0; i++ {
		piece := value[:min(len(value), pieceSize)]
		value = value[len(piece):]
		c := newCookie(name+"-"+strconv.Itoa(i), piece)
		c.MaxAge = int(awayTime.Seconds())
		http.SetCookie(w, c)
	}
	return nil
}

// makeRoom removes all that earlier sign-ins left, if it is more than there is
// room for. Which of them is the oldest cannot be seen.
func makeRoom(w http.ResponseWriter, r *http.Request, room int) {
	var earlier []string
	for _, c := range r.Cookies() {
		if strings.HasPrefix(c.Name, awayPrefix) {
			earlier = append(earlier, c.Name)
			room -= len(c.Name) + len(c.Value)
		}
	}
	if room >= 0 {
		return
	}
	for _, name := range earlier {
		removeCookie(w, name)
	}
}

// pieces are the cookies that hold the parts of a value.
func pieces(r *http.Request, name string) (found []*http.Cookie) {
	for i := range maxPieces {
		c, err := r.Cookie(name + "-" + strconv.Itoa(i))
		if err != nil {
			break
		}
		found = append(found, c)
	}
	return found
}

// readPieces puts the value together again.
func readPieces(r *http.Request, name string) string {
	var value strings.Builder
	for _, c := range pieces(r, name) {
		value.WriteString(c.Value)
	}
	return value.String()
}

// removePieces removes the cookies.
func removePieces(w http.ResponseWriter, r *http.Request, name string) {
	for _, c := range pieces(r, name) {
		removeCookie(w, c.Name)
	}
}
