package flow

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/token"
)

// authenticationParameters say how the person is to sign in.
type authenticationParameters struct {
	subjects   []string // who may sign in, by sub; nil for everybody
	unreadHint bool     // the key of the id_token_hint no longer exists

	// These choose the way to sign in, and are passed on to an identity provider.
	identityProvider, loginHint, prompt, maxAge, uiLocales, acrValues string
}

// checkPrompt reads the parameters on how to sign in (OpenID Connect Core §3.1.2.1).
func checkPrompt(req *authorizationRequest, p oauth2.Parameters) error {
	req.loginHint, req.prompt = p.Get("login_hint"), p.Get("prompt")
	req.maxAge, req.uiLocales, req.acrValues = p.Get("max_age"), p.Get("ui_locales"), p.Get("acr_values")
	if _, err := strconv.ParseUint(req.maxAge, 10, 31); req.maxAge != "" && err != nil {
		return oauth2.InvalidRequest("max_age must be a number of seconds")
	}
	if req.prompts("none") && len(strings.Fields(req.prompt)) > 1 {
		return oauth2.InvalidRequest("prompt none cannot have another beside it")
	}
	return nil
}

func (req *authenticationParameters) prompts(word string) bool {
	return slices.Contains(strings.Fields(req.prompt), word)
}

// freshEnough reports whether a sign-in of an age is recent enough for the client.
func (req *authenticationParameters) freshEnough(age time.Duration) bool {
	return !req.tooOld(age, 0) && !req.prompts("login") && !req.unreadHint
}

// tooOld reports whether a sign-in of an age is older than max_age and than least.
func (req *authenticationParameters) tooOld(age, least time.Duration) bool {
	seconds, err := strconv.Atoi(req.maxAge)
	return err == nil && age > max(time.Duration(seconds)*time.Second, least)
}

// checkHint lets only the person of an id_token_hint sign in (OpenID Connect Core §3.1.2.1).
// If the hint's key no longer exists, people must sign in again.
func (q *requests) checkHint(ctx context.Context, req *authorizationRequest, p oauth2.Parameters) error {
	raw := p.Get("id_token_hint")
	if raw == "" {
		return nil
	}
	claims, err := q.verifier.Hint(ctx, raw)
	switch {
	case errors.Is(err, keyring.ErrUnknownKey):
		req.unreadHint = true
		return nil
	case errors.Is(err, token.ErrInvalidHint), err == nil && claims.Audience != req.client.ID:
		return oauth2.InvalidRequest("id_token_hint is not an ID token of this server for this client")
	case err != nil:
		return err
	}
	return req.restrictTo([]any{claims.Subject})
}
