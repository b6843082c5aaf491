package guard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4/json"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/strictjson"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/tokenclaim"
)

// maxIntrospectionSize is the maximum size of a response in bytes.
const maxIntrospectionSize = 64 << 10

// introspection is an introspection response (RFC 7662 §2.2).
type introspection struct {
	active bool
	memo   *Memo // of the token, while the response is remembered
	trustedClaims
}

// plainResponse is the media type of responses that are not signed ([signedResponse]).
const plainResponse = "application/json"

// introspect makes an introspection request.
func introspect(transport http.RoundTripper, r *http.Request, by reader) (introspection, error) {
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
	return readIntrospection(r.Context(), response, by)
}

func readIntrospection(ctx context.Context, response *http.Response, by reader) (introspection, error) {
	switch response.StatusCode {
	case http.StatusOK:
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return introspection{}, fmt.Errorf("%w: status %d", errNoAnswer, response.StatusCode)
	default:
		return introspection{}, fmt.Errorf("status %d", response.StatusCode)
	}
	mediaType, _, err := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if err != nil || mediaType != plainResponse && (mediaType != signedResponse || by.keys == nil) {
		return introspection{}, errors.New("content type is not application/json")
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxIntrospectionSize+1))
	if err != nil {
		return introspection{}, fmt.Errorf("%w: %w", errNoAnswer, err)
	}
	if len(body) > maxIntrospectionSize {
		return introspection{}, fmt.Errorf("more than %d bytes", maxIntrospectionSize)
	}
	if mediaType == signedResponse {
		if body, err = by.open(ctx, string(body)); err != nil {
			return introspection{}, fmt.Errorf("signed response: %w", err)
		}
	}
	return parseIntrospection(body, by.claims)
}

// reader is how responses are read.
type reader struct {
	claims           *tokenclaim.Names // that are kept
	keys             KeySet            // of who signs them; nil: none that is signed is accepted
	issuer, audience string
	now              time.Time
	leeway           time.Duration
}

// accept prefers a response that the issuer signed, if it can be verified.
func (s reader) accept() string {
	if s.keys == nil {
		return plainResponse
	}
	return signedResponse + ", " + plainResponse + ";q=0.5"
}

// open verifies a response that is a JWT, and returns the response in it (RFC 9701 §5): the signature, typ, iss, aud and iat,
// so that no other JWT of the issuer passes for one, nor a response to somebody else.
func (s reader) open(ctx context.Context, raw string) ([]byte, error) {
	header, err := signedResponseHeader.check(raw)
	if err != nil {
		return nil, err
	}
	key, err := (&policy{keys: s.keys, fit: trustedKey}).key(ctx, header)
	if err != nil {
		return nil, err
	}
	payload, err := checkSignature(raw, header.Algorithm, key)
	if err != nil {
		return nil, err
	}
	var claims struct {
		jwt.Claims

		Response json.RawMessage `json:"token_introspection"`
	}
	switch err := strictjson.Unmarshal(payload, &claims); {
	case err != nil:
		return nil, err
	case claims.Issuer != s.issuer:
		return nil, errIssuer
	case !claims.Audience.Contains(s.audience):
		return nil, errAudience
	case claims.IssuedAt == nil || len(claims.Response) == 0:
		return nil, fmt.Errorf("%w: iat or token_introspection", errMissingClaim)
	}
	return claims.Response, checkTimes(&claims.Claims, s.now, s.leeway)
}

// parseIntrospection parses an introspection response. active must be a boolean: the strings "true" and "false" are
// errors. Of an inactive token nothing else is read.
func parseIntrospection(body []byte, claims *tokenclaim.Names) (introspection, error) {
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
	if err := response.trustedClaims.read(body, claims); err != nil {
		return introspection{}, err
	}
	return response, nil
}

// read reads claims, and those that the site names besides.
func (c *trustedClaims) read(object []byte, names *tokenclaim.Names) (err error) {
	if err = strictjson.Unmarshal(object, c); err == nil {
		c.Named, err = names.Read(object)
	}
	return err
}

// backOffTime is the pause after the introspection endpoint did not answer. Then one token is tried; the others follow
// once it is answered.
const backOffTime = 2 * time.Second

// errNoAnswer says that an endpoint failed or timed out. An answer that cannot be understood is an answer: otherwise a
// made-up token that the endpoint chokes on would lock out all others.
var errNoAnswer = errors.New("no answer")

// backOff pauses requests to an endpoint that does not answer, so that tokens are refused at once instead of after a
// timeout each.
type backOff struct {
	mu     sync.Mutex
	until  time.Time // zero while the endpoint answers
	trying bool      // one is asked about after that
}

// check returns an error during the pause.
func (b *backOff) check(now time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.refuse(now)
}

// begin is check for a caller that then makes a request and calls end.
func (b *backOff) begin(now time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.refuse(now); err != nil {
		return err
	}
	b.trying = !b.until.IsZero()
	return nil
}

func (b *backOff) refuse(now time.Time) error {
	wait := b.until.Sub(now)
	if b.until.IsZero() || wait <= 0 && !b.trying {
		return nil
	}
	return &WaitError{max(wait, time.Second), "the endpoint did not answer"}
}

// end takes the result of a request.
func (b *backOff) end(now time.Time, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.trying, b.until = false, time.Time{}
	if errors.Is(err, errNoAnswer) {
		b.until = now.Add(backOffTime)
	}
}
