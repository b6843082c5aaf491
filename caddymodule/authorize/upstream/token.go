package upstream

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/oauth2"
)

// authStyle is how the token endpoint wants to see the secret, by discovery
// (token_endpoint_auth_methods_supported; Basic where it says nothing). To find
// out by trying, as x/oauth2 otherwise does, would send a code twice, and the
// second use of a code revokes what the first one gave (RFC 6749 §4.1.2).
func authStyle(methods []string, secret string) (oauth2.AuthStyle, error) {
	switch {
	case secret == "":
		return oauth2.AuthStyleInParams, nil // client_id alone
	case len(methods) == 0 || slices.Contains(methods, "client_secret_basic"):
		return oauth2.AuthStyleInHeader, nil
	case slices.Contains(methods, "client_secret_post"):
		return oauth2.AuthStyleInParams, nil
	}
	return 0, fmt.Errorf("%w: token_endpoint_auth_methods_supported has neither client_secret_basic nor client_secret_post", ErrMetadata)
}

// exchangeCode exchanges the code for tokens (OpenID Connect Core §3.1.3).
func (p *Provider) exchangeCode(ctx context.Context, m *metadata, code, verifier string) (*oauth2.Token, error) {
	config, err := p.oauth(m)
	if err != nil {
		return nil, err
	}
	var options []oauth2.AuthCodeOption
	if m.pkce() {
		options = append(options, oauth2.VerifierOption(verifier))
	}
	watched := &watchedTransport{next: exchange{p.client, tokenEndpoint}}
	ctx = context.WithValue(ctx, oauth2.HTTPClient, &http.Client{Transport: watched})
	tokens, err := config.Exchange(ctx, code, options...)
	switch {
	case err == nil:
		return tokens, nil
	case watched.status == 0: // no answer
		return nil, err
	}
	return nil, tokenError(watched.status, err, code, verifier, config.ClientSecret)
}

// tokenError is the error of an answer that holds no token. What a successful
// answer says instead is not logged: it may hold parts of one. Nor is what we
// sent and must stay secret, if the answer repeats it.
func tokenError(status int, err error, secrets ...string) *Error {
	e := &Error{Kind: Refused, Status: status, Err: fmt.Errorf("%s: %d, but no token response", tokenEndpoint, status)}
	var answer *oauth2.RetrieveError
	if !errors.As(err, &answer) {
		return e
	}
	e.Code = errorCode(cmp.Or(answer.ErrorCode, apiErrorCode(answer.Body)))
	switch {
	case answer.ErrorCode != "":
		e.Err = fmt.Errorf("%s: %d: %.100q: %.200q", tokenEndpoint, status, hide(answer.ErrorCode, secrets), hide(answer.ErrorDescription, secrets))
	case status >= http.StatusBadRequest:
		e.Err = fmt.Errorf("%s: %d: %.200q", tokenEndpoint, status, hide(string(answer.Body), secrets))
	}
	return e
}

// apiErrorCode is the error code in the form that Google's APIs have instead of
// RFC 6749's, and its token endpoint too where the fault is not the request's:
// {"error": {"code": 503, "status": "UNAVAILABLE"}}, or, earlier, a reason in its
// errors (google.rpc.Status, https://cloud.google.com/apis/design/errors).
func apiErrorCode(body []byte) string {
	var answer struct {
		Error struct {
			Status string
			Errors []struct{ Reason string }
		}
	}
	if json.Unmarshal(body, &answer) != nil {
		return ""
	}
	code := answer.Error.Status
	for _, e := range answer.Error.Errors {
		code = cmp.Or(code, e.Reason)
	}
	return code
}

// hide replaces secrets, as they are and as a form has them.
func hide(text string, secrets []string) string {
	for _, secret := range secrets {
		if secret != "" {
			text = strings.NewReplacer(secret, "REDACTED", url.QueryEscape(secret), "REDACTED").Replace(text)
		}
	}
	return text
}

// watchedTransport remembers the status of an answer, which x/oauth2 does not
// tell for all of them. One is made for each exchange.
type watchedTransport struct {
	next   http.RoundTripper
	status int
}

// RoundTrip implements http.RoundTripper.
func (w *watchedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := w.next.RoundTrip(r)
	if err == nil {
		w.status = response.StatusCode
	}
	return response, err
}
