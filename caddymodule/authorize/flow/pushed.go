package flow

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/signin"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// maxPendingPushes is the maximum number of pending requests that this process may have in the store.
const maxPendingPushes = 10_000

// clientCredentials are the parameters removed from pushed requests (RFC 9126 §2.1).
var clientCredentials = []string{"client_secret", "client_assertion", "client_assertion_type"}

var (
	errNestedRequestURI = oauth2.InvalidRequest("request_uri must not be sent to the pushed authorization request endpoint")
	errPushRequired     = oauth2.InvalidRequest("this client must use pushed authorization requests (RFC 9126)")
)

// pushEndpoint is the pushed authorization request endpoint (RFC 9126). It authenticates the client
// and checks the request before the browser is involved.
type pushEndpoint struct {
	responder     *endpoint.Responder
	authenticator *client.Authenticator
	requests      *requests
	pushed        *pushedRequests
}

// pushedRequests stores pushed requests until the browser presents their request_uri.
//
// Requests of confidential clients are in the store, because a longer request_uri might exceed
// proxy limits at the client. Requests of public clients are sealed into their request_uri,
// because anyone can push as a public client and could fill the store.
type pushedRequests struct {
	store        store.Store
	pendingCount *store.Memory // counts the entries of this process in the store
	sealed       *sealedPushes
}

func (e *pushEndpoint) serve(w http.ResponseWriter, r *http.Request) {
	response, err := e.pushRequest(w, r)
	if err != nil {
		e.responder.WriteError(w, r, err)
		return
	}
	e.responder.WriteJSON(w, http.StatusCreated, response)
}

func (e *pushEndpoint) pushRequest(w http.ResponseWriter, r *http.Request) (*pushedResponse, error) {
	p, err := e.authenticator.ParseForm(w, r)
	if err != nil {
		return nil, err
	}
	client, err := e.authenticator.Authenticate(r, p)
	if err != nil {
		return nil, err
	}
	if p.Get("request_uri") != "" {
		return nil, errNestedRequestURI
	}
	req, err := e.requests.check(r.Context(), pushedQuery(client, p))
	if err == nil {
		err = req.checkProtection()
	}
	if err != nil {
		return nil, err
	}
	if client.IsPublic() {
		return e.pushed.sealed.seal(r.Context(), client, req.signIn.Query)
	}
	return e.pushed.add(r.Context(), client, req.signIn.Query)
}

// pushedQuery encodes the request as a query of the authorization endpoint.
func pushedQuery(client *client.Client, p oauth2.Parameters) string {
	q := url.Values{}
	maps.Copy(q, p)
	for _, name := range clientCredentials {
		q.Del(name)
	}
	q.Set("client_id", client.ID)
	return q.Encode()
}

func (ps *pushedRequests) add(ctx context.Context, client *client.Client, query string) (*pushedResponse, error) {
	id := oauth2.RandomToken()
	key := store.Key("pushed", id)
	err := ps.pendingCount.Add(ctx, key, nil, pushedLifetime)
	if errors.Is(err, store.ErrFull) {
		err = &oauth2.Error{Code: "temporarily_unavailable", Status: http.StatusServiceUnavailable, Description: "too many pushed authorization requests are pending; try again later"}
	}
	if err == nil {
		if err = ps.store.Add(ctx, key, []byte(client.ID+"\n"+query), pushedLifetime); err != nil {
			_ = ps.pendingCount.Delete(ctx, key) // cannot fail in a memory store
		}
	}
	if err != nil {
		return nil, err
	}
	return &pushedResponse{pushedPrefix + id, int64(pushedLifetime.Seconds())}, nil
}

// find returns the pushed request that request_uri identifies, or nil if there is no request_uri. All other parameters except
// client_id are ignored (RFC 9126 §4), so that the browser cannot add any. malformed is the parse error of the parameters. It
// is returned only if there is a request_uri.
func (ps *pushedRequests) find(ctx context.Context, p oauth2.Parameters, malformed error) (*pushedRequest, error) {
	reference, ok := strings.CutPrefix(p.Get("request_uri"), pushedPrefix)
	switch {
	case !ok:
		return nil, nil // the caller reports other errors
	case malformed != nil:
		return nil, malformed
	}
	if err := p.Check("request_uri"); err != nil {
		return nil, err
	}
	if isSealed(reference) {
		return ps.sealed.unseal(ctx, p.Get("client_id"), reference)
	}
	return ps.load(ctx, p.Get("client_id"), reference)
}

// load reads the client's request from the store.
func (ps *pushedRequests) load(ctx context.Context, clientID, id string) (*pushedRequest, error) {
	key := store.Key("pushed", id)
	value, err := ps.store.Get(ctx, key)
	client, query, _ := strings.Cut(string(value), "\n")
	switch {
	case errors.Is(err, store.ErrNotFound), err == nil && client != clientID:
		return nil, errRequestURIUsed
	case err != nil:
		return nil, err
	}
	return &pushedRequest{query, &signin.SingleUseValue{
		Store: ps.store, Call: &store.Call{Op: store.Take, Key: key}, UsedError: errRequestURIUsed,
		After: func() error { return ps.pendingCount.Delete(ctx, key) },
	}}, nil
}

const (
	// pushedPrefix is the prefix of request_uri values (RFC 9126 §2.2).
	pushedPrefix = "urn:ietf:params:oauth:request_uri:"

	// pushedLifetime is the lifetime of a request_uri.
	pushedLifetime = 90 * time.Second
)

// pushedResponse is a successful response (RFC 9126 §2.2).
type pushedResponse struct {
	RequestURI string `json:"request_uri"`
	ExpiresIn  int64  `json:"expires_in"`
}

// errRequestURIUsed is returned for an unknown, expired or used request_uri.
var errRequestURIUsed = oauth2.InvalidRequest("The request_uri is unknown, expired, already used, or belongs to another client.")

// pushedRequest is a pushed request after the browser has presented its request_uri.
type pushedRequest struct {
	query     string
	singleUse *signin.SingleUseValue
}

// sealedPushes handles the pushed requests of public clients.
type sealedPushes struct {
	keys  keyring.BrowserSealer
	store store.Store // records used requests if gateways share the store
	used  usedPushes
}

// seal puts a public client's request into its request_uri, which cannot be guessed, read or
// changed (RFC 9126 §2.2, §7.1). The request_uri is no longer than the URL of the sign-in page,
// which contains the same request.
func (ps *sealedPushes) seal(ctx context.Context, client *client.Client, query string) (*pushedResponse, error) {
	id := oauth2.RandomBytes(len(pushID{}))
	sealed, err := ps.keys.Seal(ctx, string(id)+query, sealPurpose(client.ID))
	if err != nil {
		return nil, err
	}
	return &pushedResponse{pushedPrefix + sealed, int64(pushedLifetime.Seconds())}, nil
}

func (ps *sealedPushes) unseal(ctx context.Context, clientID, sealed string) (*pushedRequest, error) {
	text, err := ps.keys.Unseal(ctx, sealed, sealPurpose(clientID), pushedLifetime)
	switch {
	case errors.Is(err, keyring.ErrUnsealFailed):
		return nil, errRequestURIUsed
	case err != nil:
		return nil, err
	}
	id := pushID([]byte(text[:len(pushID{})]))
	singleUse, err := ps.singleUse(ctx, id)
	return &pushedRequest{text[len(id):], singleUse}, err
}

// singleUse returns the single-use value of a sealed request. Gateways with a shared store record the use in the store for the
// lifetime of the request.
func (ps *sealedPushes) singleUse(ctx context.Context, id pushID) (*signin.SingleUseValue, error) {
	if !store.IsShared(ps.store) {
		return ps.used.singleUse(id)
	}
	markUsed := &store.Call{Op: store.Add, Key: store.Key("pushed-used", string(id[:])), TTL: pushedLifetime}
	switch _, err := ps.store.Get(ctx, markUsed.Key); {
	case err == nil:
		return nil, errRequestURIUsed
	case !errors.Is(err, store.ErrNotFound):
		return nil, err
	}
	return &signin.SingleUseValue{Store: ps.store, Call: markUsed, UsedError: errRequestURIUsed}, nil
}

// isSealed reports whether a reference belongs to a sealed request. Only these references contain a dot.
func isSealed(reference string) bool { return strings.Contains(reference, ".") }

func sealPurpose(clientID string) string { return "pushed " + clientID }

// pushID identifies a sealed request. The reference does not, because several spellings unseal to the same request.
type pushID [16]byte

// maxUsedPushes is the minimum number of used requests to remember. They need about 10 MiB.
const maxUsedPushes = 1 << 17

// usedPushes records the sealed requests used at a single gateway. Pushing alone uses no memory.
//
// It has two generations. When the younger one is full or older than pushedLifetime, the older one is dropped. This limits
// memory without blocking other sign-ins. At worst, an attacker who uses hundreds of thousands of requests can use one of their
// own requests twice, which RFC 9126 §4 allows. Unlike a boundedcache, dropping expired requests does not visit each entry.
type usedPushes struct {
	mu             sync.Mutex
	younger, older map[pushID]struct{}
	youngerSince   time.Time // start of the younger generation
}

// singleUse returns the single-use value of a request.
func (u *usedPushes) singleUse(id pushID) (*signin.SingleUseValue, error) {
	if u.has(id) {
		return nil, errRequestURIUsed
	}
	return &signin.SingleUseValue{After: func() error {
		if !u.add(id) {
			return errRequestURIUsed
		}
		return nil
	}}, nil
}

// add records a request and reports whether this is its first use.
func (u *usedPushes) add(id pushID) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.younger) >= maxUsedPushes || time.Since(u.youngerSince) > pushedLifetime {
		u.older, u.younger, u.youngerSince = u.younger, map[pushID]struct{}{}, time.Now()
	}
	if u.hasLocked(id) {
		return false
	}
	u.younger[id] = struct{}{}
	return true
}

func (u *usedPushes) has(id pushID) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.hasLocked(id)
}

// hasLocked is like has, but the caller must have locked mu.
func (u *usedPushes) hasLocked(id pushID) bool {
	_, younger := u.younger[id]
	_, older := u.older[id]
	return younger || older
}
