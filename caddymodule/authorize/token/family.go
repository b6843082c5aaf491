package token

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/revocation"
)

// A refresh token is 48 bytes in base64url: the id of its family, a secret, and a
// tag by which the family recognizes all tokens it ever had without storing them.
// Only the SHA-256 of the current token is stored.
const refreshTokenSize = 3 * revocation.IDSize

// refreshFamily is a chain of refresh tokens as stored in a [store.Store]. Each
// token is used once and replaced by the next (RFC 9700 §4.14.2).
type refreshFamily struct {
	// Grant is the whole grant: a narrower scope in one refresh request does not
	// change it (RFC 6749 §6).
	Grant *Grant `json:"grant"`

	// Current is the SHA-256 of the current token.
	Current []byte `json:"current"`

	// Key makes the tags. Tokens forged with it by a reader of the store can end the
	// family, but get nothing.
	Key []byte `json:"key"`

	// Salt derives the current token from the one before, so that a client that
	// missed a response can be given the same token again. The store alone does not
	// reveal it.
	Salt []byte `json:"salt"`

	IssuedAt time.Time `json:"issued_at"` // of the current token
	Expiry   time.Time `json:"expiry"`    // of the whole family
}

// tokenState is what a refresh token is to its family.
type tokenState int

const (
	unknownToken tokenState = iota // never one of its tokens
	reusedToken                    // replaced already
	retriedToken                   // replaced within the grace period
	currentToken
)

// state returns what a token is to the family. Within the grace period, the
// client may not have received the current token yet, and may use the one before.
func (f *refreshFamily) state(token string, inGrace bool) tokenState {
	raw := refreshTokenBytes(token)
	switch {
	case raw == nil:
		return unknownToken
	case f.isCurrent(token):
		return currentToken
	case subtle.ConstantTimeCompare(f.tag(raw[:2*revocation.IDSize]), raw[2*revocation.IDSize:]) != 1:
		return unknownToken
	case inGrace && f.isCurrent(f.successor(token)):
		return retriedToken
	}
	return reusedToken
}

func (f *refreshFamily) isCurrent(token string) bool {
	sum := sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(sum[:], f.Current) == 1
}

// first makes the family's first token.
func (f *refreshFamily) first(now time.Time) string {
	token := f.token(oauth2.RandomBytes(revocation.IDSize))
	f.setCurrent(token, now)
	return token
}

// rotate makes the token that replaces the current one.
func (f *refreshFamily) rotate(token string, now time.Time) string {
	f.Salt = oauth2.RandomBytes(sha256.Size)
	next := f.successor(token)
	f.setCurrent(next, now)
	return next
}

func (f *refreshFamily) setCurrent(token string, now time.Time) {
	sum := sha256.Sum256([]byte(token))
	f.Current, f.IssuedAt = sum[:], now
}

func (f *refreshFamily) successor(token string) string {
	return f.token(mac(f.Salt, []byte(token)))
}

func (f *refreshFamily) token(secret []byte) string {
	id, _ := base64.RawURLEncoding.DecodeString(f.Grant.Family) // made by RandomID
	body := append(id, secret...)
	return base64.RawURLEncoding.EncodeToString(append(body, f.tag(body)...))
}

func (f *refreshFamily) tag(body []byte) []byte { return mac(f.Key, body) }

// mac is HMAC-SHA256, truncated to 128 bits.
func mac(key, message []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write(message)
	return h.Sum(nil)[:revocation.IDSize]
}

// familyID returns the id of the family that a refresh token names, or "" if the
// text does not have the form of one.
func familyID(token string) string {
	raw := refreshTokenBytes(token)
	if raw == nil {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(raw[:revocation.IDSize])
}

// refreshTokenBytes decodes a text that has the form of a refresh token, or
// returns nil. It also checks the length of the text, because encoding/base64
// skips line breaks, and a token must have one form only.
func refreshTokenBytes(token string) []byte {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(raw) != refreshTokenSize || len(token) != base64.RawURLEncoding.EncodedLen(refreshTokenSize) {
		return nil
	}
	return raw
}

func familyKey(id string) string { return "refresh:" + id }

// expires returns when the family ends unless it is used again.
func (f *refreshFamily) expires(idle time.Duration) time.Time {
	if idleEnd := f.IssuedAt.Add(idle); idleEnd.Before(f.Expiry) {
		return idleEnd
	}
	return f.Expiry
}

func parseFamily(value []byte) (*refreshFamily, error) {
	f := new(refreshFamily)
	return f, json.Unmarshal(value, f)
}
