package session

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fairqueue"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

const (
	deliveryTimeout         = 5 * time.Second // timeout of each request
	maxDeliveryAttempts     = 3               // maximum number of requests per logout token
	deliveryRetryPause      = time.Second     // pause before the second request; the pause before the third is four times as long
	maxConcurrentDeliveries = 8               // maximum number of concurrent requests
	maxPendingDeliveries    = 1000            // maximum number of pending notifications; more are discarded

	// logoutTokenLifetime is the maximum recommended in Back-Channel Logout §4.
	logoutTokenLifetime = 2 * time.Minute

	logoutEvent = "http://schemas.openid.net/event/backchannel-logout"
)

// logoutTokenClaims are the claims of a logout token (Back-Channel Logout §2.4). It may not contain a nonce, so that logout
// tokens cannot be used as ID tokens.
type logoutTokenClaims struct {
	Issuer   string              `json:"iss"`
	Subject  string              `json:"sub,omitempty"`
	Audience string              `json:"aud"`
	IssuedAt *jwt.NumericDate    `json:"iat"`
	Expiry   *jwt.NumericDate    `json:"exp"`
	ID       string              `json:"jti"`
	Events   map[string]struct{} `json:"events"`
	Session  string              `json:"sid"`
}

// Notifier notifies clients when sessions end (OpenID Connect Back-Channel Logout).
type Notifier struct {
	issuer  string
	keys    keyring.SignerSource
	trail   *audit.Recorder
	logger  *slog.Logger
	client  *http.Client
	queue   *fairqueue.Queue // limits concurrent requests per endpoint, so that slow endpoints do not delay others
	pending atomic.Int64     // number of pending notifications
}

// NewNotifier returns a notifier for an issuer. keys sign the logout tokens.
func NewNotifier(issuer string, keys keyring.SignerSource, trail *audit.Recorder, logger *slog.Logger) *Notifier {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DisableKeepAlives = true // connections would rarely be reused, and never be closed
	return &Notifier{
		issuer: issuer, keys: keys, trail: trail, logger: logger,
		client: &http.Client{
			Transport: transport, Timeout: deliveryTimeout,
			// Redirects are not followed: the token is only for the registered URI.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		queue: fairqueue.New(maxConcurrentDeliveries),
	}
}

// notify notifies participants of a session when it ends, or when they are removed from it, if they got an ID token and have a
// back-channel logout URI. It does not wait for their responses.
func (n *Notifier) notify(ctx context.Context, stored *Session, participants []participant) {
	for _, p := range participants {
		if p.gotIDToken && p.client.BackchannelLogoutURI != "" {
			n.send(audit.Detach(ctx), p.client, stored)
		}
	}
}

// send sends a logout token in the background.
func (n *Notifier) send(ctx context.Context, client *client.Client, stored *Session) {
	if n.pending.Add(1) > maxPendingDeliveries {
		n.pending.Add(-1)
		n.recordDelivery(ctx, client, stored, errors.New("too many pending back-channel logout requests"))
		return
	}
	go func() {
		defer n.pending.Add(-1)
		token, err := n.newLogoutToken(ctx, client, stored)
		if err == nil {
			err = n.deliver(ctx, client, token)
		}
		n.recordDelivery(ctx, client, stored, err)
	}()
}

func (n *Notifier) recordDelivery(ctx context.Context, client *client.Client, stored *Session, err error) {
	reason := "back-channel logout delivered"
	if err != nil {
		n.logger.WarnContext(ctx, "back-channel logout failed", "client_id", client.ID, "user", stored.User, "error", err)
		reason, err = "", &oauth2.Error{Code: "temporarily_unavailable", Description: "back-channel logout not delivered", Err: err}
	}
	n.trail.Record(ctx, audit.Event{Kind: audit.KindSignOut, ClientID: client.ID, User: stored.User, Reason: reason, Err: err})
}

func (n *Notifier) newLogoutToken(ctx context.Context, client *client.Client, stored *Session) (string, error) {
	now := time.Now()
	return keyring.Sign(ctx, n.keys, client.SigningAlgorithm(), keyring.LogoutTokenType, logoutTokenClaims{
		Issuer: n.issuer, Subject: stored.User, Audience: client.ID, Session: stored.SID, ID: oauth2.RandomToken(),
		IssuedAt: jwt.NewNumericDate(now), Expiry: jwt.NewNumericDate(now.Add(logoutTokenLifetime)),
		Events: map[string]struct{}{logoutEvent: {}},
	})
}

var errTokenRejected = errors.New("client rejected the logout token")

// deliver sends a logout token and retries after failures, unless the client has rejected the token.
func (n *Notifier) deliver(ctx context.Context, client *client.Client, token string) (err error) {
	for try := range maxDeliveryAttempts {
		if try > 0 {
			time.Sleep(deliveryRetryPause << (2 * (try - 1)))
		}
		if err = n.post(ctx, client, token); err == nil || errors.Is(err, errTokenRejected) {
			return err
		}
	}
	return err
}

// post sends a logout token without retrying (Back-Channel Logout §2.5, §2.8).
func (n *Notifier) post(ctx context.Context, client *client.Client, token string) error {
	uri := client.BackchannelLogoutURI
	release, err := n.queue.Acquire(ctx, uri)
	if err != nil {
		return err
	}
	defer release()
	form := url.Values{"logout_token": {token}}.Encode()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, uri, strings.NewReader(form))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	httpClient := *n.client
	if client.Transport != nil {
		httpClient.Transport = client.Transport
	}
	response, err := httpClient.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, _ = io.CopyN(io.Discard, response.Body, 1<<10)
	switch status := response.StatusCode; {
	case status == http.StatusOK || status == http.StatusNoContent:
		return nil
	case status >= 500:
		return fmt.Errorf("client responded with %s", response.Status)
	default:
		return fmt.Errorf("%w: %s", errTokenRejected, response.Status)
	}
}

// Stored values of participants: the kind of token that the client got.
var (
	idTokenMarker     = []byte("ID token")
	accessTokenMarker = []byte("access token")
)

// Participants stores which clients got a code or token in a session.
type Participants struct {
	Clients  *client.Registry // client registry
	Durable  store.Store      // store for participants
	Lifetime time.Duration    // session lifetime
}

// ReadCall returns the call that reads whether a client participates in a session.
func (p *Participants) ReadCall(sid, clientID string) *store.Call {
	return &store.Call{Op: store.Get, Key: participantKey(sid, clientID)}
}

// AddCalls returns the calls that add a client to a session. found must be the executed call of [Participants.ReadCall]. Each
// client has a separate entry, so that concurrent additions do not conflict. Existing entries are not written again, because a
// write to the durable store takes longer than the rest of issuing a code.
func (p *Participants) AddCalls(found *store.Call, idToken bool) []*store.Call {
	switch {
	case bytes.Equal(found.Value, idTokenMarker), found.Value != nil && !idToken:
		return nil
	case idToken:
		return []*store.Call{{Op: store.Put, Key: found.Key, Value: idTokenMarker, TTL: p.Lifetime}}
	}
	return []*store.Call{{Op: store.Add, Key: found.Key, Value: accessTokenMarker, TTL: p.Lifetime}}
}

// listParticipants returns the participants of a session. If clients are given, it returns only those.
func (p *Participants) listParticipants(ctx context.Context, sid string, clients ...string) (list []participant, err error) {
	if clients == nil {
		if clients, err = p.Clients.IDs(ctx); err != nil {
			return nil, err
		}
	}
	calls := make([]*store.Call, len(clients))
	for i, id := range clients {
		calls[i] = p.ReadCall(sid, id)
	}
	if err := store.Do(ctx, store.NewStep(p.Durable, calls...)); err != nil {
		return nil, err
	}
	for i, id := range clients {
		got := calls[i].Value
		if got == nil {
			continue
		}
		client, err := p.Clients.Find(ctx, id)
		if err != nil {
			return nil, err
		}
		if client != nil { // nil if the client has been deleted
			list = append(list, participant{client, bytes.Equal(got, idTokenMarker), calls[i].Key})
		}
	}
	return list, nil
}

// renewCalls returns the calls that extend the lifetime of participants after a new sign-in has extended their session.
func (p *Participants) renewCalls(ctx context.Context, sid string) (calls []*store.Call, err error) {
	list, err := p.listParticipants(ctx, sid)
	for _, participant := range list {
		got := accessTokenMarker
		if participant.gotIDToken {
			got = idTokenMarker
		}
		calls = append(calls, &store.Call{Op: store.Put, Key: participant.key, Value: got, TTL: p.Lifetime})
	}
	return calls, err
}

// remove removes participants from a session that has not ended.
func (p *Participants) remove(ctx context.Context, list []participant) error {
	return store.Do(ctx, store.NewStep(p.Durable, store.DeleteCalls(participantKeys(list)...)...))
}

func participantKeys(list []participant) (keys []string) {
	for _, p := range list {
		keys = append(keys, p.key)
	}
	return keys
}

type participant struct {
	client     *client.Client
	gotIDToken bool   // whether the client got an ID token
	key        string // store key of the participant
}

func participantKey(sid, clientID string) string {
	return store.Key("session-client", sid+" "+clientID)
}
