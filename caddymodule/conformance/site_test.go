package conformance

import (
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/josetest"
)

// site is the gateway that all modules run against.
type site struct {
	gateway *gatewaytest.Gateway
	logouts chan string // logout tokens, as they reach the first client, and those that registered
	server  *partyServer
}

// The clients of the site.
var (
	firstClient = oauthClient{
		id: "first", secret: "first secret/+%", method: "client_secret_basic",
		redirectURI: "https://rp.example/callback",
	}
	secondClient = oauthClient{
		id: "second", secret: "second-secret", method: "client_secret_basic",
		redirectURI: "https://rp.example/callback?dummy1=lorem&dummy2=ipsum",
	}
	infernoPublic    = oauthClient{id: "inferno-public", method: "none", redirectURI: "https://inferno.example/custom/smart/redirect"}
	infernoSymmetric = oauthClient{
		id: "inferno-symmetric", secret: "inferno-secret", method: "client_secret_basic",
		redirectURI: infernoPublic.redirectURI,
	}
	infernoRS384 = oauthClient{id: "inferno-rs384", method: "private_key_jwt", redirectURI: infernoPublic.redirectURI}
	infernoES384 = oauthClient{id: "inferno-es384", method: "private_key_jwt", redirectURI: infernoPublic.redirectURI}
)

const siteCaddyfile = `{
	admin off
	skip_install_trust
	auto_https disable_redirects
	fhir {
		issuer https://localhost:8443
		fhir_base /fhir
		authorize_post
		store memory
		registration {
			initial_access_token sesame
			scope address offline_access
			pkce optional
			request_objects
			private_jwks_uri
		}
		user_access_brands BRANDS
		user alice {
			password_hash $2a$04$HASH
			name "Alice Adams"
			email alice@example.org verified
			phone +15550100
			fhir_user Practitioner/inferno-alice
			patient inferno-ada
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
			launch_uri https://inferno.example/custom/smart/launch
			scope launch launch/patient fhirUser offline_access patient/*.rs user/*.rs
		}
		client inferno-symmetric {
			secret inferno-secret
			redirect_uri https://inferno.example/custom/smart/redirect
			launch_uri https://inferno.example/custom/smart/launch
			scope launch launch/patient fhirUser offline_access patient/*.rs user/*.rs
		}
		client inferno-rs384 {
			redirect_uri https://inferno.example/custom/smart/redirect
			launch_uri https://inferno.example/custom/smart/launch
			grant_type client_credentials
			response_type code
			scope launch launch/patient fhirUser offline_access patient/*.rs user/*.rs system/*.rs
			jwks RS384
		}
		client inferno-es384 {
			redirect_uri https://inferno.example/custom/smart/redirect
			launch_uri https://inferno.example/custom/smart/launch
			grant_type client_credentials
			response_type code
			scope launch launch/patient fhirUser offline_access patient/*.rs user/*.rs system/*.rs
			jwks ES384
		}
		client ehr {
			secret ehr-secret
			grant_type client_credentials
			scope system/*.rs
			launch_context
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
	@fhir path /fhir /fhir/*
	handle @fhir {
		fhir_bearer
		reverse_proxy BACKEND
	}
	handle /ehr-style.json {
		header Content-Type application/json
		respond "{\"color_background\":\"#edeae3\",\"color_highlight\":\"#69b5ce\"}"
	}
	handle_errors {
		fhir_outcome
	}
}
`

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{logouts: make(chan string, 1000)}
	party := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { s.logouts <- r.PostFormValue("logout_token") }))
	t.Cleanup(party.Close)
	s.server = newPartyServer(s.logouts)
	t.Cleanup(s.server.Close)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.server.Certificate().Raw})
	t.Setenv("SSL_CERT_FILE", gatewaytest.WriteFile(t, "authority.pem", string(authority))) // for the binary
	for _, c := range []*oauthClient{&infernoRS384, &infernoES384} {
		c.key = newKey(strings.ToUpper(strings.TrimPrefix(c.id, "inferno-")))
	}
	s.gateway = newGateway(t, strings.NewReplacer(
		"$2a$04$HASH", passwordHash,
		"BACKCHANNEL", strings.Replace(party.URL, "127.0.0.1", "localhost", 1)+"/logout",
		"BACKEND", fhirServer(t),
		"BRANDS", gatewaytest.WriteFile(t, "brands.json", strings.ReplaceAll(gatewaytest.ReadFile(t, "../../docs/examples/user-access-brands.json"), "https://fhir.example.org/fhir/R4", issuer+"/fhir")),
		"jwks RS384", "jwks "+publicKeyFile(t, infernoRS384.key),
		"jwks ES384", "jwks "+publicKeyFile(t, infernoES384.key),
	).Replace(siteCaddyfile))
	newRelyingParty(t, s.gateway, firstClient).flow(nil) // makes the keys, under a lock that no bubble may wait for
	return s
}

// passwordHash is bcrypt's of the password "right", at its lowest cost.
const passwordHash = "$2a$04$3myc/AwjchU/ewsNB6qy1OJE8HZXIoy2Fg4RKTcP5Ys7efFvK9D6y"

func newKey(algorithm string) *jose.JSONWebKey {
	var private any = josetest.NewEC(elliptic.P384())
	if algorithm == string(jose.RS384) {
		private = josetest.NewRSA()
	}
	return &jose.JSONWebKey{Key: private, KeyID: algorithm, Algorithm: algorithm, Use: "sig"}
}

func publicKeyFile(t *testing.T, key *jose.JSONWebKey) string {
	t.Helper()
	set, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{key.Public()}})
	if err != nil {
		t.Fatal(err)
	}
	return gatewaytest.WriteFile(t, "jwks.json", string(set))
}

func unguessable() string { return rand.Text() }

// party is the relying party of a variant, in a new browser.
func (s *site) party(t *testing.T, v variant) *relyingParty {
	p := newRelyingParty(t, s.gateway, firstClient)
	p.logouts, p.server = s.logouts, s.server
	v.become(p)
	return p
}
