package guard

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"

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

// introspect makes an introspection request.
func introspect(transport http.RoundTripper, r *http.Request) (introspection, error) {
	client := http.Client{
		Transport: transport,
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
