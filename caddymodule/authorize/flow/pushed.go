package flow

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

const (
	// pushedPrefix begins the request_uri of a pushed request (RFC 9126 §2.2).
	pushedPrefix = "urn:ietf:params:oauth:request_uri:"

	// pushedLifetime is how long a pushed request waits for the browser.
	pushedLifetime = 90 * time.Second

	// maxPushed bounds how many wait in the store at once, of this process.
	maxPushed = 10_000
)

// clientCredentials are the parameters that authenticate a client, and are no part
// of the authorization request that is pushed with them (RFC 9126 §2.1).
var clientCredentials = []string{"client_secret", "client_assertion", "client_assertion_type"}

// pushedResponse is the answer of the endpoint (RFC 9126 §2.2).
type pushedResponse struct {
	RequestURI string `json:"request_uri"`
	ExpiresIn  int64  `json:"expires_in"`
}

var (
	errPushedTwice = oauth2.InvalidRequest("request_uri is given by this endpoint, not to it")
	errSpentPush   = oauth2.InvalidRequest("The request_uri is unknown, expired or used already, or another client's.")
	errMustPush    = oauth2.InvalidRequest("this client must push its authorization requests (RFC 9126)")
)

// pushEndpoint takes authorization requests from clients, before any browser sees them.
type pushEndpoint struct {
	*endpoint.Responder
	authenticator *client.Authenticator
	requests      *requests
	pushed        *pushes
}

// pushes are the requests that were pushed.
type pushes struct {
	keys  keyring.Sealing
	store store.Store   // of those of clients that prove who they are
	count *store.Memory // of what this process keeps there
	spent spentPushes   // of those that are sealed in their reference
}

func newPushes(keys keyring.Sealing, s store.Store) *pushes {
	return &pushes{keys: keys, store: s, count: store.NewMemory(maxPushed, 0)}
}

// push is the pushed authorization request endpoint (RFC 9126): it authenticates
// the client and checks the request before any browser sees it.
//
// What a client pushed that proved who it is waits in the store, and its reference is
// short: it goes through the client's own server, whose proxies may take no long
// header. Anybody can push as a public client, and must fill nothing by it: these
// requests travel sealed in their reference (sealedpush.go).
func (e *pushEndpoint) push(w http.ResponseWriter, r *http.Request) {
	response, err := e.pushRequest(w, r)
	if err != nil {
		e.WriteError(w, r, err)
		return
	}
	e.WriteJSON(w, http.StatusCreated, response)
}

func (e *pushEndpoint) pushRequest(w http.ResponseWriter, r *http.Request) (*pushedResponse, error) {
	p, err := oauth2.FormParameters(w, r)
	if err != nil {
		return nil, err
	}
	client, err := e.authenticator.Authenticate(r, p)
	if err != nil {
		return nil, err
	}
	if p.Get("request_uri") != "" {
		return nil, errPushedTwice
	}
	query := pushedQuery(client, p)
	if _, err := e.requests.authorizationRequest(r.Context(), query); err != nil {
		return nil, err
	}
	if client.Public() {
		return e.pushed.sealPushed(r.Context(), client, query)
	}
	return e.pushed.keepPushed(r.Context(), client, query)
}

// pushedQuery is the request as the authorization endpoint reads it.
func pushedQuery(client *client.Client, p oauth2.Parameters) string {
	q := url.Values{}
	maps.Copy(q, p)
	for _, name := range clientCredentials {
		q.Del(name)
	}
	q.Set("client_id", client.ID)
	return q.Encode()
}

func (ps *pushes) keepPushed(ctx context.Context, client *client.Client, query string) (*pushedResponse, error) {
	id := oauth2.RandomToken()
	key := store.Key("pushed", id)
	err := ps.count.Add(ctx, key, nil, pushedLifetime)
	if errors.Is(err, store.ErrFull) {
		err = &oauth2.Error{Code: "temporarily_unavailable", Status: http.StatusServiceUnavailable, Description: "too many pushed requests are waiting"}
	}
	if err == nil {
		if err = ps.store.Add(ctx, key, []byte(client.ID+"\n"+query), pushedLifetime); err != nil {
			_ = ps.count.Delete(ctx, key) // in memory: never fails
		}
	}
	if err != nil {
		return nil, err
	}
	return &pushedResponse{pushedPrefix + id, int64(pushedLifetime.Seconds())}, nil
}

// pushedRequest is one that was pushed.
type pushedRequest struct {
	query string
	spend func(context.Context) error // once: then it is errSpentPush
}

// pulled finds the pushed request that a query names, or nil where it names none. Of
// the query only client_id counts beside it (RFC 9126 §4), so that nobody on the
// way through the browser can add to what the client pushed.
func (ps *pushes) pulled(ctx context.Context, query string) (*pushedRequest, error) {
	p, malformed := oauth2.ReadQuery(query)
	reference, ok := strings.CutPrefix(p.Get("request_uri"), pushedPrefix)
	switch {
	case !ok:
		return nil, nil // whatever is wrong with it is found later
	case malformed != nil:
		return nil, malformed
	}
	if err := p.Check("request_uri"); err != nil {
		return nil, err
	}
	if isSealed(reference) {
		return ps.openPushed(ctx, p.Get("client_id"), reference)
	}
	return ps.storedPush(ctx, p.Get("client_id"), reference)
}

// storedPush reads a client's request from the store.
func (ps *pushes) storedPush(ctx context.Context, clientID, id string) (*pushedRequest, error) {
	key := store.Key("pushed", id)
	value, err := ps.store.Get(ctx, key)
	if errors.Is(err, store.ErrNotFound) {
		return nil, errSpentPush
	}
	if err != nil {
		return nil, err
	}
	client, query, _ := strings.Cut(string(value), "\n")
	if client != clientID {
		return nil, errSpentPush
	}
	return &pushedRequest{query, func(ctx context.Context) error {
		_, err := ps.store.Take(ctx, key)
		if errors.Is(err, store.ErrNotFound) {
			return errSpentPush
		}
		if err == nil {
			_ = ps.count.Delete(ctx, key) // room for another; it would have come anyway
		}
		return err
	}}, nil
}
