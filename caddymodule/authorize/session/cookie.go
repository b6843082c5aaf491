package session

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net/http"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/browser"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// A cookie names a session, and proves that it is the browser's. Its form is
// <sid>.<root>.<secret>.
//
// Whoever has root and secret, whose digest is in the record, is signed in. The secret is new at
// each sign-in.
//
// The root is as old as the session, whose sid is its digest. The sid is public: clients find it
// in ID tokens, and it proves nothing. The root proves without the record that the session is the
// browser's. That is enough to end a session whose record cannot be read, and for nothing
// else.
type cookie struct {
	sid  string
	rest string // <root>.<secret>
}

// readCookie returns the session cookie of a request; an empty one if there is none.
func readCookie(r *http.Request) (c cookie) {
	if sent, err := r.Cookie(browser.SessionCookie); err == nil {
		c.sid, c.rest, _ = strings.Cut(sent.Value, ".")
	}
	return c
}

// newRoot returns the root of a new session. Its sid does not begin with "-", so that fhir-sessions end does not read it as a flag.
func newRoot() string {
	for {
		if root := oauth2.RandomToken(); sidOf(root)[0] != '-' {
			return root
		}
	}
}

// sidOf returns the sid that a root leads to.
func sidOf(root string) string {
	sum := sha256.Sum256([]byte("session root\x00" + root))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// newCookie returns a cookie for a session, with a new secret.
func newCookie(sid, root string) cookie { return cookie{sid, root + "." + oauth2.RandomToken()} }

func (c cookie) String() string { return c.sid + "." + c.rest }

// digest is what the record keeps of the cookie.
func (c cookie) digest() [sha256.Size]byte { return sha256.Sum256([]byte(c.rest)) }

// signsIn reports whether the cookie is that of a session's latest sign-in, by the secret in its record.
func (c cookie) signsIn(secret [sha256.Size]byte) bool {
	sum := c.digest()
	return subtle.ConstantTimeCompare(sum[:], secret[:]) == 1
}

// root returns the root of the session, or "" if the cookie does not have it.
func (c cookie) root() string {
	root, _, _ := strings.Cut(c.rest, ".")
	if sidOf(root) != c.sid {
		return ""
	}
	return root
}
