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
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
)

const conformanceDocument = "../docs/conformance.md"

// conformanceModule is our port of one test module of a plan, under its id.
type conformanceModule struct {
	id     string
	checks string // in a few words

	// result is what stands in the document where the test passes. Default: pass.
	result string

	// run is the test; nil where the module does not apply or what it needs is not
	// built, and result says why.
	run func(*relyingParty)

	// waits modules let time pass, and so run in a bubble of synctest.
	waits bool
}

// conformancePlan is a list of modules that run with one kind of client.
type conformancePlan struct {
	name, text string
	party      func(*relyingParty) // makes the client what the plan asks for
	modules    []conformanceModule
}

// TestConformance runs our ports of the modules by which the OpenID Foundation's
// suite and Inferno test servers, through a whole gateway, and compares what comes
// of it with docs/conformance.md; -update writes that.
func TestConformance(t *testing.T) {
	site := newConformanceSite(t)
	var document strings.Builder
	document.WriteString(conformanceHead)
	complete := true
	for _, plan := range conformancePlans() {
		fmt.Fprintf(&document, "\n## %s\n\n%s\n\n| id | what it checks | result |\n|---|---|---|\n", plan.name, plan.text)
		t.Run(plan.name, func(t *testing.T) {
			for _, m := range plan.modules {
				result, ran := site.run(t, plan, m)
				complete = complete && ran
				fmt.Fprintf(&document, "| `%s` | %s | %s |\n", m.id, m.checks, result)
			}
		})
	}
	if t.Failed() || !complete { // or only some were asked for by -run
		return
	}
	if *update {
		if err := os.WriteFile(conformanceDocument, []byte(document.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(conformanceDocument)
	if err != nil || string(text) != document.String() {
		t.Errorf("docs/conformance.md is not what the tests say (%v): run go test ./caddymodule -run TestConformance -update", err)
	}
}

const conformanceHead = `# Conformance

What our own ports of public test modules say of this server. Each has the id of the module that it does over: of the
OpenID Foundation's conformance suite, of Inferno's SMART App Launch test kit, and of the (g)(10) test kit. They check
what the modules check, through a whole gateway made from a Caddyfile.

These are our ports. **They are no certification**, nobody but us has run them, and they are no substitute for the
suites themselves. *pass*: the port passes. *skipped*: the server refuses what it does not do, with the right error,
and the module then ends as skipped. *not applicable*, *not built*: nothing was tested.

This page is written by ` + "`go test ./caddymodule -run TestConformance -update`" + `; a run without ` + "`-update`" + ` fails where it is not true.
`

func (s *conformanceSite) run(t *testing.T, plan conformancePlan, m conformanceModule) (result string, ran bool) {
	result = m.result
	if result == "" {
		result = "pass"
	}
	if m.run == nil {
		if m.result == "" {
			t.Errorf("%s has neither a test nor a reason", m.id)
		}
		return result, true
	}
	t.Run(m.id, func(t *testing.T) {
		ran = true
		if !m.waits {
			m.run(s.party(t, plan))
			return
		}
		now := time.Now()
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(time.Until(now)) // the bubble begins in the past, and the gateway was made outside
			m.run(s.party(t, plan))
		})
	})
	return result, ran
}

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

// party is the first client in a new browser, changed as the plan has it.
func (s *conformanceSite) party(t *testing.T, plan conformancePlan) *relyingParty {
	p := partyAt(t, s.gateway, firstClient)
	p.logouts = s.logouts
	if plan.party != nil {
		plan.party(p)
	}
	return p
}
