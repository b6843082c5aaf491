package session

import (
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
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fairqueue"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

const (
	noticeTimeout = 5 * time.Second // of each request
	noticeTries   = 3               // requests for each notice
	noticePause   = time.Second     // before the second; four times as long before the third
	noticesAtOnce = 8               // requests
	maxNotices    = 1000            // not yet delivered; others are not sent

	// logoutTokenLifetime is the longest that Back-Channel Logout §4 recommends.
	logoutTokenLifetime = 2 * time.Minute

	logoutEvent = "http://schemas.openid.net/event/backchannel-logout"
)

// logoutTokenClaims are those of Back-Channel Logout §2.4. There is no nonce, lest a logout
// token pass for an ID token.
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

// Notifier notifies clients of the end of sessions (OpenID Connect Back-Channel Logout).
type Notifier struct {
	issuer  string
	keys    keyring.Signing
	trail   *audit.Recorder
	logger  *slog.Logger
	client  *http.Client
	queue   *fairqueue.Queue // by endpoint, so that a slow one does not hold up others
	waiting atomic.Int64     // notices not yet delivered
}

// NewNotifier returns the Notifier of an issuer, whose logout tokens keys sign.
func NewNotifier(issuer string, keys keyring.Signing, trail *audit.Recorder, logger *slog.Logger) *Notifier {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DisableKeepAlives = true // rarely used, and nobody would close them
	return &Notifier{
		issuer: issuer, keys: keys, trail: trail, logger: logger,
		client: &http.Client{
			Transport: transport, Timeout: noticeTimeout,
			// Clients register the address that gets the token, not where it redirects.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		queue: fairqueue.New(noticesAtOnce),
	}
}

// notify notifies the participants of a session that has ended, or from which they were
// removed, that got an ID token and have a back-channel endpoint. It does not wait for them.
func (n *Notifier) notify(ctx context.Context, stored *Session, participants []participant) {
	for _, p := range participants {
		if p.idToken && p.client.BackchannelLogoutURI != "" {
			n.send(audit.Detach(ctx), p.client, stored)
		}
	}
}

// send sends a logout token in the background.
func (n *Notifier) send(ctx context.Context, client *client.Client, stored *Session) {
	if n.waiting.Add(1) > maxNotices {
		n.waiting.Add(-1)
		n.record(ctx, client, stored, errors.New("too many clients are being told at this moment"))
		return
	}
	go func() {
		defer n.waiting.Add(-1)
		token, err := n.logoutToken(ctx, client, stored)
		if err == nil {
			err = n.deliver(ctx, client, token)
		}
		n.record(ctx, client, stored, err)
	}()
}

func (n *Notifier) record(ctx context.Context, client *client.Client, stored *Session, err error) {
	reason := "the client was told"
	if err != nil {
		n.logger.WarnContext(ctx, "client not told of a sign-out", "client_id", client.ID, "user", stored.User, "error", err)
		reason, err = "", &oauth2.Error{Code: "temporarily_unavailable", Description: "the client was not told", Err: err}
	}
	n.trail.Record(ctx, audit.Event{Kind: audit.SignOut, ClientID: client.ID, User: stored.User, Reason: reason, Err: err})
}

func (n *Notifier) logoutToken(ctx context.Context, client *client.Client, stored *Session) (string, error) {
	now := time.Now()
	return keyring.Sign(ctx, n.keys, client.SigningAlgorithm(), keyring.LogoutTokenType, logoutTokenClaims{
		Issuer: n.issuer, Subject: stored.User, Audience: client.ID, Session: stored.SID, ID: oauth2.RandomToken(),
		IssuedAt: jwt.NewNumericDate(now), Expiry: jwt.NewNumericDate(now.Add(logoutTokenLifetime)),
		Events: map[string]struct{}{logoutEvent: {}},
	})
}

var errRefused = errors.New("the client refused the logout token")

// deliver posts a logout token, again if that fails, unless the client refused it.
func (n *Notifier) deliver(ctx context.Context, client *client.Client, token string) (err error) {
	for try := range noticeTries {
		if try > 0 {
			time.Sleep(noticePause << (2 * (try - 1)))
		}
		if err = n.post(ctx, client, token); err == nil || errors.Is(err, errRefused) {
			return err
		}
	}
	return err
}

// post sends a logout token once (Back-Channel Logout §2.5, §2.8).
func (n *Notifier) post(ctx context.Context, client *client.Client, token string) error {
	uri := client.BackchannelLogoutURI
	leave, err := n.queue.Enter(ctx, uri)
	if err != nil {
		return err
	}
	defer leave()
	form := url.Values{"logout_token": {token}}.Encode()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, uri, strings.NewReader(form))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	sender := *n.client
	if client.Transport != nil {
		sender.Transport = client.Transport
	}
	response, err := sender.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, _ = io.CopyN(io.Discard, response.Body, 1<<10)
	switch status := response.StatusCode; {
	case status == http.StatusOK || status == http.StatusNoContent:
		return nil
	case status >= 500:
		return fmt.Errorf("the client answered %s", response.Status)
	default:
		return fmt.Errorf("%w: %s", errRefused, response.Status)
	}
}
