package browser

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

const (
	pieceSize = 3960 // keeps a cookie below the 4096 bytes that browsers accept

	// maxPieces bounds what pending sign-ins keep in a browser, which sends it with each
	// request. Caddy accepts 16 KiB of headers.
	maxPieces = 3
)

var errTooLong = oauth2.InvalidRequest("the request is too long to sign in to by an identity provider")

// SetPieces stores a value in as many cookies as it needs. If there is too little room, it
// removes those of abandoned sign-ins.
func SetPieces(w http.ResponseWriter, r *http.Request, name, value string, lifetime time.Duration) error {
	if len(value) > maxPieces*pieceSize {
		return errTooLong
	}
	removeAbandoned(w, r, maxPieces*pieceSize-len(value))
	for i := 0; len(value) > 0; i++ {
		piece := value[:min(len(value), pieceSize)]
		value = value[len(piece):]
		c := NewCookie(name+"-"+strconv.Itoa(i), piece)
		c.MaxAge = int(lifetime.Seconds())
		http.SetCookie(w, c)
	}
	return nil
}

// removeAbandoned removes the cookies of all earlier sign-ins if they exceed the room: it
// cannot tell which is the oldest.
func removeAbandoned(w http.ResponseWriter, r *http.Request, room int) {
	var earlier []string
	for _, c := range r.Cookies() {
		if strings.HasPrefix(c.Name, PendingPrefix) {
			earlier = append(earlier, c.Name)
			room -= len(c.Name) + len(c.Value)
		}
	}
	for _, name := range earlier {
		if room < 0 {
			RemoveCookie(w, name)
		}
	}
}

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

// ReadPieces returns the value that [SetPieces] stored; "" if there is none.
func ReadPieces(r *http.Request, name string) string {
	var value strings.Builder
	for _, c := range pieces(r, name) {
		value.WriteString(c.Value)
	}
	return value.String()
}

// RemovePieces removes the cookies of a value.
func RemovePieces(w http.ResponseWriter, r *http.Request, name string) {
	for _, c := range pieces(r, name) {
		RemoveCookie(w, c.Name)
	}
}
