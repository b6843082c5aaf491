package browser

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
)

// maxBrowserIDs bounds how many ids of one browser are looked at: more tabs than
// that are not opened at one moment.
const maxBrowserIDs = 16

// browserIDs are the ids that this browser was given. There are several where
// tabs were opened at once in a browser that had none: each answer gave it one,
// under a name of its own, so that none replaced another's.
func browserIDs(r *http.Request) (ids []string) {
	for _, c := range r.Cookies() {
		if strings.HasPrefix(c.Name, IDPrefix) && c.Value != "" && len(ids) < maxBrowserIDs {
			ids = append(ids, c.Value)
		}
	}
	return ids
}

// Browsers knows browsers again, and gives them what nobody but the same one can bring
// back.
type Browsers struct {
	Keys keyring.Sealing // seal it
}

// ID returns an id that binds sealed requests to this browser, and gives it
// one if it has none.
func (b *Browsers) ID(w http.ResponseWriter, r *http.Request) string {
	if ids := browserIDs(r); len(ids) > 0 {
		return ids[0]
	}
	id := oauth2.RandomToken()
	http.SetCookie(w, NewCookie(IDPrefix+oauth2.RandomToken()[:8], id))
	return id
}

// Is says whether an id is one of this browser's.
func Is(r *http.Request, id string) bool { return slices.Contains(browserIDs(r), id) }

// Unseal opens what was sealed for a purpose and for this browser, under
// whichever of its ids, no longer than maxAge ago.
func (b *Browsers) Unseal(r *http.Request, purpose, sealed string, maxAge time.Duration) (text string, err error) {
	err = keyring.ErrUnsealed
	for _, id := range browserIDs(r) {
		text, err = b.Keys.Unseal(r.Context(), sealed, purpose+" "+id, maxAge)
		if !errors.Is(err, keyring.ErrUnsealed) {
			return text, err
		}
	}
	return "", err
}
