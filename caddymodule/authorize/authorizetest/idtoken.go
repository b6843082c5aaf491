package authorizetest

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// IDToken is an ID token before it is signed.
type IDToken struct {
	// Algorithm is the alg header. With "none" there is no signature.
	Algorithm jose.SignatureAlgorithm
	// Type is the typ header. Empty: JWT.
	Type jose.ContentType
	// KeyID is the kid header. Empty: none.
	KeyID string
	// Key signs: a private key, or the bytes of a secret.
	Key any
	// Claims are the payload.
	Claims map[string]any
}

// idToken makes the ID token of a grant (OpenID Connect Core §2).
func (p *Provider) idToken(s Settings, g grant, access string) string {
	now := time.Now()
	sum := sha256.Sum256([]byte(access))
	claims := maps.Clone(g.person.Claims)
	if claims == nil {
		claims = map[string]any{}
	}
	maps.Copy(claims, map[string]any{
		"iss": p.Issuer, "sub": g.person.Subject, "aud": s.ClientID,
		"iat": now.Unix(), "exp": now.Add(time.Hour).Unix(), "auth_time": now.Unix(),
		"nonce": g.nonce, "at_hash": base64.RawURLEncoding.EncodeToString(sum[:len(sum)/2]),
	})
	token := &IDToken{Algorithm: jose.RS256, KeyID: s.KeyID, Key: signingKey(), Claims: claims}
	if s.IDToken != nil {
		s.IDToken(token)
	}
	return token.sign()
}

// LogoutToken is what the provider says by the back channel when Alice signs out
// there (OpenID Connect Back-Channel Logout 1.0 §2.4), with each change made before
// it is signed.
func (p *Provider) LogoutToken(changes ...func(*IDToken)) string {
	p.mu.Lock()
	s := p.settings
	p.mu.Unlock()
	now := time.Now()
	token := &IDToken{Algorithm: jose.RS256, Type: "logout+jwt", KeyID: s.KeyID, Key: signingKey(), Claims: map[string]any{
		"iss": p.Issuer, "sub": Alice.Subject, "aud": s.ClientID, "iat": now.Unix(), "exp": now.Add(2 * time.Minute).Unix(), "jti": rand.Text(),
		"events": map[string]any{"http://schemas.openid.net/event/backchannel-logout": map[string]any{}},
	}}
	for _, change := range changes {
		change(token)
	}
	return token.sign()
}

// sign makes the compact form. It panics where that cannot be: the test is
// wrong then.
func (t *IDToken) sign() string {
	payload, err := json.Marshal(t.Claims)
	if err != nil {
		panic(err)
	}
	if t.Algorithm == "none" {
		encode := base64.RawURLEncoding.EncodeToString
		return encode([]byte(`{"alg":"none","typ":"JWT"}`)) + "." + encode(payload) + "."
	}
	options := (&jose.SignerOptions{}).WithType(cmp.Or(t.Type, "JWT"))
	if t.KeyID != "" {
		options.WithHeader("kid", t.KeyID)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: t.Algorithm, Key: t.Key}, options)
	if err != nil {
		panic(err)
	}
	jws, err := signer.Sign(payload)
	if err != nil {
		panic(err)
	}
	compact, err := jws.CompactSerialize()
	if err != nil {
		panic(err)
	}
	return compact
}
