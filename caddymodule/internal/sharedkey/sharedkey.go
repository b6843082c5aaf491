// Package sharedkey parses the options seal_key and store_key, which contain secrets that several gateways share.
package sharedkey

import (
	"fmt"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
)

// NewLinkKeys derives the keys that seal links from the secrets of seal_key.
func NewLinkKeys(secrets ...string) (keyring.SharedKeys, error) {
	return keyring.NewSharedKeys("links", secrets...)
}

// Resolve replaces the placeholders in the secrets of an option and derives the keys.
func Resolve(name string, secrets []string, newKeys func(...string) (keyring.SharedKeys, error)) (keyring.SharedKeys, error) {
	var resolved []string
	for _, secret := range secrets {
		secret, err := option.ResolveSecret(name, secret)
		if err != nil {
			return nil, err
		}
		resolved = append(resolved, secret)
	}
	keys, err := newKeys(resolved...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return keys, nil
}

// Words returns a setter that parses the secrets of an option. Syntax:
//
//	<name> <secret> [<previous...>]
func Words(name string, to *[]string) option.Setter {
	return option.Words(to, option.IfLiteral(func(secret string) error {
		if _, err := NewLinkKeys(secret); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return nil
	}))
}
