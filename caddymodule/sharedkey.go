package caddymodule

import (
	"fmt"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
)

func newSealKeys(secrets ...string) (keyring.SharedKeys, error) {
	return keyring.NewSharedKeys("links", secrets...)
}

// sharedKeys makes the keys of an option, with its placeholders replaced.
func sharedKeys(option string, configured []string, newKeys func(...string) (keyring.SharedKeys, error)) (keyring.SharedKeys, error) {
	var secrets []string
	for _, key := range configured {
		secret, err := resolveSecret(option, key)
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

// checkSharedKey checks a key of an option.
func checkSharedKey(option string) func(string) error {
	return func(secret string) error {
		if _, err := newSealKeys(secret); err != nil {
			return fmt.Errorf("%s %w", option, err)
		}
		return nil
	}
}
