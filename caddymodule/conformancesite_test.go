package caddymodule

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"
)

// conformanceSite is the gateway that all modules run against, and what is
// registered at it.
type conformanceSite struct {
	gateway *gateway
	logouts chan string // logout tokens, as they reach the first client
}

// The clients of the site.
var (
	firstClient = partyClient{
		id: "first", secret: "first secret/+%", method: "client_secret_basic",
		redirectURI: "https://rp.example/callback",
	}
	secondClient = partyClient{
		id: "second", secret: "second-secret", method: "client_secret_basic",
		redirectURI: "https://rp.example/callback?dummy1=lorem&dummy2=ipsum",
	}
	infernoPublic    = partyClient{id: "inferno-public", method: "none", redirectURI: "https://inferno.example/custom/smart/redirect"}
	infernoSymmetric = partyClient{
		id: "inferno-symmetric", secret: "inferno-secret", method: "client_secret_basic",
		redirectURI: infernoPublic.redirectURI,
	}
	infernoRS384 = partyClient{id: "inferno-rs384", method: "private_key_jwt", redirectURI: infernoPublic.redirectURI}
	infernoES384 = partyClient{id: "inferno-es384", method: "private_key_jwt", redirectURI: infernoPublic.redirectURI}
)

const conformanceCaddyfile = `{
	admin off
	skip_install_trust
	auto_https disable_redirects
	fhir {
		issuer https://localhost:8443
		authorize_post
		durable_store memory
		registration {
			initial_access_token sesame
			scope offline_access
		}
		user alice {
			password_hash $2a$04$HASH
			name "Alice Adams"
			email alice@example.org verified
			phone +15550100
			fhir_user Practitioner/alice
			claim family_name Adams
			claim given_name Alice
			claim middle_name B
			claim nickname al
			claim profile https://people.example/alice
			claim picture https://people.example/alice.png
			claim website https://alice.example/
			claim gender female
			claim birthdate 1970-01-31
			claim zoneinfo Europe/Berlin
			claim locale en-GB
			claim updated_at 1700000000
			claim phone_number_verified true
			claim address.formatted "1 Main St"
			claim address.locality Springfield
		}
		client first {
			name First
			secret "first secret/+%"
			redirect_uri https://rp.example/callback
			post_logout_redirect_uri https://rp.example/bye
			backchannel_logout_uri BACKCHANNEL
			response_type code id_token "id_token token"
			scope address offline_access
		}
		client second {
			secret second-secret
			redirect_uri https://rp.example/callback?dummy1=lorem&dummy2=ipsum
			response_type code id_token "id_token token"
			scope address offline_access
		}
		client inferno-public {
			redirect_uri https://inferno.example/custom/smart/redirect
			scope launch/patient fhirUser offline_access patient/*.rs user/*.rs
		}
		client inferno-symmetric {
			secret inferno-secret
			redirect_uri https://inferno.example/custom/smart/redirect
			scope launch/patient fhirUser offline_access patient/*.rs user/*.rs
		}
		client inferno-rs384 {
			redirect_uri https://inferno.example/custom/smart/redirect
			grant_type client_credentials
			response_type code
			scope launch/patient fhirUser offline_access patient/*.rs user/*.rs system/*.rs
			jwks RS384
		}
		client inferno-es384 {
			redirect_uri https://inferno.example/custom/smart/redirect
			grant_type client_credentials
			response_type code
			scope launch/patient fhirUser offline_access patient/*.rs user/*.rs system/*.rs
			jwks ES384
		}
		client resource-server {
			secret resource-secret
			grant_type client_credentials
			scope system/*.rs
			introspect all
		}
	}
}

https://localhost:8443 {
	fhir_authorize
	@fhir path /fhir/R4 /fhir/R4/*
	handle @fhir {
		fhir_bearer
		reverse_proxy BACKEND
	}
	handle_errors {
		fhir_outcome
	}
}
`

func newConformanceSite(t *testing.T) *conformanceSite {
	t.Helper()
	s := &conformanceSite{logouts: make(chan string, 1000)}
	party := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { s.logouts <- r.PostFormValue("logout_token") }))
	t.Cleanup(party.Close)
	backend := httptest.NewServer(http.HandlerFunc(conformanceBackend))
	t.Cleanup(backend.Close)
	for _, c := range []*partyClient{&infernoRS384, &infernoES384} {
		c.key = conformanceKey(t, strings.ToUpper(strings.TrimPrefix(c.id, "inferno-")))
	}
	s.gateway = newGateway(t, strings.NewReplacer(
		"$2a$04$HASH", conformanceHash,
		"BACKCHANNEL", strings.Replace(party.URL, "127.0.0.1", "localhost", 1)+"/logout",
		"BACKEND", strings.TrimPrefix(backend.URL, "http://"),
		"jwks RS384", "jwks "+publicKeyFile(t, infernoRS384.key),
		"jwks ES384", "jwks "+publicKeyFile(t, infernoES384.key),
	).Replace(conformanceCaddyfile))
	partyAt(t, s.gateway, firstClient).flow(nil) // makes the keys, under a lock that no bubble may wait for
	return s
}

// conformanceHash is of the password "right", with as little work as bcrypt has.
const conformanceHash = "$2a$04$3myc/AwjchU/ewsNB6qy1OJE8HZXIoy2Fg4RKTcP5Ys7efFvK9D6y"

// conformanceBackend is a FHIR server with one practitioner.
func conformanceBackend(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/fhir+json")
	switch r.URL.Path {
	case "/fhir/R4/metadata":
		fmt.Fprint(w, `{"resourceType":"CapabilityStatement","status":"active","kind":"instance","fhirVersion":"4.0.1","format":["json"]}`)
	case "/fhir/R4/Practitioner/alice":
		fmt.Fprint(w, `{"resourceType":"Practitioner","id":"alice"}`)
	default:
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"resourceType":"OperationOutcome","issue":[{"severity":"error","code":"not-found"}]}`)
	}
}

func conformanceKey(t testing.TB, algorithm string) *jose.JSONWebKey {
	t.Helper()
	var private any
	var err error
	if algorithm == string(jose.RS384) {
		private, err = rsa.GenerateKey(rand.Reader, 2048)
	} else {
		private, err = ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	}
	if err != nil {
		t.Fatal(err)
	}
	return &jose.JSONWebKey{Key: private, KeyID: algorithm, Algorithm: algorithm, Use: "sig"}
}

func publicKeyFile(t *testing.T, key *jose.JSONWebKey) string {
	t.Helper()
	set, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{key.Public()}})
	if err != nil {
		t.Fatal(err)
	}
	return writeFile(t, "jwks.json", string(set))
}

func unguessable() string { return rand.Text() }

// party is a client in a new browser: the first unless the plan has another.
func (s *conformanceSite) party(t *testing.T, party conformanceParty) *relyingParty {
	p := partyAt(t, s.gateway, firstClient)
	p.logouts = s.logouts
	party.become(p)
	return p
}
