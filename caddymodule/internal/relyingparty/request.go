package relyingparty

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
)

// AuthenticationRequest is the request for one sign-in (OpenID Connect Core §3.1.2.1).
// State, Nonce and Verifier are random; the caller binds them to the browser, and has them
// again when it comes back.
type AuthenticationRequest struct {
	State    string // identifies the response. Required.
	Nonce    string // binds the ID token to this sign-in. Required.
	Verifier string // of PKCE, if the provider supports S256: 43 to 128 characters. Required.

	LoginHint, Prompt    string // login_hint and prompt
	UILocales, ACRValues string // ui_locales and acr_values

	EssentialACR string // classes of sign-in, one of which must be met, with spaces between them
	ACRClaim     string // the claim to ask for it by, whatever discovery says. Default: acr, if that says so.

	Lasting      bool // ask for a refresh token that outlives the person's session there, which has begun
	OtherAccount bool // somebody else wants to sign in than who is signed in there

	MaxAge string // max_age in seconds, compared with auth_time. Empty: no limit.
}

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

// maxAge returns MaxAge as a duration, if it is set.
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

// AuthenticationURL returns where to send the browser. It discovers the provider first if
// that is due. Its error is an [Error] if the failure has a kind.
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
	config.Scopes = p.config.scopes(m, r.Lasting)
	options := []oauth2.AuthCodeOption{oidc.Nonce(r.Nonce)}
	if m.pkce() {
		options = append(options, oauth2.S256ChallengeOption(r.Verifier))
	}
	if p.config.Offline && p.config.Google {
		options = append(options, oauth2.AccessTypeOffline)
	}
	for _, o := range []struct{ name, value string }{
		{"login_hint", r.LoginHint}, {"prompt", p.config.prompt(m, &r)}, {"max_age", r.MaxAge},
		{"ui_locales", r.UILocales}, {"acr_values", r.ACRValues}, {"claims", r.claims(m)},
	} {
		if o.value != "" {
			options = append(options, oauth2.SetAuthURLParam(o.name, o.value))
		}
	}
	return config.AuthCodeURL(r.State, options...), nil
}

// prompt is the prompt as the provider knows it: login does for select_account (OpenID Connect
// Initiating User Registration 1.0 §3.1 has prompt_values_supported).
func (c *Config) prompt(m *metadata, r *AuthenticationRequest) string {
	const selectAccount, login = "select_account", "login"
	words := strings.Fields(r.Prompt)
	known := c.SelectAccount || slices.Contains(m.PromptValues, selectAccount)
	if r.OtherAccount && !slices.Contains(words, "none") {
		words = append(words, selectAccount)
	}
	for i, word := range words {
		// A provider that does not say which values it has may have what the client asks for, but nobody is let in by a guess.
		if word == selectAccount && !known && (r.OtherAccount || len(m.PromptValues) > 0) {
			words[i] = login
		}
	}
	slices.Sort(words)
	return strings.Join(slices.Compact(words), " ")
}

// claims is the claims parameter (OpenID Connect Core §5.5), or "".
func (r *AuthenticationRequest) claims(m *metadata) string {
	words := strings.Fields(r.EssentialACR)
	if len(words) == 0 || r.ACRClaim == "" && !m.ClaimsParameter {
		return ""
	}
	type essential struct {
		Essential bool     `json:"essential"`
		Value     string   `json:"value,omitempty"`
		Values    []string `json:"values,omitempty"`
	}
	wanted := essential{Essential: true, Values: words}
	if len(words) == 1 {
		wanted = essential{Essential: true, Value: words[0]}
	}
	text, _ := json.Marshal(map[string]any{"id_token": map[string]essential{cmp.Or(r.ACRClaim, "acr"): wanted}}) // of strings, it cannot fail
	return string(text)
}

// EndSessionURL returns where to send the browser to sign out at the provider
// (RP-Initiated Logout §2), or "" if the provider has no such endpoint. The hint is an
// [Identity.IDToken]. Empty values are omitted.
func (p *Provider) EndSessionURL(ctx context.Context, idTokenHint, postLogoutRedirectURI, state string) (string, error) {
	m, err := p.metadata.get(ctx)
	if err != nil || m.EndSessionEndpoint == "" {
		return "", err
	}
	u, err := url.Parse(m.EndSessionEndpoint)
	if err != nil {
		return "", fmt.Errorf("%w: end_session_endpoint: %w", ErrMetadata, err)
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
	return u.String(), nil
}
