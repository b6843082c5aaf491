package browser

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
)

const (
	// pieceSize keeps a cookie below the 4096 bytes that browsers take.
	pieceSize = 3960

	// maxPieces bounds what sign-ins at providers may leave in a browser. All of
	// it comes back with each request, of whose header Caddy takes 16 KiB.
	maxPieces = 3
)

var errTooLong = oauth2.InvalidRequest("the request is too long to sign in to by an identity provider")

// SetPieces spreads a value over as many cookies as it needs. Those of sign-ins
// that were never finished make room, if there is too little.
func SetPieces(w http.ResponseWriter, r *http.Request, name, value string, lifetime time.Duration) error {
	if len(value) > maxPieces*pieceSize {
		return errTooLong
	}
	makeRoom(w, r, maxPieces*pieceSize-len(value))
	for i := 0; len(value) > 0; i++ {
		piece := value[:min(len(value), pieceSize)]
		value = value[len(piece):]
		c := NewCookie(name+"-"+strconv.Itoa(i), piece)
		c.MaxAge = int(lifetime.Seconds())
		http.SetCookie(w, c)
	}
	return nil
}

// makeRoom removes all that earlier sign-ins left, if it is more than there is
// room for. Which of them is the oldest cannot be seen.
func makeRoom(w http.ResponseWriter, r *http.Request, room int) {
	var earlier []string
	for _, c := range r.Cookies() {
		if strings.HasPrefix(c.Name, AwayPrefix) {
			earlier = append(earlier, c.Name)
			room -= len(c.Name) + len(c.Value)
		}
	}
	if room >= 0 {
		return
	}
	for _, name := range earlier {
		RemoveCookie(w, name)
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

// ReadPieces puts the value together again.
func ReadPieces(r *http.Request, name string) string {
	var value strings.Builder
	for _, c := range pieces(r, name) {
		value.WriteString(c.Value)
	}
	return value.String()
}

// RemovePieces removes the cookies.
func RemovePieces(w http.ResponseWriter, r *http.Request, name string) {
	for _, c := range pieces(r, name) {
		RemoveCookie(w, c.Name)
	}
}
