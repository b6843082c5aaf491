package client

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/lockout"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/relyingparty"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/strictjson"
)

// ErrNoClientID is the error for a request that does not identify a client.
var ErrNoClientID = oauth2.InvalidClient("client_id is missing")

var (
	errUnknownClient   = oauth2.InvalidClient("unknown client or wrong client secret")
	errMultipleMethods = oauth2.InvalidRequest("use only one client authentication method")
)

// Authenticator authenticates clients.
type Authenticator struct {
	Issuer       string           // issuer URL, one of the accepted audiences of assertions
	Clients      *Registry        // client registry
	DurableStore store.Store      // store for used assertions
	Limiter      *lockout.Limiter // throttling of wrong secrets
	Logger       *slog.Logger     // log for assertions that could not be made usable again

	// InferClient returns the client of a token request that has no client_id, or [ErrNoClientID].
	InferClient func(context.Context, oauth2.Parameters) (*Client, error)
}

// ParseForm parses the form of a request (RFC 6749 §2.3). It records the claimed client for the audit log, even if the form is
// rejected or authentication fails.
func (a *Authenticator) ParseForm(w http.ResponseWriter, r *http.Request) (oauth2.Parameters, error) {
	p, err := oauth2.ReadCheckedForm(w, r)
	a.recordClaimedClient(r, p)
	return p, err
}

// Authenticate returns the client of a request (RFC 6749 §2.3). The client must use its registered method: client_secret_basic
// or client_secret_post, private_key_jwt, or none for public clients. Otherwise the error is invalid_client.
func (a *Authenticator) Authenticate(r *http.Request, p oauth2.Parameters) (*Client, error) {
	client, err := a.authenticateRequest(r, p)
	if err != nil {
		return nil, err
	}
	audit.RecordClient(r.Context(), client.ID)
	switch {
	case client.PendingApproval:
		return nil, errNotApproved
	case !client.IsPublic():
		audit.RecordAuthenticated(r.Context())
	}
	return client, nil
}

func (a *Authenticator) authenticateRequest(r *http.Request, p oauth2.Parameters) (*Client, error) {
	hasAuthHeader := len(r.Header.Values("Authorization")) > 0
	secret := p.Get("client_secret")
	hasAssertion := p.Get("client_assertion") != "" || p.Get("client_assertion_type") != ""
	switch {
	case hasAssertion && (hasAuthHeader || secret != ""):
		return nil, errMultipleMethods
	case hasAssertion:
		return a.authenticateAssertion(r, p)
	case hasAuthHeader:
		return a.authenticateBasic(r, p)
	case p.Get("client_id") == "" && r.URL.Path == endpoint.Token:
		return a.InferClient(r.Context(), p)
	case p.Get("client_id") == "":
		return nil, ErrNoClientID
	}
	client, err := a.Clients.findWithPending(r.Context(), p.Get("client_id"))
	if err != nil {
		return nil, err
	}
	switch {
	case secret != "":
		if client != nil && !client.hasSecret(secret) {
			client = nil
		}
		return a.checkSecret(r, p.Get("client_id"), client)
	case client == nil || !client.IsPublic():
		return nil, errUnknownClient
	}
	return client, nil
}

// checkSecret counts an attempt with a secret and returns an error if client is nil, i.e. if the secret was wrong.
func (a *Authenticator) checkSecret(r *http.Request, clientID string, client *Client) (*Client, error) {
	err := error(errUnknownClient)
	if client != nil {
		err = nil
	}
	if err := a.Limiter.CountSecretAttempt(r, clientID, err, client == nil || client.hasGuessableSecret); err != nil {
		return nil, err
	}
	return client, nil
}

func (a *Authenticator) authenticateBasic(r *http.Request, p oauth2.Parameters) (*Client, error) {
	id, secret, ok := r.BasicAuth()
	switch {
	case !ok || len(r.Header.Values("Authorization")) > 1:
		return nil, oauth2.InvalidClient("the Authorization header does not contain valid HTTP Basic credentials")
	case p.Get("client_secret") != "":
		return nil, errMultipleMethods
	}
	client, err := a.clientByBasicAuth(r.Context(), id, secret)
	if err == nil && secret != "" {
		client, err = a.checkSecret(r, formDecode(id), client)
	}
	switch sentID := p.Get("client_id"); {
	case err != nil:
		return nil, err
	case client == nil:
		return nil, errUnknownClient
	case sentID != "" && sentID != client.ID:
		return nil, oauth2.InvalidRequest("client_id does not match the authenticated client")
	}
	return client, nil
}

// clientByBasicAuth returns the client with the given credentials, or nil. It tries them form-decoded (RFC 6749 §2.3.1) and
// then unchanged, because many clients do not encode them.
func (a *Authenticator) clientByBasicAuth(ctx context.Context, id, secret string) (*Client, error) {
	if c, err := a.Clients.findWithPending(ctx, formDecode(id)); err != nil || c != nil && c.hasSecret(formDecode(secret)) {
		return c, err
	}
	c, err := a.Clients.findWithPending(ctx, id)
	if err != nil || c != nil && c.hasSecret(secret) {
		return c, err
	}
	return nil, nil
}

// formDecode returns the form-decoded text, or text itself if it is not validly encoded.
func formDecode(text string) string {
	if decoded, err := url.QueryUnescape(text); err == nil {
		return decoded
	}
	return text
}

// recordClaimedClient records the first existing client among those that a request claims to be: by HTTP Basic, client_id, or
// the unverified sub or iss of its assertion.
func (a *Authenticator) recordClaimedClient(r *http.Request, p oauth2.Parameters) {
	id, _, _ := r.BasicAuth()
	claimed := []string{formDecode(id), id, p.Get("client_id")}
	if _, claims, err := decodeAssertion(p.Get("client_assertion")); err == nil {
		claimed = append(claimed, claims.Subject, claims.Issuer)
	}
	for _, id := range claimed {
		if a.Clients.RecordClient(r.Context(), id) {
			return
		}
	}
}

// authenticateAssertion implements private_key_jwt (RFC 7523 §2.2, OpenID Connect Core §9, SMART
// App Launch 2.2, Asymmetric Authentication).
func (a *Authenticator) authenticateAssertion(r *http.Request, p oauth2.Parameters) (*Client, error) {
	if p.Get("client_assertion_type") != assertionType {
		return nil, oauth2.InvalidRequest("client_assertion_type must be " + assertionType)
	}
	raw := p.Get("client_assertion")
	client, claims, err := a.findAssertionClient(r.Context(), raw)
	switch {
	case err != nil:
		return nil, err
	case p.Get("client_id") != "" && p.Get("client_id") != client.ID:
		return nil, oauth2.InvalidRequest("client_id does not match the authenticated client")
	}
	if err := verifyAssertion(r.Context(), client.Keys, raw); err != nil {
		return nil, err
	}
	audiences := []string{a.Issuer}
	if !client.HasCompat(CompatIssuerAudience) {
		audiences = append(audiences, a.Issuer+endpoint.Token, a.Issuer+r.URL.Path)
	}
	now := store.Now(a.DurableStore) // used jti values are stored until the store's clock, which all gateways share, passes exp
	if err := claims.validate(client.ID, audiences, now); err != nil {
		return nil, err
	}
	return client, a.consumeAssertion(r.Context(), claims, now)
}

// findAssertionClient returns the claims of an assertion and the claimed client. It does not verify the signature.
func (a *Authenticator) findAssertionClient(ctx context.Context, raw string) (*Client, *assertionClaims, error) {
	header, claims, err := decodeAssertion(raw)
	if err != nil {
		return nil, nil, err
	}
	client, err := a.Clients.findWithPending(ctx, claims.Subject)
	switch {
	case err != nil:
		return nil, nil, err
	case client == nil || client.Keys == nil || client.RequestObjects.KeysOnly:
		return nil, nil, invalidAssertion("no client with this sub has registered keys")
	case !slices.Contains(AssertionAlgorithms, header.Algorithm):
		return nil, nil, invalidAssertion("alg is not listed in token_endpoint_auth_signing_alg_values_supported")
	case client.AssertionAlgorithm != "" && header.Algorithm != jose.SignatureAlgorithm(client.AssertionAlgorithm):
		return nil, nil, invalidAssertion("alg does not match the client's token_endpoint_auth_signing_alg")
	case header.Type != "" && !strings.EqualFold(header.Type, "JWT"):
		return nil, nil, invalidAssertion("typ must be JWT")
	case header.KeySet != "" && header.KeySet != client.JWKSURI:
		return nil, nil, invalidAssertion("jku does not match the client's registered jwks_uri")
	}
	return client, claims, nil
}

// consumeAssertion marks the jti of an assertion as used and rejects it if it was already used (RFC 7523 §3), across restarts
// and gateways. If the request fails with a server error, the client can send the assertion again.
func (a *Authenticator) consumeAssertion(ctx context.Context, c *assertionClaims, now time.Time) error {
	key, mark := store.Key("assertion", c.Subject+"\x00"+c.ID), oauth2.RandomBytes(8)
	err := a.DurableStore.Add(ctx, key, mark, c.Expiry.Time().Sub(now)+assertionLeeway)
	switch {
	case errors.Is(err, store.ErrExists):
		return invalidAssertion("jti has already been used")
	case err == nil, errors.Is(err, store.ErrUnavailable): // if the store is unavailable, the mark may have been stored nevertheless
		audit.FromContext(ctx).Release = func(ctx context.Context) {
			if err := a.releaseAssertion(context.WithoutCancel(ctx), key, mark); err != nil {
				a.Logger.ErrorContext(ctx, "failed to release client assertion after a failed request", "error", err)
			}
		}
	}
	return err
}

// releaseAssertion makes an assertion usable again if it was marked as used with this mark.
func (a *Authenticator) releaseAssertion(ctx context.Context, key string, mark []byte) error {
	stored, err := a.DurableStore.Get(ctx, key)
	if err == nil && bytes.Equal(stored, mark) {
		err = a.DurableStore.Delete(ctx, key)
	}
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}

// assertionType is the value of client_assertion_type (RFC 7523 §2.2).
const assertionType = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"

// AssertionAlgorithms lists the algorithms for client authentication: the two required by SMART App
// Launch 2.2, and other common ones.
var AssertionAlgorithms = []jose.SignatureAlgorithm{jose.RS384, jose.ES384, jose.RS256, jose.ES256, jose.PS256, jose.EdDSA}

const (
	maxAssertionLifetime = 5 * time.Minute  // SMART App Launch 2.2, Asymmetric Authentication
	assertionLeeway      = 30 * time.Second // permitted clock skew of clients
)

// assertionHeader omits the header parameters that contain or locate keys, because an attacker could choose them.
type assertionHeader struct {
	Algorithm jose.SignatureAlgorithm `json:"alg"`
	Type      string                  `json:"typ"`
	KeySet    string                  `json:"jku"`
}

// assertionClaims are the claims of an assertion (RFC 7523 §3).
type assertionClaims struct {
	Issuer    string           `json:"iss"`
	Subject   string           `json:"sub"`
	Audience  jwt.Audience     `json:"aud"`
	Expiry    *jwt.NumericDate `json:"exp"`
	NotBefore *jwt.NumericDate `json:"nbf"`
	IssuedAt  *jwt.NumericDate `json:"iat"`
	ID        string           `json:"jti"`
}

// PrivateKeyJWT is the client authentication method private_key_jwt (RFC 7523).
const PrivateKeyJWT = "private_key_jwt"

func invalidAssertion(description string) error {
	return oauth2.InvalidClient("client_assertion: " + description)
}

// DecodeJWTPart decodes a part of a JWT without verifying the signature.
func DecodeJWTPart(part string, to any) error {
	decoded, err := base64.RawURLEncoding.DecodeString(part)
	if err != nil {
		return err
	}
	return strictjson.Unmarshal(decoded, to)
}

// decodeAssertion decodes an assertion without verifying the signature.
func decodeAssertion(raw string) (*assertionHeader, *assertionClaims, error) {
	header, claims := new(assertionHeader), new(assertionClaims)
	parts := strings.Split(raw, ".")
	if len(parts) != 3 || DecodeJWTPart(parts[0], header) != nil || DecodeJWTPart(parts[1], claims) != nil {
		return nil, nil, invalidAssertion("assertion is not a JWT")
	}
	return header, claims, nil
}

// verifyAssertion verifies the signature of an assertion with a client's keys.
func verifyAssertion(ctx context.Context, keys *relyingparty.KeySet, raw string) error {
	_, err := keys.VerifySignature(ctx, raw)
	if err == nil {
		return nil
	}
	e := oauth2.InvalidClient("client_assertion: the client's keys could not be fetched from its jwks_uri")
	if errors.Is(err, relyingparty.ErrSignature) || errors.Is(err, relyingparty.ErrUnknownKey) {
		e.Description = "client_assertion: the signature does not match a registered key with this kid and alg"
	}
	e.Err = err
	return e
}

// validate validates the claims after the signature has been verified (RFC 7523 §3). It accepts exactly one audience, because
// any other recipient could replay the assertion at this server.
func (c *assertionClaims) validate(clientID string, audiences []string, now time.Time) error {
	isInFuture := func(d *jwt.NumericDate) bool { return d != nil && d.Time().After(now.Add(assertionLeeway)) }
	switch {
	case c.Issuer != clientID || c.Subject != clientID:
		return invalidAssertion("iss and sub must both be the client_id")
	case len(c.Audience) != 1 || !slices.Contains(audiences, c.Audience[0]):
		return invalidAssertion("aud must be a single value: the issuer, or the token endpoint URL unless the client requires the issuer")
	case c.Expiry == nil || !now.Before(c.Expiry.Time().Add(assertionLeeway)):
		return invalidAssertion("exp is missing or in the past")
	case c.Expiry.Time().After(now.Add(maxAssertionLifetime + assertionLeeway)):
		return invalidAssertion("exp must be at most five minutes in the future")
	case isInFuture(c.NotBefore) || isInFuture(c.IssuedAt):
		return invalidAssertion("nbf or iat is in the future")
	case c.ID == "":
		return invalidAssertion("jti is missing")
	}
	return nil
}

// NewKeys returns the client's public keys, or nil if it has none.
func (c *Client) NewKeys(logger *slog.Logger, transport http.RoundTripper) (*relyingparty.KeySet, error) {
	switch {
	case c.JWKSURI != "":
		return relyingparty.NewKeySet(relyingparty.KeySetConfig{Issuer: "client " + c.ID, URI: c.JWKSURI, Transport: transport, Strict: true, Logger: logger})
	case len(c.JWKS) > 0:
		return relyingparty.NewInlineKeySet(c.JWKS)
	}
	return nil, nil
}

// checkKeys returns an error for several authentication methods and for private keys.
func (c *Client) checkKeys() (err error) {
	secret, jwks, uri := c.Secret != "" || c.SecretSHA256 != nil && !c.RequestObjects.KeysOnly, len(c.JWKS) > 0, c.JWKSURI != ""
	switch {
	case secret && jwks, secret && uri, jwks && uri:
		return errors.New("secret, jwks and jwks_uri are mutually exclusive: configure one")
	case ContainsPrivateKey(c.JWKS):
		return errors.New("jwks contains a private key: register only the public key, and generate a new key pair")
	}
	if c.AssertionAlgorithm != "" && !slices.Contains(AssertionAlgorithms, jose.SignatureAlgorithm(c.AssertionAlgorithm)) {
		return fmt.Errorf("token_endpoint_auth_signing_alg %q is not one of %q", c.AssertionAlgorithm, AssertionAlgorithms)
	}
	if c.Keys == nil {
		c.Keys, err = c.NewKeys(nil, nil)
	}
	return err
}

// ContainsPrivateKey reports whether a JWK Set contains a private or symmetric key.
func ContainsPrivateKey(jwks []byte) bool {
	var set struct {
		Keys []struct {
			Private   any `json:"d"`
			Symmetric any `json:"k"`
		} `json:"keys"`
	}
	_ = json.Unmarshal(jwks, &set) // NewKeys returns an error for invalid JWK Sets
	for _, key := range set.Keys {
		if key.Private != nil || key.Symmetric != nil {
			return true
		}
	}
	return false
}

const (
	minEntropyBits   = 128 // minimum entropy in bits (RFC 6749 §10.10)
	minDistinctChars = 8   // minimum number of distinct characters; random secrets usually contain more
)

// SecretCommand is the shell command that generates a 256-bit secret, for error messages.
const SecretCommand = "openssl rand -hex 32"

// IsGuessable reports whether a secret has too little entropy. It assumes random characters. Therefore it detects short
// secrets, but not natural language.
func IsGuessable(secret string) bool {
	secret = separatorRemover.Replace(secret)
	seen := map[rune]bool{}
	for _, c := range secret {
		seen[c] = true
	}
	return len(seen) < minDistinctChars || float64(utf8.RuneCountInString(secret))*math.Log2(estimateAlphabetSize(secret)) < minEntropyBits
}

// separatorRemover removes the separators between groups of random characters, e.g. in a UUID.
var separatorRemover = strings.NewReplacer("-", "", "_", "", ".", "", " ", "")

// estimateAlphabetSize returns the estimated number of characters in the alphabet of a secret.
func estimateAlphabetSize(secret string) (size float64) {
	letters := 26.0
	if !strings.ContainsFunc(secret, func(c rune) bool { return !strings.ContainsRune("0123456789abcdefABCDEF", c) }) {
		letters = 6 // letters among the hexadecimal digits
	}
	for _, kind := range []struct {
		has  func(rune) bool
		size float64
	}{{unicode.IsDigit, 10}, {unicode.IsLower, letters}, {unicode.IsUpper, letters}, {unicode.IsPunct, 20}, {unicode.IsSymbol, 8}} {
		if strings.ContainsFunc(secret, kind.has) {
			size += kind.size
		}
	}
	return size
}

// DigestSecret returns the SHA-256 of a random secret. Random secrets need neither a salt nor a slow hash.
func DigestSecret(secret string) []byte {
	sum := sha256.Sum256([]byte(secret))
	return sum[:]
}

// MatchesDigest compares a secret with a digest in constant time.
func MatchesDigest(digest []byte, secret string) bool {
	return subtle.ConstantTimeCompare(digest, DigestSecret(secret)) == 1
}
