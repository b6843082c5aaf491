package browser

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

const maxBrowserIDs = 16 // that are tried

// browserIDs returns the ids that this browser was given. It has several if tabs were opened
// at once before it had any: each answer set one, under a name of its own.
func browserIDs(r *http.Request) (ids []string) {
	for _, c := range r.Cookies() {
		if strings.HasPrefix(c.Name, IDPrefix) && c.Value != "" && len(ids) < maxBrowserIDs {
			ids = append(ids, c.Value)
		}
	}
	return ids
}

// browserID returns the id of this browser, and sets one if it has none.
func browserID(w http.ResponseWriter, r *http.Request) string {
	if ids := browserIDs(r); len(ids) > 0 {
		return ids[0]
	}
	id := oauth2.RandomToken()
	http.SetCookie(w, NewCookie(IDPrefix+oauth2.RandomToken()[:8], id))
	return id
}

// Sealer seals texts for one browser and one purpose.
type Sealer struct {
	Keys keyring.Sealing // seal and unseal
}

// Seal seals a text for this browser.
func (s *Sealer) Seal(w http.ResponseWriter, r *http.Request, purpose, text string) (string, error) {
	return s.Keys.Seal(r.Context(), text, purpose+" "+browserID(w, r))
}

// SealJSON is [Sealer.Seal] of a value in JSON.
func (s *Sealer) SealJSON(w http.ResponseWriter, r *http.Request, purpose string, value any) (string, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return "", err
	}
	return s.Seal(w, r, purpose, string(text))
}

// Unseal opens what [Sealer.Seal] sealed for this browser and purpose at most maxAge ago.
// The error for anything else is the last argument.
func (s *Sealer) Unseal(r *http.Request, purpose, sealed string, maxAge time.Duration, expired error) (string, error) {
	for _, id := range browserIDs(r) {
		text, err := s.Keys.Unseal(r.Context(), sealed, purpose+" "+id, maxAge)
		if !errors.Is(err, keyring.ErrUnsealed) {
			return text, err
		}
	}
	return "", expired
}

// UnsealJSON is [Sealer.Unseal] of a value in JSON.
func (s *Sealer) UnsealJSON(r *http.Request, purpose, sealed string, maxAge time.Duration, expired error, to any) error {
	text, err := s.Unseal(r, purpose, sealed, maxAge, expired)
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(text), to)
}

// Check is [Sealer.Unseal] of what is known already, such as the session that a form was shown in.
func (s *Sealer) Check(r *http.Request, purpose, sealed, known string, maxAge time.Duration, expired error) error {
	text, err := s.Unseal(r, purpose, sealed, maxAge, expired)
	if err == nil && text != known {
		return expired
	}
	return err
}
