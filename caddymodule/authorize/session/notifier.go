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
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/fairqueue"
)

const (
	// noticeTimeout bounds each request to a client's back-channel endpoint.
	noticeTimeout = 5 * time.Second

	// noticeTries is how often a client that cannot be reached, or fails, is
	// told; noticePause is between the first two tries, and four times as long
	// between the next.
	noticeTries = 3
	noticePause = time.Second

	// noticesAtOnce is how many requests there are at a time, maxNotices how
	// many wait for their turn. Those beyond are not sent.
	noticesAtOnce = 8
	maxNotices    = 1000

	// logoutTokenLifetime is what Back-Channel Logout §4 recommends at most.
	logoutTokenLifetime = 2 * time.Minute

	logoutEvent = "http://schemas.openid.net/event/backchannel-logout"
)

// logoutTokenClaims are those of Back-Channel Logout §2.4. It has no nonce, so
// that none passes for an ID token.
type logoutTokenClaims struct {
	Issuer   string              `json:"iss"`
	Subject  string              `json:"sub"`
	Audience string              `json:"aud"`
	IssuedAt *jwt.NumericDate    `json:"iat"`
	Expiry   *jwt.NumericDate    `json:"exp"`
	ID       string              `json:"jti"`
	Events   map[string]struct{} `json:"events"`
	Session  string              `json:"sid"`
}

// notices are on their way to clients' back-channel endpoints.
type notices struct {
	client  *http.Client
	turns   *fairqueue.Queue // of which a slow endpoint does not have all
	waiting atomic.Int64
}

// NewNotices makes room for those that are on their way at once.
func NewNotices() *notices {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DisableKeepAlives = true // seldom used, and nobody closes them
	return &notices{
		client: &http.Client{
			Transport: transport, Timeout: noticeTimeout,
			// A redirect would lead to where nobody registered.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		turns: fairqueue.New(noticesAtOnce),
	}
}

// Notifier tells clients that sessions are over (OpenID Connect Back-Channel Logout).
type Notifier struct {
	Issuer  string          // of logout tokens
	Keys    keyring.Signing // sign them
	Durable store.Store     // of what clients got in sessions
	Trail   *audit.Recorder // of who was told
	Logger  *slog.Logger    // of who was not
	Notices *notices        // on their way
}

// tellClients tells every client that got an ID token in a session, and wants to
// know, that it is over. It waits for none of them.
func (n *Notifier) tellClients(ctx context.Context, stored *Session, notes []clientNote) {
	for _, note := range notes {
		if err := n.Durable.Delete(ctx, clientKey(stored.SID, note.client.ID)); err != nil {
			// It means nothing without the session, and expires.
			n.Logger.WarnContext(ctx, "a client's part in a session that is over not removed", "client_id", note.client.ID, "error", err)
		}
		if note.idToken && note.client.BackchannelLogoutURI != "" {
			n.tell(audit.Detach(ctx), note.client, stored)
		}
	}
}

// tell sends a logout token in the background.
func (n *Notifier) tell(ctx context.Context, client *client.Client, stored *Session) {
	if n.Notices.waiting.Add(1) > maxNotices {
		n.Notices.waiting.Add(-1)
		n.told(ctx, client, stored, errors.New("too many clients are being told at this moment"))
		return
	}
	go func() {
		defer n.Notices.waiting.Add(-1)
		token, err := n.logoutToken(ctx, client, stored)
		if err == nil {
			err = n.Notices.deliver(ctx, client, token)
		}
		n.told(ctx, client, stored, err)
	}()
}

// told logs and records what came of telling a client.
func (n *Notifier) told(ctx context.Context, client *client.Client, stored *Session, err error) {
	reason := "the client was told"
	if err != nil {
		n.Logger.WarnContext(ctx, "client not told of a sign-out", "client_id", client.ID, "user", stored.User, "error", err)
		reason, err = "", &oauth2.Error{Code: "temporarily_unavailable", Description: "the client was not told", Err: err}
	}
	n.Trail.Record(ctx, audit.Event{Kind: audit.SignOut, ClientID: client.ID, User: stored.User, Reason: reason, Err: err})
}

// logoutToken is signed as ID tokens are, and says in its header that it is none.
func (n *Notifier) logoutToken(ctx context.Context, client *client.Client, stored *Session) (string, error) {
	now := time.Now()
	return keyring.Sign(ctx, n.Keys, keyring.IDTokenAlgorithm, keyring.LogoutTokenType, logoutTokenClaims{
		Issuer: n.Issuer, Subject: stored.User, Audience: client.ID, Session: stored.SID, ID: oauth2.RandomToken(),
		IssuedAt: jwt.NewNumericDate(now), Expiry: jwt.NewNumericDate(now.Add(logoutTokenLifetime)),
		Events: map[string]struct{}{logoutEvent: {}},
	})
}

// errRefused is a client's refusal: asking again would change nothing.
var errRefused = errors.New("the client refused the logout token")

// deliver posts a logout token, again where that may help.
func (n *notices) deliver(ctx context.Context, client *client.Client, token string) (err error) {
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
func (n *notices) post(ctx context.Context, client *client.Client, token string) error {
	uri := client.BackchannelLogoutURI
	leave, err := n.turns.Enter(ctx, uri)
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
