package guard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/httporigin"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/strictjson"
)

// maxIntrospectionSize is the maximum size of a response in bytes.
const maxIntrospectionSize = 64 << 10

// introspection is an introspection response (RFC 7662 §2.2).
type introspection struct {
	active bool
	memo   *Memo // of the token, while the response is remembered
	trustedClaims
}

// check returns an error if a required setting is missing or insecure.
func (i *Introspector) check() error {
	if i.ClientID == "" || i.ClientSecret == "" {
		return fmt.Errorf("%w: no credentials for introspection set", ErrUnavailable)
	}
	if i.Audience == "" && !i.AnyAudience {
		return fmt.Errorf("%w: no audience for introspection set", ErrUnavailable)
	}
	endpoint, err := url.Parse(i.Endpoint)
	if err != nil {
		return fmt.Errorf("%w: introspection endpoint: %w", ErrUnavailable, err)
	}
	secure := endpoint.Scheme == "https" || endpoint.Scheme == "http" && httporigin.IsLoopback(endpoint.Hostname())
	if !secure || endpoint.Hostname() == "" || endpoint.User != nil || endpoint.Fragment != "" {
		// Our secret, and somebody's token, would go over the wire in clear.
		return fmt.Errorf("%w: introspection endpoint is neither https, nor http on loopback", ErrUnavailable)
	}
	return nil
}

// request makes the introspection request (RFC 7662 §2.1).
func (i *Introspector) request(ctx context.Context, raw string) (introspection, error) {
	form := url.Values{"token": {raw}, "token_type_hint": {"access_token"}}
	if i.AuthPost {
		form.Set("client_id", i.ClientID)
		form.Set("client_secret", i.ClientSecret)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, i.Endpoint, strings.NewReader(form.Encode()))
	if err != nil {
		return introspection{}, err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Accept", "application/json")
	// Asking twice does no harm: net/http may try again when the server has closed a connection that was kept. Without
	// a value nothing is sent.
	r.Header["Idempotency-Key"] = nil
	if !i.AuthPost {
		r.SetBasicAuth(url.QueryEscape(i.ClientID), url.QueryEscape(i.ClientSecret))
	}
	client := http.Client{
		Transport: i.Transport,
		// A redirect would take the token to another place, and to believe what that one says.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	response, err := client.Do(r)
	if err != nil {
		return introspection{}, fmt.Errorf("%w: %w", errNoAnswer, err)
	}
	defer response.Body.Close()
	return readIntrospection(response)
}

func readIntrospection(response *http.Response) (introspection, error) {
	switch response.StatusCode {
	case http.StatusOK:
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return introspection{}, fmt.Errorf("%w: status %d", errNoAnswer, response.StatusCode)
	default:
		return introspection{}, fmt.Errorf("status %d", response.StatusCode)
	}
	mediaType, _, err := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if err != nil || mediaType != "application/json" {
		return introspection{}, errors.New("content type is not application/json")
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxIntrospectionSize+1))
	if err != nil {
		return introspection{}, fmt.Errorf("%w: %w", errNoAnswer, err)
	}
	if len(body) > maxIntrospectionSize {
		return introspection{}, fmt.Errorf("more than %d bytes", maxIntrospectionSize)
	}
	return parseIntrospection(body)
}

// parseIntrospection parses an introspection response. active must be a boolean: the strings "true" and "false" are
// errors. Of an inactive token nothing else is read.
func parseIntrospection(body []byte) (introspection, error) {
	var state struct {
		Active *bool `json:"active"`
	}
	if err := strictjson.Unmarshal(body, &state); err != nil {
		return introspection{}, err
	}
	if state.Active == nil {
		return introspection{}, errors.New("active is missing")
	}
	response := introspection{active: *state.Active}
	if !response.active {
		return response, nil
	}
	if err := strictjson.Unmarshal(body, &response.trustedClaims); err != nil {
		return introspection{}, err
	}
	return response, nil
}

// judge decides by a response whether the token is valid.
func (i *Introspector) judge(response introspection) (Token, error) {
	if !response.active {
		return Token{}, errInactive
	}
	clientID, err := response.clientID()
	if err != nil {
		return Token{}, err
	}
	if i.Issuer != "" && response.Issuer != i.Issuer {
		return Token{}, errIssuer
	}
	if !i.AnyAudience && !response.Audience.Contains(i.Audience) {
		return Token{}, errAudience
	}
	if err := response.checkUse(); err != nil {
		return Token{}, err
	}
	if err := checkTimes(&response.Claims, i.now(), leewayOr(i.Leeway)); err != nil {
		return Token{}, err
	}
	token := response.token(clientID)
	token.Issuer, token.Memo = i.issuer(), response.memo
	if token.Subject == "" {
		// Where no user is behind the token, some servers leave sub out.
		token.Subject = clientID
	}
	if token.Subject == "" {
		return Token{}, fmt.Errorf("%w: sub and client_id", errMissingClaim)
	}
	return token, nil
}
