package browser

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

const (
	// deviceLifetime is how long a browser is known after a sign-in: no longer than the key
	// that seals the cookie lives.
	deviceLifetime = 90 * 24 * time.Hour

	// maxDeviceUsers is how many people are known in a browser, such as that of a ward's
	// computer. Whoever has not signed in for longest is dropped.
	maxDeviceUsers = 32
)

// Devices recognizes browsers in which people signed in before, by a sealed cookie. It signs
// nobody in. Failures there are counted apart from strangers', which therefore cannot lock out
// the owner of an account (OWASP, device cookies).
type Devices struct {
	Keys keyring.Sealing // seal the cookies

	// Binding is what of an account, by its id, a browser is known for: it changes with the
	// password and the second factors, and then the browser is a stranger's.
	Binding func(ctx context.Context, account string) (string, error)
}

// device is what a cookie holds.
type device struct {
	ID    string   `json:"id"`    // names the browser
	Users []string `json:"users"` // deviceUser of each, with the binding, the latest first
}

// deviceUser names a person in the cookie without revealing who they are.
func deviceUser(name string) string {
	sum := sha256.Sum256([]byte(name))
	return base64.RawURLEncoding.EncodeToString(sum[:12])
}

func (ds *Devices) entry(ctx context.Context, account string) (string, error) {
	binding, err := ds.Binding(ctx, account)
	return deviceUser(account) + "." + deviceUser(account+"\x00"+binding), err
}

// find returns the device of a request, or the zero device if it is unknown.
func (ds *Devices) find(r *http.Request) (d device) {
	cookie, err := r.Cookie(deviceCookie)
	if err != nil {
		return d
	}
	text, err := ds.Keys.Unseal(r.Context(), cookie.Value, deviceCookie, deviceLifetime)
	if err != nil || json.Unmarshal([]byte(text), &d) != nil {
		return device{}
	}
	return d
}

// Knowing returns what names the browser of a request if the owner of an account has signed in
// there with the password and the second factors of now, and otherwise "".
func (ds *Devices) Knowing(r *http.Request, account string) (string, error) {
	d := ds.find(r)
	if account == "" || len(d.Users) == 0 {
		return "", nil
	}
	entry, err := ds.entry(r.Context(), account)
	if err != nil || !slices.Contains(d.Users, entry) {
		return "", err
	}
	return d.ID, nil
}

// Remember returns the cookie by which the browser is known for the owner of an account who
// just signed in.
func (ds *Devices) Remember(r *http.Request, account string) (*http.Cookie, error) {
	d := ds.find(r)
	if d.ID == "" {
		d.ID = oauth2.RandomToken()
	}
	entry, err := ds.entry(r.Context(), account)
	if err != nil {
		return nil, err
	}
	others := slices.DeleteFunc(d.Users, func(other string) bool { return strings.HasPrefix(other, deviceUser(account)) })
	d.Users = append([]string{entry}, others[:min(len(others), maxDeviceUsers-1)]...)
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
