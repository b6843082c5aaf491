package main

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/caddy-fhir/caddy-fhir/e2e/loopback"
)

// benchClient is the client block of the client under load.
const benchClient = `
		client %s {
			secret bench-secret
			redirect_uri ` + redirectURI + `
			scope offline_access system/*.rs
			grant_type client_credentials
			introspect all%s
		}`

// proxied configures the load generator as a trusted proxy that terminates TLS. All servers have this option, because it adds a
// small cost to each request.
const proxied = `	servers {
		trusted_proxies static 127.0.0.1/32
	}
`

const gatewayOptions = proxied + `	fhir {
		issuer https://bench.example.org
		user alice {
			password_hash $2a$10$ItlMyMTaHOapU0jOlqAKDeKxwtj3jMQrwFNvdsOH7fXf5Z8O4Sjjy
			name "Alice Adams"
		}`

// workload is an operation of an authorization server under load.
type workload struct {
	name  string
	scope string // scope of the sign-in; empty if the client does not sign in
	do    func(*visitor) operation
}

// workloads returns the operations to measure. Operations that issue no ID token are measured only with RS256. The scopes have
// the same meaning on both servers.
func workloads(algorithm, system, refresh string) []workload {
	all := []workload{
		{"code flow, signed in already", "openid profile", func(v *visitor) operation { return v.flow }},
		{"refresh, with an ID token", "openid profile " + refresh, func(v *visitor) operation { return v.refreshed }},
		{"client_credentials", "", func(v *visitor) operation { return v.credentials(system) }},
	}
	if algorithm == "RS256" {
		all = append(all,
			workload{"refresh, no ID token", "profile " + refresh, func(v *visitor) operation { return v.refreshed }},
			workload{"introspection", "openid profile", func(v *visitor) operation { return v.introspected }},
			workload{"userinfo", "openid profile", func(v *visitor) operation { return v.readUserinfo }})
	}
	return all
}

// measureAuthorization measures the authorization server against npm oidc-provider or an earlier gateway in the same run, with
// RSA and elliptic curve ID tokens.
func measureAuthorization(s settings, folder string) (err error) {
	gateway, err := startAuthorize(s, s.binary, folder, "authorize")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, gateway.stop()) }()
	signature, err := rsaSignature()
	if err != nil {
		return err
	}
	fmt.Printf("\n## Authorization server, %d at once\n\nOne RSA-2048 signature takes %s of CPU here.\n", s.clients, milliseconds(signature))
	for _, algorithm := range []string{"RS256", "ES256"} {
		if err := compareWithPeer(s, folder, gateway, algorithm); err != nil {
			return fmt.Errorf("%s: %w", algorithm, err)
		}
	}
	return measureDocuments(s, folder, gateway)
}

// startAuthorize starts a gateway binary as an authorization server.
func startAuthorize(s settings, binary, folder, name string) (*server, error) {
	return start(binary, folder, site{
		name:    name,
		options: gatewayOptions + "\n\t\tstore " + s.durable + fmt.Sprintf(benchClient, "bench", "") + fmt.Sprintf(benchClient, "bench-es256", "\n\t\t\tid_token_alg ES256") + "\n\t}",
		routes:  "\tfhir_authorize",
	})
}

// asProvider returns a gateway as a provider that signs ID tokens with the given algorithm.
func asProvider(gateway *server, algorithm string) *provider {
	p := &provider{server: gateway, clientID: "bench", secret: "bench-secret"}
	if algorithm == "ES256" {
		p.clientID = "bench-es256"
	}
	p.paths.authorize, p.paths.token = "/oauth2/authorize", "/oauth2/token"
	p.paths.introspect, p.paths.userinfo = "/oauth2/introspect", "/oauth2/userinfo"
	return p
}

// compareWithPeer measures all workloads with an ID token algorithm, against npm oidc-provider or an earlier gateway.
func compareWithPeer(s settings, folder string, gateway *server, algorithm string) (err error) {
	ours, theirs, peer := asProvider(gateway, algorithm), (*provider)(nil), "oidc-provider"
	system := workloads(algorithm, "system/*.rs", "offline_access")
	api := workloads(algorithm, "api", "refresh")
	if s.before == "" {
		theirs, err = startPeer(algorithm)
	} else {
		var before *server
		before, err = startAuthorize(s, s.before, folder, "before")
		theirs, peer, api = asProvider(before, algorithm), "before", system
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, theirs.stop()) }()
	fmt.Printf("\nID tokens by %s:\n\n| operation | per second | p50 | p99 | CPU per operation | %s | ratio |\n|---|--:|--:|--:|--:|--:|--:|\n", algorithm, peer)
	for i := range system {
		a, b, err := alternate(s.rounds, func() (load, error) { return ours.duty(s, system[i]) }, func() (load, error) { return theirs.duty(s, api[i]) })
		if err != nil {
			return fmt.Errorf("%s, beside %s: %w", system[i].name, peer, err)
		}
		printWorkload(system[i].name, a, b)
	}
	return nil
}

// duty measures one workload. The sign-in of each client is excluded from the measurement.
func (p *provider) duty(s settings, d workload) (load, error) {
	visitors := make([]*visitor, s.clients)
	for i := range visitors {
		as := *p
		as.scope = d.scope
		v, err := as.visit()
		if err != nil {
			return load{}, err
		}
		if visitors[i] = v; d.scope != "" {
			if err := v.flow(nil); err != nil {
				return load{}, err
			}
		}
	}
	return p.round(func(i int) operation { return d.do(visitors[i]) }, s.clients, s.round)
}

// startPeer runs npm oidc-provider with its state in memory.
func startPeer(algorithm string) (*provider, error) {
	address, err := loopback.FreeAddress()
	if err != nil {
		return nil, err
	}
	command := exec.Command("node", "peer.mjs")
	command.Dir = "node"
	_, port, _ := strings.Cut(address, ":")
	command.Env = append(os.Environ(), "PORT="+port, "ALGORITHM="+algorithm, "REDIRECT_URI="+redirectURI, "NODE_ENV=production")
	node, err := launch(address, command)
	if err != nil {
		return nil, err
	}
	p := &provider{server: node, clientID: "bench", secret: "bench-secret"}
	p.paths.authorize, p.paths.token = "/auth", "/token"
	p.paths.introspect, p.paths.userinfo = "/token/introspection", "/me"
	return p, nil
}

// measureDocuments compares public documents with fixed responses of the same size.
func measureDocuments(s settings, folder string, gateway *server) error {
	fmt.Print("\n" + tableHead)
	forwarded := http.Header{"X-Forwarded-Proto": {"https"}}
	for _, path := range []string{"/.well-known/jwks.json", "/.well-known/openid-configuration"} {
		ours, fixed, err := compare(s, folder, gateway, scenario{path, []string{path}, forwarded})
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		printRow(path, ours, fixed)
	}
	return nil
}

// rsaSignature returns the CPU time of one RS256 signature.
func rsaSignature() (time.Duration, error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return 0, err
	}
	sum := sha256.Sum256([]byte("a token"))
	const times = 500
	before, err := processCPU()
	if err != nil {
		return 0, err
	}
	for range times {
		if _, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, sum[:]); err != nil {
			return 0, err
		}
	}
	after, err := processCPU()
	return (after - before) / times, err
}

// processCPU returns the CPU time that this process has used so far.
func processCPU() (time.Duration, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, err
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}
