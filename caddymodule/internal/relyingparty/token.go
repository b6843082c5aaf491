package relyingparty

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"golang.org/x/oauth2"
)

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
	return p.askForTokens(ctx, func(ctx context.Context) (*oauth2.Token, error) {
		return config.Exchange(ctx, code, options...)
	}, code, verifier, config.ClientSecret)
}

// askForTokens makes one request to the token endpoint. Its error quotes none of the secrets.
func (p *Provider) askForTokens(ctx context.Context, ask func(context.Context) (*oauth2.Token, error), secrets ...string) (*oauth2.Token, error) {
	watched := &watchedTransport{next: exchange{p.client, tokenEndpoint}}
	tokens, err := ask(context.WithValue(ctx, oauth2.HTTPClient, &http.Client{Transport: watched}))
	if err != nil && watched.status != 0 { // there was an answer
		err = tokenError(watched.status, err, secrets...)
	}
	return tokens, err
}

// tokenError is the error of a response without tokens. It quotes neither the secrets we
// sent, nor the body of a successful response, which may hold parts of a token.
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

// apiErrorCode reads the form in which Google's token endpoint reports its own failures
// (google.rpc.Status): {"error": {"code": 503, "status": "UNAVAILABLE"}}, or a reason in
// its errors.
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

// hide redacts secrets, as they are and form-encoded.
func hide(text string, secrets []string) string {
	for _, secret := range secrets {
		if secret != "" {
			text = strings.NewReplacer(secret, "REDACTED", url.QueryEscape(secret), "REDACTED").Replace(text)
		}
	}
	return text
}

// watchedTransport keeps the status of the response, which x/oauth2 does not always return.
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
