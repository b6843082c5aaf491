package guard

import (
	"cmp"
	"context"
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
	// defaultTimeout is how long an introspection may take, with the wait for a turn, which may take half of it.
	defaultTimeout        = 10 * time.Second
	defaultActiveLifetime = time.Minute // see Remember
	// defaultRefusedLifetime is how long a refused token is remembered, so that repeating it makes no requests.
	defaultRefusedLifetime = 10 * time.Second
	// defaultConcurrency is how many requests are under way at most, half of them for one network. Up to 1000 tokens wait
	// for a turn, and others are refused with 503.
	defaultConcurrency = 16
)

// refusalsSize is how many refused tokens are remembered, apart from the others, so that a flood of made-up tokens
// evicts no valid one.
const refusalsSize = 2000

// Introspector verifies opaque access tokens by asking the authorization server that issued them (RFC 7662). Anything
// but a clear answer refuses the token. It is safe for concurrent use, and must be neither copied nor changed once in
// use.
//
// Many servers report refresh tokens as active too. Where the response tells, they are refused.
type Introspector struct {
	// Endpoint is the URL of the introspection endpoint: https, or http on loopback. Required: without it no token
	// passes.
	Endpoint string
	// ClientID is the client to authenticate as (RFC 7662 §2.1). Required: without it no token passes.
	ClientID string
	// ClientSecret is its secret. Required: without it no token passes.
	ClientSecret string
	// Issuer is the issuer of the tokens. If set, the response must have exactly this iss. If empty, iss is ignored,
	// and the [Token]'s Issuer is Endpoint: a server that is free to name the issuer could name ours.
	Issuer string
	// Audience is what the response's aud must contain: our FHIR base URL, or our name at the server. Required unless
	// AnyAudience is set: without it no token passes.
	Audience string
	// AnyAudience ignores aud. It is for servers that send none, and relies on the server to report as active only
	// what is meant for us (RFC 7662 §4).
	AnyAudience bool
	// All also asks about JWTs: about those of Issuer, whose signatures are then not checked here or, without one, of issuers
	// that are not trusted. It is for tokens that say too little, and for revocations to count.
	All bool
	// Remember is how long an active token is remembered at most, and never past its exp. A revocation goes unnoticed for that
	// time. Default: a minute.
	Remember time.Duration
	// Keys are those of Issuer, by which responses that are JWTs are verified (RFC 9701). Nil: such responses are refused.
	Keys KeySet
	// Transport makes the requests. Default: [http.DefaultTransport].
	Transport http.RoundTripper
	// Network tells a request's network by its context: an IPv4 address or the /64 of an IPv6 address, which is what
	// one client has at least. Made-up tokens from one network then do not delay those of others. Nil treats all as
	// one.
	Network func(context.Context) string
	// Claims are the claims to tell of besides. Nil: none, and no groups.
	Claims *tokenclaim.Names
	// Memory remembers active tokens. It may be shared by verifiers. Nil remembers none.
	Memory *Memory
	// Now is the clock. Default: time.Now.
	Now func() time.Time
	// Leeway is the tolerance for the server's clock in exp, nbf and iat. Default: 30 s; negative: none.
	Leeway time.Duration

	// Settings of tests; 0 means the default, and less nothing at all.
	timeout, refusedLifetime time.Duration
	concurrency              int

	setUp    sync.Once
	fault    error // what is required and not set
	flights  singleflight.Group
	queue    *fairqueue.Queue
	backOff  backOff
	refusals *Memory
}

func (i *Introspector) prepare() {
	i.fault = i.check()
	i.queue = fairqueue.New(cmp.Or(i.concurrency, defaultConcurrency))
	i.refusals = NewMemory(refusalsSize)
}

// Verify returns what a valid access token says. Any error is an [*Error]: 401 invalid_token for a token that is not
// active or not for us, 503 if the server gives no clear answer.
func (i *Introspector) Verify(ctx context.Context, raw string) (*Token, error) {
	i.setUp.Do(i.prepare)
	if i.fault != nil {
		return nil, unavailable(i.fault)
	}
	if raw == "" || len(raw) > maxTokenSize {
		return nil, invalidToken(fmt.Errorf("%w: empty, or more than %d bytes", errMalformed, maxTokenSize))
	}
	id := i.remembranceID(raw)
	response, ok := i.recall(id)
	if !ok {
		var err error
		if response, err = i.ask(ctx, id, raw); err != nil {
			return nil, unavailable(fmt.Errorf("%w: introspection: %w", ErrUnavailable, err))
		}
	}
	// Remembered or not: what has been found active has not been found to be for us, nor to be so for ever
	// (GO-2022-0406).
	token, err := i.judge(response)
	if err != nil {
		return nil, invalidToken(err)
	}
	return &token, nil
}

// ask asks the server, once for all requests with the same token. They share the answer, but not the context of one of
// them, whose client may go away.
func (i *Introspector) ask(ctx context.Context, id remembranceID, raw string) (introspection, error) {
	network := ""
	if i.Network != nil { // asked here: the flight may outlive the request
		network = i.Network(ctx)
	}
	flight := i.flights.DoChan(string(id[:]), func() (any, error) {
		return i.fly(context.WithoutCancel(ctx), network, id, raw)
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

// fly waits for a turn, makes the request and remembers the response. It checks the pause again after the wait.
func (i *Introspector) fly(ctx context.Context, network string, id remembranceID, raw string) (introspection, error) {
	if known, ok := i.recall(id); ok {
		return known, nil // another flight ended since we looked
	}
	if err := i.backOff.check(i.now()); err != nil {
		return introspection{}, err
	}
	timeout := cmp.Or(i.timeout, defaultTimeout)
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	leave, err := i.enter(ctx, network, timeout/2)
	if err != nil {
		return introspection{}, err
	}
	defer leave()
	asked := i.now()
	if err := i.backOff.begin(asked); err != nil {
		return introspection{}, err
	}
	response, err := i.request(ctx, raw)
	response.memo = new(Memo)
	i.backOff.end(i.now(), err)
	if err != nil {
		return introspection{}, err
	}
	i.remember(id, response, asked)
	return response, nil
}

// request makes the introspection request (RFC 7662 §2.1), as a client that authenticates by HTTP Basic.
func (i *Introspector) request(ctx context.Context, raw string) (introspection, error) {
	form := url.Values{"token": {raw}, "token_type_hint": {"access_token"}}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, i.Endpoint, strings.NewReader(form.Encode()))
	if err != nil {
		return introspection{}, err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	by := reader{i.Claims, i.Keys, i.Issuer, i.ClientID, i.now(), leewayOr(i.Leeway)}
	r.Header.Set("Accept", by.accept())
	// Asking twice does no harm: net/http may try again when the server has closed a connection that was kept. Without
	// a value nothing is sent.
	r.Header["Idempotency-Key"] = nil
	r.SetBasicAuth(url.QueryEscape(i.ClientID), url.QueryEscape(i.ClientSecret))
	return introspect(i.Transport, r, by)
}

func (i *Introspector) enter(ctx context.Context, network string, most time.Duration) (leave func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	return i.queue.Enter(ctx, network)
}

func (i *Introspector) recall(id remembranceID) (introspection, bool) {
	if known, ok := recalled[introspection](i.Memory, id); ok {
		return known, true
	}
	return recalled[introspection](i.refusals, id)
}

// remember remembers the response to a request that was made at a time.
func (i *Introspector) remember(id remembranceID, response introspection, asked time.Time) {
	if _, err := i.judge(response); err != nil {
		i.refusals.put(id, response, cmp.Or(i.refusedLifetime, defaultRefusedLifetime))
		return
	}
	until := asked.Add(cmp.Or(i.Remember, defaultActiveLifetime))
	if expiry := response.Expiry; expiry != nil && expiry.Time().Before(until) {
		until = expiry.Time()
	}
	i.Memory.put(id, response, until.Sub(i.now()))
}

// remembranceID is the key of a token in memory and in flight: two tokens that shared it would share the answer
// (CVE-2026-71326).
func (i *Introspector) remembranceID(raw string) remembranceID {
	return tokenID(policyID("introspection", i.Endpoint, i.ClientID, i.Issuer, i.Audience,
		i.Claims.String(),
		strconv.FormatBool(i.AnyAudience), leewayOr(i.Leeway).String(), i.Remember.String()), raw)
}

// issuer is the issuer of the tokens.
func (i *Introspector) issuer() string { return cmp.Or(i.Issuer, i.Endpoint) }

// audience is what aud must contain; empty for any.
func (i *Introspector) audience() string {
	if i.AnyAudience {
		return ""
	}
	return i.Audience
}

func (i *Introspector) now() time.Time { return clock(i.Now) }

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

// judge decides by a response whether the token is valid.
func (i *Introspector) judge(response introspection) (Token, error) {
	if !response.active {
		return Token{}, errInactive
	}
	clientID, err := response.clientID()
	if err != nil {
		return Token{}, err
	}
	if err := response.checkParties(i.Issuer, i.audience()); err != nil {
		return Token{}, err
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
	if err := token.checkHeaderValues(); err != nil {
		return Token{}, err
	}
	return token, nil
}

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
