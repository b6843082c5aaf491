package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/upstream"
)

// newKeys returns the client's public keys, or nil.
func (c *Client) newKeys(logger *slog.Logger, transport http.RoundTripper) (*upstream.KeySet, error) {
	switch {
	case c.JWKSURI != "":
		return upstream.NewKeySet(upstream.KeySetConfig{Issuer: "client " + c.ID, URI: c.JWKSURI, Transport: transport, Exact: true, Logger: logger})
	case len(c.JWKS) > 0:
		return upstream.NewInlineKeySet(c.JWKS)
	}
	return nil, nil
}

// checkKeys refuses more than one authentication method, and private keys.
func (c *Client) checkKeys() (err error) {
	secret, jwks, uri := c.Secret != "" || c.SecretSHA256 != nil, len(c.JWKS) > 0, c.JWKSURI != ""
	switch {
	case secret && jwks, secret && uri, jwks && uri:
		return errors.New("has more than one of secret, jwks and jwks_uri: how it authenticates must be one way alone")
	case holdsPrivateKey(c.JWKS):
		return errors.New("jwks holds a private key: register the public part alone, and make a new key")
	}
	if c.AssertionAlgorithm != "" && !slices.Contains(AssertionAlgorithms, jose.SignatureAlgorithm(c.AssertionAlgorithm)) {
		return fmt.Errorf("token_endpoint_auth_signing_alg %q is not one of %q", c.AssertionAlgorithm, AssertionAlgorithms)
	}
	if c.keys == nil {
		c.keys, err = c.newKeys(nil, nil)
	}
	return err
}

func holdsPrivateKey(jwks []byte) bool {
	var set struct {
		Keys []struct {
			Private   any `json:"d"`
			Symmetric any `json:"k"`
		} `json:"keys"`
	}
	_ = json.Unmarshal(jwks, &set) // what is no JWKS is for newKeys to refuse
	for _, key := range set.Keys {
		if key.Private != nil || key.Symmetric != nil {
			return true
		}
	}
	return false
}

// registeredKeys are the key sets of registered clients. They outlive the cached clients, so
// that keys are fetched no more often than [upstream.KeySet] allows.
type registeredKeys struct {
	transport http.RoundTripper
	logger    *slog.Logger
	max       int // sets

	mu   sync.Mutex
	sets map[string]registeredKeySet // by client_id
}

// registeredKeySet is valid as long as the client names the same source.
type registeredKeySet struct {
	source string
	keys   *upstream.KeySet
}

// get returns the key set of a client, or nil.
func (r *registeredKeys) get(c *Client) (*upstream.KeySet, error) {
	source := c.JWKSURI + string(c.JWKS)
	if source == "" {
		return nil, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if known := r.sets[c.ID]; known.source == source {
		return known.keys, nil
	}
	keys, err := c.newKeys(r.logger, r.transport)
	if err != nil {
		return nil, err
	}
	if r.sets == nil || len(r.sets) >= r.max { // some of them are of deleted clients
		r.sets = map[string]registeredKeySet{}
	}
	r.sets[c.ID] = registeredKeySet{source, keys}
	return keys, nil
}
