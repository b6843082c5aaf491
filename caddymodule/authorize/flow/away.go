package flow

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/browser"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/upstream"
)

// away is what we must know again when the browser comes back from a provider.
// The browser keeps it in a cookie, sealed: whoever comes back without it, or
// with another's, did not leave from here (RFC 9700 §4.7).
type away struct {
	Provider string                         `json:"provider"`
	Issuer   string                         `json:"issuer"` // the provider's, at that time
	Request  upstream.AuthenticationRequest `json:"request"`
	Query    string                         `json:"query"`
}

// awayTime is how long a sign-in at a provider may take.
const awayTime = 10 * time.Minute

// awayCookie names the cookie of one sign-in at a provider, so that several at
// once, in several tabs, do not replace each other's.
func awayCookie(state string) string {
	return browser.AwayPrefix + strings.TrimPrefix(store.Key("", state), ":")[:12]
}

func (f *federation) keepAway(w http.ResponseWriter, r *http.Request, a away) error {
	text, err := json.Marshal(a)
	if err != nil {
		return err
	}
	sealed, err := f.browsers.Keys.Seal(r.Context(), string(text), "idp "+f.browsers.ID(w, r))
	if err != nil {
		return err
	}
	return browser.SetPieces(w, r, awayCookie(a.Request.State), sealed, awayTime)
}

// readAway opens the cookie that belongs to an answer's state. It is removed when the
// sign-in is over: the answer counts once.
func (f *federation) readAway(r *http.Request, state string) (a away, err error) {
	text, err := f.browsers.Unseal(r, "idp", browser.ReadPieces(r, awayCookie(state)), awayTime)
	if errors.Is(err, keyring.ErrUnsealed) {
		return a, errNotAway
	}
	if err == nil {
		err = json.Unmarshal([]byte(text), &a)
	}
	if err == nil && a.Request.State != state {
		err = errNotAway
	}
	return a, err
}

// ascii percent-encodes the raw bytes of a query that JSON cannot hold.
func ascii(query string) string {
	var b strings.Builder
	for _, c := range []byte(query) {
		if c < 0x80 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}
