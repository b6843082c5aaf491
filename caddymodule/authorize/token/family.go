package token

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/revocation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// A refresh token is 48 bytes in base64url: the id of its family, a secret, and a tag by
// which the family recognizes every token that it ever had. Only the SHA-256 of the current
// token is stored.
const refreshTokenSize = 3 * revocation.IDSize

// refreshFamily is a chain of refresh tokens as stored in a [store.Store]. Each token is
// used once and replaced by the next (RFC 9700 §4.14.2).
type refreshFamily struct {
	Grant   *Grant `json:"grant"`   // narrowed by no single request (RFC 6749 §6)
	Current []byte `json:"current"` // the SHA-256 of the current token

	// Key makes the tags. With it a reader of the store can forge tokens that end the
	// family, but none that yield anything.
	Key []byte `json:"key"`

	// Salt derives the current token from the one before, for clients that missed a
	// response. The store alone does not reveal the token.
	Salt []byte `json:"salt"`

	IssuedAt time.Time `json:"issued_at"` // of the current token
	Expiry   time.Time `json:"expiry"`    // of the whole family
}

type tokenState int

const (
	unknownToken tokenState = iota // never one of its tokens
	reusedToken                    // replaced already
	retriedToken                   // replaced within the grace period
	currentToken
)

// state returns what a token is to the family. Within the grace period the client may not
// have received the current token, and may use the one before.
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

// familyID returns the family's id, or "" if the text does not look like a refresh token.
func familyID(token string) string {
	raw := refreshTokenBytes(token)
	if raw == nil {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(raw[:revocation.IDSize])
}

// refreshTokenBytes decodes a refresh token, or returns nil if the text does not look like
// one. It also checks the text's length: encoding/base64 skips line breaks, and a token must
// have one form only.
func refreshTokenBytes(token string) []byte {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(raw) != refreshTokenSize || len(token) != base64.RawURLEncoding.EncodedLen(refreshTokenSize) {
		return nil
	}
	return raw
}

// familyIDSize is the length of a family's id in base64url.
const familyIDSize = (revocation.IDSize*8 + 5) / 6

func familyKey(id string) string { return "refresh:" + id }

func familyKeys(ids []string) (keys []string) {
	for _, id := range ids {
		keys = append(keys, familyKey(id))
	}
	return keys
}

// expires returns when the family ends unless it is used again.
func (f *refreshFamily) expires(idle time.Duration) time.Time {
	if idleEnd := f.IssuedAt.Add(idle); idleEnd.Before(f.Expiry) {
		return idleEnd
	}
	return f.Expiry
}
