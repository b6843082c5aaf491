package browser

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
)

const (
	// deviceLifetime is how long a browser is known after a sign-in: no longer than the key
	// that seals the cookie lives.
	deviceLifetime = 90 * 24 * time.Hour

	// maxDeviceUsers is how many people are known in a browser, such as that of a ward's
	// computer. Whoever has not signed in for longest is dropped.
	maxDeviceUsers = 32
)

// Device is a browser in which people signed in before, kept in a sealed cookie. It signs
// nobody in. Its failures are counted apart from strangers', which therefore cannot lock out
// the owner of an account (OWASP, device cookies).
type Device struct {
	ID    string   `json:"id"`    // names the browser
	Users []string `json:"users"` // deviceUser of each, the latest first
}

// deviceUser names a person in the cookie without revealing who they are.
func deviceUser(canonical string) string {
	sum := sha256.Sum256([]byte(canonical))
	return base64.RawURLEncoding.EncodeToString(sum[:12])
}

// Knows reports whether a person, by canonical name, signed in here before.
func (d Device) Knows(canonical string) bool { return slices.Contains(d.Users, deviceUser(canonical)) }

// Devices recognizes browsers in which people signed in before.
type Devices struct {
	Keys keyring.Sealing // seal the cookies
}

// Find returns the device of a request, or the zero Device if it is unknown.
func (ds *Devices) Find(r *http.Request) (d Device) {
	cookie, err := r.Cookie(deviceCookie)
	if err != nil {
		return d
	}
	text, err := ds.Keys.Unseal(r.Context(), cookie.Value, deviceCookie, deviceLifetime)
	if err != nil || json.Unmarshal([]byte(text), &d) != nil {
		return Device{}
	}
	return d
}

// Remember returns the cookie by which the browser is known for a person who just signed in.
func (ds *Devices) Remember(r *http.Request, canonical string) (*http.Cookie, error) {
	d := ds.Find(r)
	if d.ID == "" {
		d.ID = oauth2.RandomToken()
	}
	name := deviceUser(canonical)
	others := slices.DeleteFunc(d.Users, func(other string) bool { return other == name })
	d.Users = append([]string{name}, others[:min(len(others), maxDeviceUsers-1)]...)
	text, err := json.Marshal(d)
	if err != nil {
		return nil, err
	}
	sealed, err := ds.Keys.Seal(r.Context(), string(text), deviceCookie)
	if err != nil {
		return nil, err
	}
	cookie := NewCookie(deviceCookie, sealed)
	cookie.MaxAge = int(deviceLifetime.Seconds())
	return cookie, nil
}
