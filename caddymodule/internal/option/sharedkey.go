package option

import (
	"fmt"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
)

// NewSealKeys makes the keys that seal links.
func NewSealKeys(secrets ...string) (keyring.SharedKeys, error) {
	return keyring.NewSharedKeys("links", secrets...)
}

// SharedKeys makes the keys of an option, with its placeholders replaced.
func SharedKeys(option string, configured []string, newKeys func(...string) (keyring.SharedKeys, error)) (keyring.SharedKeys, error) {
	var secrets []string
	for _, key := range configured {
		secret, err := ResolveSecret(option, key)
		if err != nil {
			return nil, err
		}
		secrets = append(secrets, secret)
	}
	keys, err := newKeys(secrets...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", option, err)
	}
	return keys, nil
}

// CheckSharedKey checks a key of an option.
func CheckSharedKey(option string) func(string) error {
	return func(secret string) error {
		if _, err := NewSealKeys(secret); err != nil {
			return fmt.Errorf("%s %w", option, err)
		}
		return nil
	}
}
