package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/go-jose/go-jose/v4"
)

// Users and clients that the deployment has in addition to those of Caddyfile.example.
const (
	people      = 240
	password    = "right"
	clientID    = "replicas-app"
	secret      = "7d0c1f7a7be0b6d0e5a6f1c2b3948576" // 128 bits, so that other clients' wrong secrets cause no lockout
	ehrID       = "replicas-ehr"
	keyedID     = "replicas-keyed"
	redirectURI = "https://app.example.org/callback" // no server listens at this address
	scope       = "openid offline_access user/*.rs"
)

// passwordHash is the bcrypt hash of the password with the lowest cost, so that bcrypt does not dominate the measurements.
const passwordHash = "$2a$04$3myc/AwjchU/ewsNB6qy1OJE8HZXIoy2Fg4RKTcP5Ys7efFvK9D6y"

// assertionKey signs the client assertions of the client keyedID.
var assertionKey = func() *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	return key
}()

// identities returns Caddyfile.example with another address, additional users, clients and options.
func identities(address, options string) (string, error) {
	text, err := os.ReadFile("../Caddyfile.example")
	if err != nil {
		return "", err
	}
	const before = "\t\tclient demo-service {\n"
	if strings.Count(string(text), before) != 1 {
		return "", fmt.Errorf("not one %q in Caddyfile.example", before)
	}
	more := options + clients()
	for i := range people {
		more += fmt.Sprintf("\t\tuser p%d {\n\t\t\tpassword_hash %s\n\t\t\tfhir_user Practitioner/p%d\n\t\t}\n", i, passwordHash, i)
	}
	caddyfile := strings.Replace(string(text), before, more+before, 1)
	return strings.ReplaceAll(caddyfile, "localhost:8443", address), nil
}

func clients() string {
	keys, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: &assertionKey.PublicKey, KeyID: "k", Algorithm: "ES256", Use: "sig"}}})
	if err != nil {
		panic(err)
	}
	return `		client ` + clientID + ` {
			secret ` + secret + `
			redirect_uri ` + redirectURI + `
			launch_uri https://app.example.org/launch
			scope offline_access launch user/*.rs patient/*.rs
			id_token_alg ES256
			introspect all
		}
		client ` + ehrID + ` {
			secret ` + secret + `
			launch_context
		}
		client ` + keyedID + ` {
			jwks ` + "`" + string(keys) + "`" + `
			grant_type client_credentials
			scope system/*.rs
		}
`
}
