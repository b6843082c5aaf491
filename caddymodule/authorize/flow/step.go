package flow

import (
	"errors"
	"net/http"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/browser"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
)

// step is what each step of a sign-in needs: it reads the request again, and answers the
// browser.
type step struct {
	browsers  *browser.Browsers
	requests  *requests
	pages     *pages
	responses *responses
	trail     *audit.Recorder
}

// openForBrowser opens what was sealed for a purpose and for this browser.
func (s *step) openForBrowser(r *http.Request, purpose, sealed string) (string, error) {
	text, err := s.browsers.Unseal(r, purpose, sealed, signInTime)
	if errors.Is(err, keyring.ErrUnsealed) {
		return "", errPageExpired
	}
	return text, err
}
