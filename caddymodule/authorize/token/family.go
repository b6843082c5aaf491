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

// A refresh token is 48 bytes in base64url: the id of its family, a secret, and
// a tag by which the family knows all tokens that it ever had without keeping
// any of them. Only the SHA-256 of the current one is stored.
const refreshTokenSize = 3 * revocation.IDSize

// refreshFamily is the form of a chain of refresh tokens in the [store.Store]: each
// token is used once and followed by the next (RFC 9700 §4.14.2).
type refreshFamily struct {
	// Grant is what the person granted. Narrowing the scope of one refresh
	// does not change it (RFC 6749 §6).
	Grant *Grant `json:"grant"`

	// Current is the SHA-256 of the one token that can be used.
	Current []byte `json:"current"`

	// Key makes the tags. Who reads the store can make tokens with it that end
	// the family, and none that is worth anything.
	Key []byte `json:"key"`

	// Salt makes, of the token before it, the current one: so the client that
	// did not get the answer is given the same once more, and nobody without
	// the token before can tell it from what is stored.
	Salt []byte `json:"salt"`

	IssuedAt time.Time `json:"issued_at"` // of the current token
	Expiry   time.Time `json:"expiry"`    // of the whole family
}

// The ways to stand to a family.
type tokenState int

const (
	unknownToken tokenState = iota // never one of its tokens
	reusedToken                    // was one, and was followed by another
	retriedToken                   // was the current one a moment ago
	currentToken
)

// state says how a token stands to the family; lately, whether the current token is
// so new that who has the one before may not have got it.
func (f *refreshFamily) state(token string, lately bool) tokenState {
	raw := refreshTokenBytes(token)
	switch {
	case raw == nil:
		return unknownToken
	case f.isCurrent(token):
		return currentToken
	case subtle.ConstantTimeCompare(f.tag(raw[:2*revocation.IDSize]), raw[2*revocation.IDSize:]) != 1:
		return unknownToken
	case lately && f.isCurrent(f.successor(token)):
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

// rotate makes the token that follows one.
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
	id, _ := base64.RawURLEncoding.DecodeString(f.Grant.Family) // made by randomID
	body := append(id, secret...)
	return base64.RawURLEncoding.EncodeToString(append(body, f.tag(body)...))
}

func (f *refreshFamily) tag(body []byte) []byte { return mac(f.Key, body) }

// mac is HMAC-SHA256, cut to 128 bits.
func mac(key, message []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write(message)
	return h.Sum(nil)[:revocation.IDSize]
}

// familyID is the id of the family that a refresh token names, or "" where the
// text has not the form of one.
func familyID(token string) string {
	raw := refreshTokenBytes(token)
	if raw == nil {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(raw[:revocation.IDSize])
}

// refreshTokenBytes decodes a text that has the form of a refresh token, or nil.
// The length is that of the text too: encoding/base64 passes over line ends, and
// a token must not be one that somebody wrote otherwise.
func refreshTokenBytes(token string) []byte {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(raw) != refreshTokenSize || len(token) != base64.RawURLEncoding.EncodedLen(refreshTokenSize) {
		return nil
	}
	return raw
}

func familyKey(id string) string { return "refresh:" + id }

// expires is when the family ends if it is not used again.
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
