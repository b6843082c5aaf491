package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/caddy-fhir/caddy-fhir/e2e/keycloak"
	"github.com/caddy-fhir/caddy-fhir/e2e/loopback"
)

// identityProvider is Keycloak, which is also the peer of the comparison.
type identityProvider struct {
	*server
	token    string       // administrator's token
	public   string       // address for gateways and browsers
	requests atomic.Int64 // number of requests to the public address
}

// startKeycloak runs Keycloak in production mode with a database file. Its public address is a proxy that counts requests.
func startKeycloak(folder string) (*identityProvider, error) {
	var addresses [3]string
	for i := range addresses {
		var err error
		if addresses[i], err = loopback.FreeAddress(); err != nil {
			return nil, err
		}
	}
	address, public := addresses[0], "http://"+addresses[1]
	home, err := filepath.Abs("keycloak")
	if err != nil {
		return nil, err
	}
	run := keycloak.Command(home, address, addresses[2], public, filepath.Join(folder, "keycloak"))
	command := exec.Command(run[0], run[1:]...)
	command.Env = append(os.Environ(), keycloak.Environ...)
	k := &identityProvider{public: public}
	if k.server, err = launch(address, command); err != nil {
		return nil, err
	}
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: address})
	go func() {
		_ = http.ListenAndServe(addresses[1], http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // until the command exits
			k.requests.Add(1)
			proxy.ServeHTTP(w, r)
		}))
	}()
	return k, k.furnish()
}

// furnish creates a realm with the clients under load, the gateway's client and the user alice.
func (k *identityProvider) furnish() error {
	body, err := k.admin(http.MethodPost, "/realms/master/protocol/openid-connect/token", url.Values{
		"grant_type": {"password"}, "client_id": {"admin-cli"}, "username": {keycloak.Administrator}, "password": {keycloak.Administrator},
	})
	var answer struct {
		Token string `json:"access_token"`
	}
	if err == nil {
		err = json.Unmarshal(body, &answer)
	}
	k.token = answer.Token
	client := func(id, algorithm, redirect string) map[string]any {
		return map[string]any{"clientId": id, "secret": "bench-secret", "redirectUris": []string{redirect}, "attributes": map[string]string{
			"access.token.signed.response.alg": algorithm, "id.token.signed.response.alg": algorithm,
		}, "protocolMappers": []any{map[string]any{ // without this mapper, the client may not introspect its own tokens
			"name": "audience", "protocol": "openid-connect", "protocolMapper": "oidc-audience-mapper",
			"config": map[string]string{"included.client.audience": id, "access.token.claim": "true"},
		}}}
	}
	realm := map[string]any{
		"realm": "hospital", "enabled": true, "accessTokenLifespan": 3600,
		"clients": []any{
			client("bench", "RS256", redirectURI), client("bench-es256", "ES256", redirectURI),
			client("caddy-fhir", "RS256", "https://bench.example.org/oauth2/callback/hospital"),
		},
		"users": []any{map[string]any{
			"username": "alice", "enabled": true, "firstName": "Alice", "lastName": "Adams", "email": "alice@hospital.example", "emailVerified": true,
			"credentials": []any{map[string]any{"type": "password", "value": "alice-demo-password"}},
		}},
	}
	if err == nil {
		_, err = k.admin(http.MethodPost, "/admin/realms", realm)
	}
	return err
}

// admin calls Keycloak's admin API with a form or a JSON body.
func (k *identityProvider) admin(method, path string, body any) ([]byte, error) {
	text, err := json.Marshal(body)
	kind := "application/json"
	if form, ok := body.(url.Values); ok {
		text, kind = []byte(form.Encode()), "application/x-www-form-urlencoded"
	}
	r, err2 := http.NewRequest(method, k.url+path, bytes.NewReader(text))
	if err = errors.Join(err, err2); err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", kind)
	if k.token != "" {
		r.Header.Set("Authorization", "Bearer "+k.token)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	read, err := drain(answer)
	if err == nil && answer.StatusCode > 299 {
		err = fmt.Errorf("%s: status %d: %s", path, answer.StatusCode, read)
	}
	return read, err
}

// compareWithKeycloak measures the authorization server against Keycloak, with a local user and with a revalidated
// Keycloak user.
func compareWithKeycloak(s settings, folder string) (err error) {
	k, err := startKeycloak(folder)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, k.stop()) }()
	gateway, err := startFederated(s, folder, k)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, gateway.stop()) }()
	fmt.Printf("\n## Beside Keycloak, %d at once, CPU per operation\n", s.clients)
	for _, algorithm := range []string{"RS256", "ES256"} {
		local := asProvider(gateway, algorithm)
		person := *local
		person.idp = "hospital"
		peer := &provider{server: k.server, clientID: local.clientID, secret: local.secret}
		const below = "/realms/hospital/protocol/openid-connect/"
		peer.paths.authorize, peer.paths.token, peer.paths.introspect = below+"auth", below+"token", below+"token/introspect"
		fmt.Printf("\nTokens by %s:\n\n| operation | Keycloak | here | less by | person of Keycloak, here | less by |\n|---|--:|--:|--:|--:|--:|\n", algorithm)
		for _, d := range keycloakWorkloads(s, algorithm) {
			if err := d.measure(s, peer, local, &person); err != nil {
				return fmt.Errorf("%s: %w", d.name, err)
			}
		}
		if err := compareReads(s, k, local, &person); err != nil {
			return err
		}
	}
	return nil
}

// startFederated starts a gateway with the local user alice, Keycloak as identity provider, the guard and fhir_expand.
func startFederated(s settings, folder string, k *identityProvider) (*server, error) {
	idp := "\n\t\tidp hospital keycloak {\n\t\t\tissuer " + k.public + "/realms/hospital\n\t\t\tclient_id caddy-fhir\n\t\t\tclient_secret bench-secret\n\t\t\trevalidate 1m\n\t\t}"
	clients := fmt.Sprintf(benchClient, "bench", "") + fmt.Sprintf(benchClient, "bench-es256", "\n\t\t\tid_token_alg ES256")
	return start(s.binary, folder, site{
		name:    "keycloak",
		options: gatewayOptions + idp + "\n\t\tstore " + s.durable + strings.ReplaceAll(clients, "scope ", "scope online_access user/*.rs ") + "\n\t}",
		routes:  "\tfhir_authorize\n\thandle /fhir/R4/* {\n\t\tfhir_bearer\n\t\tfhir_expand\n\t}",
	})
}

// keycloakWorkload is an operation that Keycloak and the gateway both support.
type keycloakWorkload struct {
	name         string
	theirs, ours string // scope at Keycloak and at the gateway
	times        int    // number of operations per round
	do           func(*visitor) operation
}

func keycloakWorkloads(s settings, algorithm string) []keycloakWorkload {
	all := []keycloakWorkload{
		{"code flow, signed in already", "openid profile", "openid profile", s.operations, func(v *visitor) operation { return v.flow }},
		{"refresh, with an ID token", "openid profile", "openid profile online_access", s.operations, func(v *visitor) operation { return v.refreshed }},
	}
	if algorithm == "RS256" {
		all = append(all, keycloakWorkload{"introspection", "openid profile", "openid profile", 4 * s.operations, func(v *visitor) operation { return v.introspected }})
	}
	return all
}

// measure runs rounds of d.times operations against each provider in turn, and prints the medians. The first round is a
// warm-up.
func (d keycloakWorkload) measure(s settings, all ...*provider) error {
	visitors, rounds := make([][]*visitor, len(all)), make([][]load, len(all))
	for n := range s.rounds + 1 {
		for i, p := range all {
			scope := d.ours
			if i == 0 {
				scope = d.theirs
			}
			if n == 0 {
				var err error
				if visitors[i], err = p.signedIn(s.clients, scope); err != nil {
					return err
				}
			}
			l, err := p.times(visitors[i], d.times, d.do)
			if err != nil {
				return err
			}
			if n > 0 {
				rounds[i] = append(rounds[i], l)
			}
		}
	}
	cpu := make([]time.Duration, len(all))
	for i := range all {
		cpu[i] = median(rounds[i]).perRequest()
	}
	less := func(i int) float64 { return float64(cpu[0]) / float64(cpu[i]) }
	fmt.Printf("| %s | %s | %s | **%.1f ×** | %s | **%.1f ×** |\n", d.name, micros(cpu[0]), micros(cpu[1]), less(1), micros(cpu[2]), less(2))
	return nil
}

// signedIn returns the given number of signed-in clients.
func (p *provider) signedIn(clients int, scope string) ([]*visitor, error) {
	as := *p
	as.scope = scope
	all := make([]*visitor, clients)
	for i := range all {
		v, err := as.visit()
		if err == nil {
			err = v.flow(nil)
		}
		if err != nil {
			return nil, err
		}
		all[i] = v
	}
	return all, nil
}

// times runs a round of n operations, distributed over the visitors.
func (p *provider) times(visitors []*visitor, n int, do func(*visitor) operation) (load, error) {
	var done atomic.Int64
	return p.round(func(i int) operation {
		once := do(visitors[i])
		return func(l *load) error {
			if done.Add(1) > int64(n) {
				return errDone
			}
			return once(l)
		}
	}, len(visitors), 10*time.Minute)
}

// compareReads compares FHIR requests of a local user and of a Keycloak user, and counts the requests that reach Keycloak.
func compareReads(s settings, k *identityProvider, local, person *provider) error {
	const gender = "/fhir/R4/ValueSet/$expand?url=http%3A%2F%2Fhl7.org%2Ffhir%2FValueSet%2Fadministrative-gender"
	read := func(v *visitor) operation { return func(*load) error { return v.read(gender) } }
	var visitors [2][]*visitor
	var rounds [2][]load
	var providerRequests, requests int64
	for n := range s.rounds + 1 {
		for i, p := range []*provider{local, person} {
			var err error
			if n == 0 {
				if visitors[i], err = p.signedIn(s.clients, "openid profile user/*.rs"); err != nil {
					return err
				}
			}
			before := k.requests.Load()
			l, err := p.times(visitors[i], 8*s.operations, read)
			if err != nil {
				return err
			}
			rounds[i] = append(rounds[i], l)
			if i == 1 {
				providerRequests, requests = providerRequests+k.requests.Load()-before, requests+int64(l.requests)
			}
		}
	}
	a, b := median(rounds[0]).perRequest(), median(rounds[1]).perRequest()
	fmt.Printf("\n`$expand` with a token: %s for a local user, %s for a person of Keycloak (%.2f). During %d such requests of the latter, Keycloak got %d requests.\n",
		micros(a), micros(b), float64(b)/float64(a), requests, providerRequests)
	return nil
}
