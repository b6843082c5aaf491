package roster

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/features/roster/entry"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/fhirapp"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
)

// resolve adds a client or user of the store. Placeholders are not replaced: administrators who may add users need not be able to
// read this machine's files.
func resolve(to *authorize.Config, kind entry.Kind, e entry.Entry) error {
	switch kind {
	case entry.Clients:
		client, err := storedClient(e)
		to.Clients = append(to.Clients, client)
		return err
	case entry.Users:
		user, err := storedUser(e)
		to.Users = append(to.Users, user)
		return err
	}
	return fmt.Errorf("entries of kind %q are not known", kind)
}

func storedClient(e entry.Entry) (client.Client, error) {
	var c fhirapp.Client
	if err := unmarshalEntry(e.Config, &c); err != nil {
		return client.Client{}, err
	}
	switch {
	case c.Secret != "":
		return client.Client{}, errors.New("secret: the server makes the secrets of clients in the store; ask for one")
	case c.TLS != option.TLS{}:
		return client.Client{}, errors.New("ca, client_certificate, client_key: files of this machine are for clients in the Caddyfile")
	}
	stored, err := c.Literal()
	if err != nil {
		return client.Client{}, err
	}
	stored.SecretSHA256, stored.Generation = e.SecretSHA256, e.Generation
	return stored, nil
}

func storedUser(e entry.Entry) (people.User, error) {
	var u fhirapp.User
	if err := unmarshalEntry(e.Config, &u); err != nil {
		return people.User{}, err
	}
	if u.TOTPSecret != "" {
		return people.User{}, errors.New("totp_secret: people in the store set up their second factors themselves")
	}
	if err := fhirapp.CheckPasswordHash(u.PasswordHash); err != nil {
		return people.User{}, err
	}
	user := u.WithSecrets(u.PasswordHash, "")
	user.Generation = e.Generation
	return user, nil
}

// unmarshalEntry rejects unknown members: a mistyped option must not be ignored silently.
func unmarshalEntry(config json.RawMessage, to any) error {
	decoder := json.NewDecoder(bytes.NewReader(config))
	decoder.DisallowUnknownFields()
	return decoder.Decode(to)
}

// nameOf returns the name of an entry from its configuration.
func nameOf(kind entry.Kind, config []byte) (string, error) {
	var named struct {
		ID   string `json:"id"`
		Name string `json:"name"`
	}
	if err := json.Unmarshal(config, &named); err != nil {
		return "", errors.New("it must be an object of JSON, whose id or name is a string")
	}
	if kind == entry.Clients {
		named.Name = named.ID
	}
	if named.Name == "" {
		return "", errors.New("a client needs an id, and a person a name")
	}
	return named.Name, nil
}

// newSecret makes a client's secret.
func newSecret() (secret string, digest []byte) {
	secret = oauth2.RandomToken()
	sum := sha256.Sum256([]byte(secret))
	return secret, sum[:]
}
