package flow

import (
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/consent"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/signin"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// authorizationRequest is a checked request (RFC 6749 §4.1.1 and §4.2.1, RFC 7636 §4.3,
// OpenID Connect Core §3.1.2.1).
type authorizationRequest struct {
	client        *client.Client
	signIn        signin.Request // who must sign in for it, and how
	target        responseTarget
	asked         string    // scope as requested
	scope         []string  // scope as granted
	until         time.Time // when offline_access ends; zero if the person did not say
	codeChallenge string
	nonce         string
	claims        requestedClaims
	inObject      bool          // the parameters came in a request object
	about         consent.About // what an answer of the person's counts for
	launch        launchContext // what the client is launched with
}

// RequestParameters are those of an authorization request that are read here, or in what it is
// checked by. All others are ignored (RFC 6749 §3.1), and kept nowhere.
var RequestParameters = []string{
	"acr_values", "aud", "claims", "client_id", "code_challenge", "code_challenge_method", "id_token_hint", "identity_provider",
	"launch", "login_hint", "max_age", "nonce", "prompt", "redirect_uri", "request", "request_uri", "resource", "response_mode",
	"response_type", "scope", "state", "ui_locales",
}

// isInterceptable reports whether another app could use the response: any app on a device can
// listen on loopback or claim a private-use scheme (RFC 8252 §8.6). Without the client's
// credentials a code is of no use to it.
func (req *authorizationRequest) isInterceptable() bool {
	if !req.client.Public() && req.target.responseType == "code" {
		return false
	}
	return client.IsInterceptable(req.target.redirectURI)
}

// checkProtection refuses a request without the request object that the client must send (RFC 9101 §10.5). It is for a request
// as it was received: whatever this server keeps of it has the parameters of the object.
func (req *authorizationRequest) checkProtection() error {
	if req.client.RequestObjects.Required && !req.inObject {
		return oauth2.InvalidRequest("this client must send a signed request object")
	}
	return nil
}

// toSignIn is what the person signs in for; nil without a request.
func (req *authorizationRequest) toSignIn() *signin.Request {
	if req == nil {
		return nil
	}
	return &req.signIn
}
