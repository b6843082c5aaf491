package guard

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4/json"
	"github.com/go-jose/go-jose/v4/jwt"
	"golang.org/x/sync/singleflight"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/httporigin"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fairqueue"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/strictjson"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/tokenclaim"
)

const (
	// defaultTimeout is the time limit of an introspection. Waiting for a free slot may take at most half of it.
	defaultTimeout        = 10 * time.Second
	defaultActiveLifetime = time.Minute // default of [Introspector.CacheLifetime]
	// defaultRejectedLifetime is how long the rejection of a token is cached, so that retries with it send no requests.
	defaultRejectedLifetime = 10 * time.Second
	// defaultConcurrency is the maximum number of concurrent introspection requests, half of them for one network. Up to 1000
	// tokens wait for a free slot; more are rejected with 503.
	defaultConcurrency = 16
)

// rejectionCacheSize is the capacity of the cache of rejected tokens. It is separate from [Introspector.Cache], so that a flood
// of forged tokens evicts no valid token.
const rejectionCacheSize = 2000

// Introspector verifies opaque access tokens at the authorization server that issued them (RFC 7662). It rejects the token
// unless the response is unambiguous. An Introspector is safe for concurrent use. It must not be modified or copied after first
// use.
//
// Many servers also report refresh tokens as active. They are rejected if the response identifies them.
type Introspector struct {
	// Endpoint is the URL of the introspection endpoint: https, or http on loopback. Required: if empty, every token is
	// rejected.
	Endpoint string
	// ClientID is the client_id at the endpoint (RFC 7662 §2.1). Required: if empty, every token is rejected.
	ClientID string
	// ClientSecret is the client's secret. Required: if empty, every token is rejected.
	ClientSecret string
	// Issuer is the issuer of the tokens. If set, the iss of the response must equal it. If empty, iss is ignored and the
	// [Token]'s Issuer is Endpoint: otherwise, the server could claim to be the local authorization server.
	Issuer string
	// Audience is the value that the response's aud must contain: the local FHIR base URL, or its name at the server. Required
	// unless AcceptsAnyAudience is set: if empty, every token is rejected.
	Audience string
	// AcceptsAnyAudience ignores aud. It is for servers that omit aud, and relies on the server to report only tokens for this
	// resource server as active (RFC 7662 §4). Default: false.
	AcceptsAnyAudience bool
	// IntrospectsJWTs also introspects JWTs: those of Issuer (their signatures are then not checked locally) or, if it is
	// empty, those of issuers without a verifier. Use it for JWTs that lack claims, and to respect revocations. Default: false.
	IntrospectsJWTs bool
	// CacheLifetime is the maximum time for which an active token is cached. No token is cached beyond its exp. A revocation
	// takes effect after this time at the latest. Default: one minute.
	CacheLifetime time.Duration
	// Keys are the keys of Issuer for verifying responses that are JWTs (RFC 9701). Default: such responses are rejected.
	Keys KeySet
	// Transport is used for the requests. Default: [http.DefaultTransport].
	Transport http.RoundTripper
	// Network returns the client network for a request's context: an IPv4 address, or the /64 of an IPv6 address, because a
	// single client controls an entire /64. It prevents forged tokens from one network from delaying others. Default: all
	// requests share a network.
	Network func(context.Context) string
	// Claims are the additional members to copy to [Token.Attributes]. Default: none, not even groups.
	Claims *tokenclaim.Names
	// Mapping maps the server's claims and scopes to SMART's. Default: none are mapped.
	Mapping ClaimMapping
	// Cache caches active tokens. It may be shared with verifiers. Default: no cache.
	Cache *TokenCache
	// Now is the clock. Default: time.Now.
	Now func() time.Time
	// Leeway is the accepted clock skew for exp, nbf and iat. Default: 30 s; negative: none.
	Leeway time.Duration

	// Overrides for tests. 0 means the default; a negative value means zero.
	timeout, rejectedLifetime time.Duration
	concurrency               int

	setupOnce  sync.Once
	configErr  error             // error if a setting is missing or insecure
	id         [sha256.Size]byte // hash of the settings; see verifierID
	flights    singleflight.Group
	queue      *fairqueue.Queue
	backOff    backOff
	rejections *TokenCache
}

func (i *Introspector) prepare() {
	i.configErr = i.check()
	i.queue = fairqueue.New(cmp.Or(i.concurrency, defaultConcurrency))
	i.rejections = NewTokenCache(rejectionCacheSize)
	i.id = verifierID("introspection", i.Endpoint, i.ClientID, i.Issuer, i.Audience, i.Claims.String(), fmt.Sprintf("%q", i.Mapping),
		strconv.FormatBool(i.AcceptsAnyAudience), effectiveLeeway(i.Leeway).String(), i.CacheLifetime.String())
}

// Verify verifies a token and returns its claims. Errors are of type [*Error]: 401 invalid_token for a token that is inactive
// or intended for another resource server, 503 if the server returns no unambiguous response.
func (i *Introspector) Verify(ctx context.Context, raw string) (*Token, error) {
	i.setupOnce.Do(i.prepare)
	if i.configErr != nil {
		return nil, verificationUnavailable(i.configErr)
	}
	if raw == "" || len(raw) > maxTokenSize {
		return nil, invalidToken(fmt.Errorf("%w: token is empty or exceeds %d bytes", errMalformedToken, maxTokenSize))
	}
	id := i.cacheKey(raw)
	response, ok := i.loadCached(id)
	if !ok {
		var err error
		if response, err = i.introspectShared(ctx, id, raw); err != nil {
			return nil, verificationUnavailable(fmt.Errorf("%w: introspecting token: %w", ErrUnavailable, err))
		}
	}
	// Cached responses must be checked too: the cache only records that the token was active. It may be for another audience,
	// and it may have expired in the meantime (GO-2022-0406).
	token, err := i.checkResponse(response)
	if err != nil {
		return nil, invalidToken(err)
	}
	return &token, nil
}

// introspectShared sends one introspection request for all concurrent requests with the same token. They share the response but
// not a context, because each of their clients may disconnect.
func (i *Introspector) introspectShared(ctx context.Context, id cacheKey, raw string) (introspection, error) {
	network := ""
	if i.Network != nil { // read it now, because the flight may outlive the request
		network = i.Network(ctx)
	}
	flight := i.flights.DoChan(string(id[:]), func() (any, error) {
		return i.introspectOnce(context.WithoutCancel(ctx), network, id, raw)
	})
	select {
	case <-ctx.Done():
		return introspection{}, ctx.Err()
	case result := <-flight:
		if result.Err != nil {
			return introspection{}, result.Err
		}
		return result.Val.(introspection), nil
	}
}

// introspectOnce waits for a free slot, sends the request and caches the response. It checks the back-off both before and after
// the wait.
func (i *Introspector) introspectOnce(ctx context.Context, network string, id cacheKey, raw string) (introspection, error) {
	if cached, ok := i.loadCached(id); ok {
		return cached, nil // another flight has completed since the first lookup
	}
	if err := i.backOff.check(i.now()); err != nil {
		return introspection{}, err
	}
	timeout := cmp.Or(i.timeout, defaultTimeout)
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	release, err := i.acquireSlot(ctx, network, timeout/2)
	if err != nil {
		return introspection{}, err
	}
	defer release()
	requestedAt := i.now()
	if err := i.backOff.startRequest(requestedAt); err != nil {
		return introspection{}, err
	}
	response, err := i.sendRequest(ctx, raw)
	response.memo = new(Memo)
	i.backOff.recordResult(i.now(), err)
	if err != nil {
		return introspection{}, err
	}
	i.cacheResponse(id, response, requestedAt)
	return response, nil
}

// sendRequest sends the introspection request (RFC 7662 §2.1). The client authenticates with HTTP Basic.
func (i *Introspector) sendRequest(ctx context.Context, raw string) (introspection, error) {
	form := url.Values{"token": {raw}, "token_type_hint": {"access_token"}}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, i.Endpoint, strings.NewReader(form.Encode()))
	if err != nil {
		return introspection{}, err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	by := responseReader{i.Claims, &i.Mapping, i.Keys, i.Issuer, i.ClientID, i.now(), effectiveLeeway(i.Leeway)}
	r.Header.Set("Accept", by.accept())
	// Introspection is idempotent. This key lets net/http retry if the server has closed an idle connection; a nil value
	// prevents the header from being sent.
	r.Header["Idempotency-Key"] = nil
	r.SetBasicAuth(url.QueryEscape(i.ClientID), url.QueryEscape(i.ClientSecret))
	return introspect(i.Transport, r, by)
}

func (i *Introspector) acquireSlot(ctx context.Context, network string, maxWait time.Duration) (release func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()
	return i.queue.Acquire(ctx, network)
}

func (i *Introspector) loadCached(id cacheKey) (introspection, bool) {
	if cached, ok := getCached[introspection](i.Cache, id); ok {
		return cached, true
	}
	return getCached[introspection](i.rejections, id)
}

// cacheResponse caches the response to a request sent at the given time.
func (i *Introspector) cacheResponse(id cacheKey, response introspection, requestedAt time.Time) {
	if _, err := i.checkResponse(response); err != nil {
		i.rejections.put(id, response, cmp.Or(i.rejectedLifetime, defaultRejectedLifetime))
		return
	}
	until := requestedAt.Add(cmp.Or(i.CacheLifetime, defaultActiveLifetime))
	if expiry := response.Expiry; expiry != nil && expiry.Time().Before(until) {
		until = expiry.Time()
	}
	i.Cache.put(id, response, until.Sub(i.now()))
}

// cacheKey returns the key of a token for the cache and for flights. Tokens with the same key would share a response
// (CVE-2026-71326).
func (i *Introspector) cacheKey(raw string) cacheKey {
	return newCacheKey(i.id, raw)
}

// issuer returns the issuer of the tokens.
func (i *Introspector) issuer() string { return cmp.Or(i.Issuer, i.Endpoint) }

// audience returns the value that aud must contain, or "" to accept any.
func (i *Introspector) audience() string {
	if i.AcceptsAnyAudience {
		return ""
	}
	return i.Audience
}

func (i *Introspector) now() time.Time { return currentTime(i.Now) }

// check returns an error if a required setting is missing or insecure.
func (i *Introspector) check() error {
	if i.ClientID == "" || i.ClientSecret == "" {
		return fmt.Errorf("%w: introspection credentials not configured", ErrUnavailable)
	}
	if i.Audience == "" && !i.AcceptsAnyAudience {
		return fmt.Errorf("%w: introspection audience not configured", ErrUnavailable)
	}
	endpoint, err := url.Parse(i.Endpoint)
	if err != nil {
		return fmt.Errorf("%w: invalid introspection endpoint: %w", ErrUnavailable, err)
	}
	isSecure := endpoint.Scheme == "https" || endpoint.Scheme == "http" && httporigin.IsLoopback(endpoint.Hostname())
	switch {
	case !isSecure: // the client secret and the access token would be sent in cleartext
		return fmt.Errorf("%w: introspection endpoint must use https, or http on loopback", ErrUnavailable)
	case endpoint.Hostname() == "" || endpoint.User != nil || endpoint.Fragment != "":
		return fmt.Errorf("%w: introspection endpoint must have a host, and neither user info nor a fragment", ErrUnavailable)
	}
	return nil
}

// checkResponse returns the claims in a response, or an error if the token is not valid.
func (i *Introspector) checkResponse(response introspection) (Token, error) {
	if !response.isActive {
		return Token{}, errInactiveToken
	}
	clientID, err := response.clientID()
	if err != nil {
		return Token{}, err
	}
	if err := response.checkParties(i.Issuer, i.audience()); err != nil {
		return Token{}, err
	}
	if err := response.checkTokenUse(); err != nil {
		return Token{}, err
	}
	if err := checkTimes(&response.Claims, i.now(), effectiveLeeway(i.Leeway)); err != nil {
		return Token{}, err
	}
	token := response.toToken(clientID)
	token.Issuer, token.Memo = i.issuer(), response.memo
	if token.Subject == "" {
		// Some servers omit sub if the token has no user.
		token.Subject = clientID
	}
	if token.Subject == "" {
		return Token{}, fmt.Errorf("%w: sub or client_id in the introspection response", errMissingClaim)
	}
	if err := token.checkHeaderValues(); err != nil {
		return Token{}, err
	}
	return token, nil
}

// maxIntrospectionSize is the maximum size of an introspection response in bytes.
const maxIntrospectionSize = 64 << 10

// introspection is an introspection response (RFC 7662 §2.2).
type introspection struct {
	isActive bool
	memo     *Memo // memo of the token while the response is cached
	trustedClaims
}

// plainResponseType is the media type of unsigned responses. The media type of signed ones is [signedResponseType].
const plainResponseType = "application/json"

func introspect(transport http.RoundTripper, r *http.Request, by responseReader) (introspection, error) {
	client := http.Client{
		Transport: transport,
		// Following a redirect would disclose the token to another server and trust its response.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	response, err := client.Do(r)
	if err != nil {
		return introspection{}, fmt.Errorf("%w: %w", errNoResponse, err)
	}
	defer response.Body.Close()
	return readIntrospection(r.Context(), response, by)
}

func readIntrospection(ctx context.Context, response *http.Response, by responseReader) (introspection, error) {
	switch response.StatusCode {
	case http.StatusOK:
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return introspection{}, fmt.Errorf("%w: introspection endpoint responded with status %d", errNoResponse, response.StatusCode)
	default:
		return introspection{}, fmt.Errorf("introspection endpoint responded with status %d", response.StatusCode)
	}
	mediaType, _, err := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if err != nil || mediaType != plainResponseType && (mediaType != signedResponseType || by.keys == nil) {
		return introspection{}, errors.New("introspection response is not application/json")
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxIntrospectionSize+1))
	if err != nil {
		return introspection{}, fmt.Errorf("%w: %w", errNoResponse, err)
	}
	if len(body) > maxIntrospectionSize {
		return introspection{}, fmt.Errorf("introspection response exceeds %d bytes", maxIntrospectionSize)
	}
	if mediaType == signedResponseType {
		if body, err = by.verifySigned(ctx, string(body)); err != nil {
			return introspection{}, fmt.Errorf("verifying signed introspection response: %w", err)
		}
	}
	return parseIntrospection(body, by.claims, by.mapping)
}

// responseReader contains the settings for reading a response.
type responseReader struct {
	claims           *tokenclaim.Names // claims to copy from the response
	mapping          *ClaimMapping
	keys             KeySet // keys of the issuer; if nil, signed responses are rejected
	issuer, audience string
	now              time.Time
	leeway           time.Duration
}

// accept returns the value of Accept. It prefers a signed response if the signature can be verified.
func (s responseReader) accept() string {
	if s.keys == nil {
		return plainResponseType
	}
	return signedResponseType + ", " + plainResponseType + ";q=0.5"
}

// verifySigned verifies a response that is a JWT and returns the introspection response in it (RFC 9701 §5). It checks the
// signature, typ, iss, aud and iat, so that neither other JWTs of the issuer nor responses for other clients are accepted.
func (s responseReader) verifySigned(ctx context.Context, raw string) ([]byte, error) {
	header, err := signedResponseRules.check(raw)
	if err != nil {
		return nil, err
	}
	key, err := (&jwtVerifier{keys: s.keys, verificationKey: trustedVerificationKey}).key(ctx, header)
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
		return nil, errUnexpectedIssuer
	case !claims.Audience.Contains(s.audience):
		return nil, errUnexpectedAudience
	case claims.IssuedAt == nil || len(claims.Response) == 0:
		return nil, fmt.Errorf("%w: iat or token_introspection in the signed response", errMissingClaim)
	}
	return claims.Response, checkTimes(&claims.Claims, s.now, s.leeway)
}

// parseIntrospection parses an introspection response. active must be a boolean: the strings "true" and "false" are errors. The
// other members are parsed only if the token is active.
func parseIntrospection(body []byte, claims *tokenclaim.Names, mapping *ClaimMapping) (introspection, error) {
	var state struct {
		Active *bool `json:"active"`
	}
	if err := strictjson.Unmarshal(body, &state); err != nil {
		return introspection{}, err
	}
	if state.Active == nil {
		return introspection{}, errors.New("introspection response has no boolean active")
	}
	response := introspection{isActive: *state.Active}
	if !response.isActive {
		return response, nil
	}
	if err := response.trustedClaims.read(body, claims, mapping); err != nil {
		return introspection{}, err
	}
	return response, nil
}

// read parses and maps the claims, including the additional ones in names.
func (c *trustedClaims) read(object []byte, names *tokenclaim.Names, mapping *ClaimMapping) (err error) {
	if err = strictjson.Unmarshal(object, c); err != nil {
		return err
	}
	if c.Additional, err = names.Read(object); err != nil {
		return err
	}
	if scope := cmp.Or(c.Scope, c.SCP); scope != nil {
		c.granted = *scope
	}
	return mapping.apply(c, object)
}

// backOffDuration is how long no requests are sent after the introspection endpoint failed to respond. After that, a single
// request probes the endpoint. If it succeeds, other requests are sent again.
const backOffDuration = 2 * time.Second

// errNoResponse means that an endpoint failed or timed out. It does not cover unintelligible responses: otherwise, a forged
// token that the endpoint cannot process would block all other tokens.
var errNoResponse = errors.New("introspection endpoint unavailable")

// backOff suspends requests to an endpoint that does not respond, so that each token is rejected immediately instead of after a
// timeout.
type backOff struct {
	mu        sync.Mutex
	retryAt   time.Time // zero if the endpoint responds
	isProbing bool      // a request is probing the endpoint after the back-off
}

// check returns an error during the back-off.
func (b *backOff) check(now time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.reject(now)
}

// startRequest is like check, but for a caller that then sends a request and calls recordResult.
func (b *backOff) startRequest(now time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.reject(now); err != nil {
		return err
	}
	b.isProbing = !b.retryAt.IsZero()
	return nil
}

func (b *backOff) reject(now time.Time) error {
	wait := b.retryAt.Sub(now)
	if b.retryAt.IsZero() || wait <= 0 && !b.isProbing {
		return nil
	}
	return &WaitError{max(wait, time.Second), "introspection endpoint unavailable"}
}

// recordResult records the result of a request.
func (b *backOff) recordResult(now time.Time, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.isProbing, b.retryAt = false, time.Time{}
	if errors.Is(err, errNoResponse) {
		b.retryAt = now.Add(backOffDuration)
	}
}
