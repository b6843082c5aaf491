package guard

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/fairqueue"
)

// The [Introspector]'s settings where none are set.
const (
	// DefaultTimeout is how long an introspection may take.
	DefaultTimeout = 10 * time.Second
	// DefaultActiveLifetime is how long an active token is remembered.
	DefaultActiveLifetime = time.Minute
	// DefaultRefusedLifetime is how long a refused token is remembered.
	DefaultRefusedLifetime = 10 * time.Second
	// DefaultConcurrency is how many requests are under way at most.
	DefaultConcurrency = 16
)

// refusalsSize is how many refused tokens are remembered. They have a memory
// of their own, so that a flood of made-up ones drives no valid one out.
const refusalsSize = 2000

// Introspector verifies opaque access tokens by asking the authorization
// server that issued them (RFC 7662). What it does not understand, or cannot
// get, refuses the token. It is safe for concurrent use, and must neither be
// copied nor changed once in use.
//
// Many servers find refresh tokens active as well, and not all of them say
// which is which; those that do are minded.
type Introspector struct {
	// Endpoint is the URL of the introspection endpoint: https, or http on
	// loopback. Required: without it no token passes.
	Endpoint string
	// ClientID is the client that we authenticate as (RFC 7662 §2.1).
	// Required: without it no token passes.
	ClientID string
	// ClientSecret is its secret. Required: without it no token passes.
	ClientSecret string
	// AuthPost sends both in the form (client_secret_post) instead of by
	// HTTP Basic (client_secret_basic, RFC 6749 §2.3.1).
	AuthPost bool
	// Issuer is whose tokens they are. If set, the response must have an iss
	// and it must be this one, byte for byte. If not, the response's iss is
	// not looked at, and the [Token]'s Issuer is Endpoint: a server that is
	// free to name the issuer could name ours.
	Issuer string
	// Audience is what the response's aud must hold: our FHIR base URL, or
	// our name there. Without it no token passes, unless AnyAudience is set.
	Audience string
	// AnyAudience leaves aud out of account. It is for servers that send
	// none, and relies on the server to find active only what is for us, as
	// RFC 7662 §4 demands of it.
	AnyAudience bool
	// Transport carries the requests. Default: [http.DefaultTransport].
	Transport http.RoundTripper
	// Timeout bounds one introspection, with its waiting for others to end,
	// which may take half of it. Default: [DefaultTimeout].
	Timeout time.Duration
	// ActiveLifetime is how long an active token is remembered, at most and
	// never past its exp. For so long a revocation stays unnoticed, since
	// only asking again shows it. Default: [DefaultActiveLifetime]; a
	// negative one is none.
	ActiveLifetime time.Duration
	// RefusedLifetime is how long a refused token is remembered, so that who
	// repeats it makes no requests. Default: [DefaultRefusedLifetime]; a
	// negative one is none.
	RefusedLifetime time.Duration
	// Concurrency is how many requests are under way at most, half of them
	// for one network; up to 1000 tokens wait for their turn, and more are
	// answered with 503. Default: [DefaultConcurrency]; a negative one is 1.
	Concurrency int
	// Network says by its context where a request comes from: what one client
	// has at least, an IPv4 address or the /64 of an IPv6 address. Made-up
	// tokens from one network then do not keep others' from being asked
	// about. Nil takes all for one.
	Network func(context.Context) string
	// Memory remembers active tokens. It may be shared by verifiers. Nil
	// remembers none.
	Memory *Memory
	// Now is the clock. Default: time.Now.
	Now func() time.Time
	// Leeway is how far the server's clock may be off, either way, in exp,
	// nbf and iat. Default: [DefaultLeeway]; a negative one is none.
	Leeway time.Duration

	setUp    sync.Once
	fault    error // what is required and not set
	flights  singleflight.Group
	queue    *fairqueue.Queue
	backOff  backOff
	refusals *Memory
}

// prepare makes what is not set from outside.
func (i *Introspector) prepare() {
	i.fault = i.check()
	i.queue = fairqueue.New(cmp.Or(i.Concurrency, DefaultConcurrency))
	i.refusals = NewMemory(refusalsSize)
}

// Verify says whether raw is a valid access token. Any error is an [*Error]:
// 401 invalid_token for a token that is not active or not for us, 503 where
// the server does not say so in a way that is understood.
func (i *Introspector) Verify(ctx context.Context, raw string) (Token, error) {
	i.setUp.Do(i.prepare)
	if i.fault != nil {
		return Token{}, unavailable(i.fault)
	}
	if raw == "" || len(raw) > MaxTokenSize {
		return Token{}, invalidToken(fmt.Errorf("%w: empty, or more than %d bytes", ErrMalformed, MaxTokenSize))
	}
	id := i.remembranceID(raw)
	response, ok := i.recall(id)
	if !ok {
		var err error
		if response, err = i.ask(ctx, id, raw); err != nil {
			return Token{}, unavailable(fmt.Errorf("%w: introspection: %w", ErrUnavailable, err))
		}
	}
	// Remembered or not: what has been found active has not been found to be
	// for us, nor to be so for ever (GO-2022-0406).
	token, err := i.judge(response)
	if err != nil {
		return Token{}, invalidToken(err)
	}
	return token, nil
}

// ask asks the server, once for all who want to know about the same token.
// They share the answer and not the context of one of them, whose client may
// go away.
func (i *Introspector) ask(ctx context.Context, id, raw string) (introspection, error) {
	network := ""
	if i.Network != nil { // asked here: the flight may outlive the request
		network = i.Network(ctx)
	}
	flight := i.flights.DoChan(id, func() (any, error) {
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

// fly waits for a slot, makes the request and remembers the response. When a slot is
// there, the endpoint may meanwhile have ceased to answer.
func (i *Introspector) fly(ctx context.Context, network, id, raw string) (introspection, error) {
	if known, ok := i.recall(id); ok {
		return known, nil // another flight ended since we looked
	}
	if err := i.backOff.check(i.now()); err != nil {
		return introspection{}, err
	}
	timeout := cmp.Or(i.Timeout, DefaultTimeout)
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
	i.backOff.end(i.now(), err)
	if err != nil {
		return introspection{}, err
	}
	i.remember(id, response, asked)
	return response, nil
}

// enter waits for a slot.
func (i *Introspector) enter(ctx context.Context, network string, most time.Duration) (leave func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	return i.queue.Enter(ctx, network)
}

// recall returns the response that is remembered.
func (i *Introspector) recall(id string) (introspection, bool) {
	if known, ok := recalled[introspection](i.Memory, id); ok {
		return known, true
	}
	return recalled[introspection](i.refusals, id)
}

// remember remembers the response to a request of a time.
func (i *Introspector) remember(id string, response introspection, asked time.Time) {
	if _, err := i.judge(response); err != nil {
		i.refusals.put(id, response, cmp.Or(i.RefusedLifetime, DefaultRefusedLifetime))
		return
	}
	until := asked.Add(cmp.Or(i.ActiveLifetime, DefaultActiveLifetime))
	if expiry := response.Expiry; expiry != nil && expiry.Time().Before(until) {
		until = expiry.Time()
	}
	i.Memory.put(id, response, until.Sub(i.now()))
}

// remembranceID is the key under which a token is remembered, and asked about:
// two tokens that shared it would share the answer (CVE-2026-71326).
func (i *Introspector) remembranceID(raw string) string {
	return tokenID(policyID("introspection", i.Endpoint, i.ClientID, i.Issuer, i.Audience,
		strconv.FormatBool(i.AnyAudience), leewayOr(i.Leeway).String(), i.ActiveLifetime.String()), raw)
}

// issuer is the issuer of the tokens.
func (i *Introspector) issuer() string {
	if i.Issuer == "" {
		return i.Endpoint
	}
	return i.Issuer
}

// now is the time by the introspector's clock.
func (i *Introspector) now() time.Time { return clock(i.Now) }
