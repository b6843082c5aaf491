package relyingparty

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// AssertionKey is the private key that signs the JWTs that replace the client secret, one for each request.
type AssertionKey struct {
	// The PEM file with the private key (PKCS #8): P-256 for ES256, or RSA for RS256. It is read for each request.
	// Required.
	File string `json:"file,omitempty"`

	// The key's ID at the provider, which becomes the JWT's `kid`. Required.
	KeyID string `json:"key_id,omitempty"`

	// The JWT's `iss`: for Apple, the team ID. Default: the client_id.
	Issuer string `json:"issuer,omitempty"`
}

// assertionLifetime is the lifetime of a JWT that authenticates the client in one request.
const assertionLifetime = 5 * time.Minute

// Check returns an error if the key cannot be read or is unsupported.
func (k *AssertionKey) Check() error {
	_, err := k.newSigner()
	return err
}

func (k *AssertionKey) newSigner() (jose.Signer, error) {
	text, err := os.ReadFile(k.File)
	if err != nil {
		return nil, fmt.Errorf("assertion_key: %w", err)
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("assertion_key: %s is not a PEM file", k.File)
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("assertion_key: %s is not a PKCS #8 private key: convert it with openssl pkcs8 -topk8 -nocrypt: %w", k.File, err)
	}
	algorithm, err := assertionAlgorithm(key)
	if err != nil {
		return nil, fmt.Errorf("assertion_key: %s: %w", k.File, err)
	}
	options := (&jose.SignerOptions{}).WithType("JWT").WithHeader("kid", k.KeyID)
	return jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: key}, options)
}

func assertionAlgorithm(key any) (jose.SignatureAlgorithm, error) {
	switch key := key.(type) {
	case *ecdsa.PrivateKey:
		if key.Curve == elliptic.P256() {
			return jose.ES256, nil
		}
	case *rsa.PrivateKey:
		return jose.RS256, nil
	}
	return "", errors.New("unsupported key: use P-256 or RSA")
}

// clientSecret returns the client secret for one request: the configured secret, or a new JWT.
func (c *Config) clientSecret() (string, error) {
	if c.AssertionKey == nil {
		return c.ClientSecret, nil
	}
	signer, err := c.AssertionKey.newSigner()
	if err != nil {
		return "", err
	}
	now := time.Now()
	return jwt.Signed(signer).Claims(jwt.Claims{
		Issuer: cmp.Or(c.AssertionKey.Issuer, c.ClientID), Subject: c.ClientID, Audience: jwt.Audience{c.Issuer},
		IssuedAt: jwt.NewNumericDate(now), Expiry: jwt.NewNumericDate(now.Add(assertionLifetime)),
	}).Serialize()
}
