package conformance

import (
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/josetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/sample"
)

// site is the gateway under test.
type site struct {
	gateway *gatewaytest.Gateway
	logouts chan string // logout tokens received by the first client and by self-registered clients
	server  *partyServer
}

// Clients of the site.
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
	t.Setenv("SSL_CERT_FILE", gatewaytest.WriteFile(t, "authority.pem", string(authority))) // read by the binary
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
	newRelyingParty(t, s.gateway, firstClient).flow(nil) // creates the signing keys now, because a bubble cannot wait for their lock
	return s
}

// passwordHash is the bcrypt hash of the password "right" with the lowest cost.
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

func randomSecret() string { return rand.Text() }

// party returns the relying party of a variant, with a new browser.
func (s *site) party(t *testing.T, v variant) *relyingParty {
	p := newRelyingParty(t, s.gateway, firstClient)
	p.logouts, p.server = s.logouts, s.server
	v.become(p)
	return p
}

var (
	caddyBinary = flag.String("caddy", "", "run the modules against this binary, but for those that let time pass; default: a gateway in this process")
	storeFile   = flag.String("store", "", "with -caddy, run three gateways in place of one, each request by the next, with the store that this `file` configures")
)

// newGateway starts a gateway with the given Caddyfile, in this process or as a binary.
func newGateway(t *testing.T, caddyfile string) *gatewaytest.Gateway {
	t.Helper()
	if *caddyBinary == "" {
		return gatewaytest.New(t, caddyfile)
	}
	certificate, files := newCertificate(t)
	gateways := make([]http.Handler, 1)
	if *storeFile != "" {
		gateways, caddyfile = make([]http.Handler, 3), withStore(t, caddyfile)
	}
	for i := range gateways {
		address := freeAddress(t)
		at := strings.Replace(caddyfile, "\n"+issuer+" {", "\nhttps://"+address+" {\n\ttls "+files, 1)
		startBinary(t, gatewaytest.WriteFile(t, "Caddyfile", at))
		gateways[i] = proxyTo(address, certificate)
	}
	var requests atomic.Uint64
	inTurn := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		gateways[requests.Add(1)%uint64(len(gateways))].ServeHTTP(w, r)
		if len(gateways) > 1 && r.Method != http.MethodGet {
			time.Sleep(50 * time.Millisecond) // until revocations have reached the other gateways
		}
	})
	return &gatewaytest.Gateway{Server: inTurn, Cookies: map[string]string{}}
}

// withStore returns the Caddyfile with its store replaced by the one in the flag -store.
func withStore(t *testing.T, caddyfile string) string {
	t.Helper()
	const memory = "\t\tstore memory\n"
	directives, err := os.ReadFile(*storeFile)
	if err != nil || !strings.Contains(caddyfile, memory) {
		t.Fatalf("no store (%v), or no %q in the configuration", err, memory)
	}
	return strings.Replace(caddyfile, memory, string(directives), 1)
}

// newCertificate returns a certificate for localhost and the names of its certificate and key files. Caddy would create a
// certificate only after it reports readiness.
func newCertificate(t *testing.T) (certificate *x509.Certificate, files string) {
	t.Helper()
	key := josetest.NewEC(elliptic.P256())
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"localhost"}, NotAfter: time.Now().Add(time.Hour)}
	der, err1 := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	certificate, err2 := x509.ParseCertificate(der)
	private, err3 := x509.MarshalPKCS8PrivateKey(key)
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	file := func(kind string, der []byte) string {
		return gatewaytest.WriteFile(t, "localhost.pem", string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})))
	}
	return certificate, file("CERTIFICATE", der) + " " + file("PRIVATE KEY", private)
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return net.JoinHostPort("localhost", port)
}

// startBinary runs Caddy until the test ends. Caddy signals readiness by --pingback.
func startBinary(t *testing.T, caddyfile string) {
	t.Helper()
	folder := t.TempDir()
	ready, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer ready.Close()
	run := exec.Command(*caddyBinary, "run", "--config", caddyfile, "--adapter", "caddyfile", "--pingback", ready.Addr().String())
	run.Env = append(os.Environ(), "HOME="+folder, "XDG_DATA_HOME="+folder, "XDG_CONFIG_HOME="+folder)
	run.Stdin, run.Stdout, run.Stderr = strings.NewReader("ready"), t.Output(), t.Output()
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = run.Process.Kill()
		_ = run.Wait() // the outcome is in the output
	})
	if err := ready.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	called, err := ready.AcceptTCP()
	if err == nil {
		_, err = io.Copy(io.Discard, called)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// proxyTo returns a proxy to the gateway at the given address. It keeps the Host header, which is the issuer's.
func proxyTo(address string, certificate *x509.Certificate) http.Handler {
	roots := x509.NewCertPool()
	roots.AddCert(certificate)
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "https", Host: address})
			r.Out.Host = r.In.Host
		},
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ResponseHeaderTimeout: time.Minute},
	}
}

var fhirServerURL = flag.String("fhir", "", "the address of an empty FHIR server to use, which ends with /fhir; default: one in memory")

// Records that the modules use.
const (
	patientID             = "inferno-ada"
	encounterID           = "inferno-visit"
	practitionerReference = "Practitioner/inferno-alice"
)

const (
	hl7Conditions    = "http://terminology.hl7.org/CodeSystem/condition-category"
	uscoreConditions = "http://hl7.org/fhir/us/core/CodeSystem/condition-category"
	hl7Observations  = "http://terminology.hl7.org/CodeSystem/observation-category"
	uscoreCategories = "http://hl7.org/fhir/us/core/CodeSystem/us-core-category"
)

// categories are the sub-resources required by the (g)(10) criterion. The patient has one resource in each.
var categories = []struct{ resourceType, system, code string }{
	{"Condition", hl7Conditions, "encounter-diagnosis"},
	{"Condition", uscoreConditions, "health-concern"},
	{"Condition", hl7Conditions, "problem-list-item"},
	{"Observation", hl7Observations, "laboratory"},
	{"Observation", hl7Observations, "social-history"},
	{"Observation", hl7Observations, "vital-signs"},
	{"Observation", hl7Observations, "survey"},
	{"Observation", uscoreCategories, "sdoh"},
}

type record struct{ resourceType, id, text string }

// newRecord returns a record with the given members in addition to its type and id.
func newRecord(resourceType, id, members string) record {
	return record{resourceType, id, fmt.Sprintf(`{"resourceType":%q,"id":%q,%s}`, resourceType, id, members)}
}

// records returns all records, ordered so that servers with referential integrity accept them.
func records() []record {
	const ofPatient = `"subject":{"reference":"Patient/` + patientID + `"}`
	_, practitionerID, _ := strings.Cut(practitionerReference, "/")
	list := []record{
		newRecord("Practitioner", practitionerID, `"name":[{"text":"Alice Adams"}]`),
		newRecord("Patient", patientID, `"name":[{"text":"Adelaide Aster"}]`),
		newRecord("Patient", "inferno-bob", `"name":[{"text":"Bob Birch"}]`),
		newRecord("Condition", "inferno-bobs", `"subject":{"reference":"Patient/inferno-bob"},"code":{"text":"somebody else's"}`),
		newRecord("Encounter", encounterID, `"status":"finished","class":{"system":"http://terminology.hl7.org/CodeSystem/v3-ActCode","code":"AMB"},`+ofPatient),
	}
	for _, c := range categories {
		members := fmt.Sprintf(`"category":[{"coding":[{"system":%q,"code":%q}]}],"code":{"text":%q},%s`, c.system, c.code, c.code, ofPatient)
		if c.resourceType == "Observation" {
			members += `,"status":"final"`
		}
		list = append(list, newRecord(c.resourceType, "inferno-"+c.code, members))
	}
	return list
}

// fhirServer starts a FHIR server with the records, or uses the configured one, and returns its host and port.
func fhirServer(t *testing.T) string {
	t.Helper()
	if *fhirServerURL == "" {
		return fhirServerInMemory(t)
	}
	for _, resource := range records() {
		address := *fhirServerURL + "/" + resource.resourceType + "/" + resource.id
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, address, strings.NewReader(resource.text))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/fhir+json")
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if response.StatusCode/100 != 2 {
			t.Fatalf("%s: status %d", address, response.StatusCode)
		}
	}
	return strings.TrimSuffix(strings.TrimPrefix(*fhirServerURL, "http://"), "/fhir")
}

func fhirServerInMemory(t *testing.T) string {
	t.Helper()
	var texts [][]byte
	for _, resource := range records() {
		texts = append(texts, []byte(resource.text))
	}
	store, err := sample.NewStore(texts...)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(&sample.Server{Store: store, Base: "/fhir", BaseURL: fhirBase})
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}
