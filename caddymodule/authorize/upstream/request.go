package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
)

// AuthenticationRequest is what is asked of the provider for one sign-in
// (OpenID Connect Core §3.1.2.1). State, Nonce and Verifier are random, made
// for this sign-in, and bound to the browser by the caller, who has them again
// when the browser comes back.
type AuthenticationRequest struct {
	// State is how the caller knows the answer. Required.
	State string
	// Nonce binds the ID token to this sign-in. Required.
	Nonce string
	// Verifier binds the code to this sign-in, by PKCE with S256, wherever the
	// provider takes that: 43 to 128 characters (RFC 7636 §4.1). Required.
	Verifier string
	// LoginHint is passed on as login_hint.
	LoginHint string
	// Prompt is passed on as prompt.
	Prompt string
	// MaxAge, in seconds, is passed on as max_age, and held against auth_time.
	// Empty: the person may have signed in there at any time.
	MaxAge string
	// UILocales is passed on as ui_locales.
	UILocales string
	// ACRValues is passed on as acr_values.
	ACRValues string
}

// check refuses a request that lacks what protects it.
func (r *AuthenticationRequest) check() error {
	switch {
	case r.State == "" || r.Nonce == "":
		return errors.New("authentication request without state or nonce")
	case len(r.Verifier) < 43 || len(r.Verifier) > 128:
		return errors.New("authentication request without a verifier of 43 to 128 characters")
	}
	_, _, err := r.maxAge()
	return err
}

// maxAge is MaxAge as a duration, if there is one.
func (r *AuthenticationRequest) maxAge() (age time.Duration, asked bool, err error) {
	if r.MaxAge == "" {
		return 0, false, nil
	}
	seconds, err := strconv.ParseUint(r.MaxAge, 10, 31)
	if err != nil {
		return 0, true, fmt.Errorf("max_age: %w", err)
	}
	return time.Duration(seconds) * time.Second, true, nil
}

// AuthenticationURL is where to send the browser. It does discovery if that is
// due; the error is then an [Error] where the fault has a kind.
func (p *Provider) AuthenticationURL(ctx context.Context, r AuthenticationRequest) (string, error) {
	if err := r.check(); err != nil {
		return "", err
	}
	m, err := p.discovered(ctx)
	if err != nil {
		return "", err
	}
	config, err := p.oauth(m)
	if err != nil {
		return "", err
	}
	options := []oauth2.AuthCodeOption{oidc.Nonce(r.Nonce)}
	if m.pkce() {
		options = append(options, oauth2.S256ChallengeOption(r.Verifier))
	}
	for _, o := range []struct{ name, value string }{
		{"login_hint", r.LoginHint}, {"prompt", r.Prompt}, {"max_age", r.MaxAge},
		{"ui_locales", r.UILocales}, {"acr_values", r.ACRValues},
	} {
		if o.value != "" {
			options = append(options, oauth2.SetAuthURLParam(o.name, o.value))
		}
	}
	return config.AuthCodeURL(r.State, options...), nil
}

// EndSessionURL is where to send the browser to sign the person out at the
// provider (RP-Initiated Logout §2); false where the provider has no such
// place. The hint is an [Identity.IDToken]; empty values are left out.
func (p *Provider) EndSessionURL(ctx context.Context, idTokenHint, postLogoutRedirectURI, state string) (string, bool, error) {
	m, err := p.metadata.get(ctx)
	if err != nil || m.EndSessionEndpoint == "" {
		return "", false, err
	}
	u, err := url.Parse(m.EndSessionEndpoint)
	if err != nil {
		return "", false, fmt.Errorf("%w: end_session_endpoint: %w", ErrMetadata, err)
	}
	query := u.Query()
	for name, value := range map[string]string{
		"id_token_hint": idTokenHint, "client_id": p.config.ClientID,
		"post_logout_redirect_uri": postLogoutRedirectURI, "state": state,
	} {
		if value != "" {
			query.Set(name, value)
		}
	}
	u.RawQuery = query.Encode()
	return u.String(), true, nil
}
