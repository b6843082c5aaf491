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
	// deviceTime is how long a browser counts as known after a sign-in. It is
	// no longer than the key that seals the cookie lives.
	deviceTime = 90 * 24 * time.Hour

	// maxDeviceUsers is how many people a browser can be known to, as that of a
	// ward's computer is. The one who did not sign in for longest goes first.
	maxDeviceUsers = 32
)

// Device is a browser in which people signed in before, as the browser keeps it
// for us, sealed. It signs nobody in: its failures are only counted apart from
// those of strangers (OWASP, device cookies), so that these cannot lock out the
// owner of an account.
type Device struct {
	ID    string   `json:"id"`    // names the browser
	Users []string `json:"users"` // deviceUser of each, the latest first
}

// deviceUser names a person to their browser without telling who uses it.
func deviceUser(canonical string) string {
	sum := sha256.Sum256([]byte(canonical))
	return base64.RawURLEncoding.EncodeToString(sum[:12])
}

// Knows says whether a person, by their canonical name, signed in here before.
func (d Device) Knows(canonical string) bool { return slices.Contains(d.Users, deviceUser(canonical)) }

// Devices knows browsers again in which people signed in before.
type Devices struct {
	Keys keyring.Sealing // seal what browsers keep of it
}

// Find is the browser of a request; the zero one where it is not known, or not
// any more.
func (ds *Devices) Find(r *http.Request) (d Device) {
	cookie, err := r.Cookie(deviceCookie)
	if err != nil {
		return d
	}
	text, err := ds.Keys.Unseal(r.Context(), cookie.Value, deviceCookie, deviceTime)
	if err != nil || json.Unmarshal([]byte(text), &d) != nil {
		return Device{}
	}
	return d
}

// Remember makes the browser known to a person who just signed in.
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
	cookie.MaxAge = int(deviceTime.Seconds())
	return cookie, nil
}
