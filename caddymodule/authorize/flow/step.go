package flow

import (
	"errors"
	"net/http"
	"net/url"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/browser"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
)

// step is what each step of a sign-in needs.
type step struct {
	sealer    *browser.Sealer
	requests  *requests
	pages     *pages
	responses *responses
	trail     *audit.Recorder
}

// redirectToPage sends the browser to a page with a sealed text: the authorization request,
// and what the page is bound to beside the browser.
func (s *step) redirectToPage(w http.ResponseWriter, r *http.Request, req *authorizationRequest, path, purpose, text string) {
	sealed, err := s.sealer.Seal(w, r, purpose, text)
	if err == nil {
		err = req.markUsed(r.Context())
	}
	if err != nil {
		s.responses.redirectError(w, r, req, err)
		return
	}
	redirect(w, http.StatusFound, path+"?request="+url.QueryEscape(sealed))
}

// unseal opens a text that was sealed for a page and this browser.
func (s *step) unseal(r *http.Request, purpose, sealed string) (string, error) {
	text, err := s.sealer.Unseal(r, purpose, sealed, pageLifetime)
	if errors.Is(err, keyring.ErrUnsealed) {
		return "", errPageExpired
	}
	return text, err
}

// pending opens the request of a sign-in page and checks it again: the configuration may
// have changed since.
func (s *step) pending(r *http.Request, sealed string) (*authorizationRequest, error) {
	query, err := s.unseal(r, "login", sealed)
	if err != nil {
		return nil, err
	}
	return s.requests.reopen(r.Context(), query)
}
