package main

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

// floodSize is the total number of requests in a flood.
const floodSize = 1_000_000

// floods are kinds of invalid requests that an attacker without an account can send. Each request is unique.
var floods = []struct {
	name   string
	path   func() string
	header func() http.Header
	want   int
}{
	{"random states, sign-ins abandoned", func() string { return authorizePath("bench") }, nil, http.StatusFound},
	{"unknown clients", func() string { return authorizePath(randomText()) }, nil, http.StatusBadRequest},
	{"sign-in pages with a made-up request", func() string { return "/oauth2/login?request=" + randomText() }, nil, http.StatusBadRequest},
	{"tokens with an unknown key", func() string { return "/fhir/R4/Patient" }, unknownKey, http.StatusUnauthorized},
}

func authorizePath(client string) string {
	return "/oauth2/authorize?" + url.Values{
		"response_type": {"code"}, "client_id": {client}, "redirect_uri": {redirectURI}, "scope": {"openid"}, "state": {randomText()},
	}.Encode()
}

func unknownKey() http.Header {
	head := base64.RawURLEncoding.EncodeToString([]byte(`{"typ":"at+jwt","alg":"ES256","kid":"` + randomText() + `"}`))
	return http.Header{"Authorization": {"Bearer " + head + ".e30." + randomText()}}
}

// measureFlood measures the memory in use after a million invalid requests.
func measureFlood(s settings, folder string) (err error) {
	gateway, err := start(s.binary, folder, site{
		name:    "flood",
		options: gatewayOptions + fmt.Sprintf(benchClient, "bench", "") + "\n\t}",
		routes:  "\tfhir_authorize\n\thandle /fhir/R4/* {\n\t\tfhir_bearer\n\t\trespond 404\n\t}\n\thandle_errors {\n\t\tfhir_outcome\n\t}",
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, gateway.stop()) }()
	fmt.Printf("\n## Flood\n\n| requests | per second | CPU per request | resident afterwards |\n|---|--:|--:|--:|\n")
	each := floodSize / len(floods)
	for i := range floods {
		// The first tenth is a warm-up, so that the second measurement starts with a warm process.
		for _, n := range []int{each / 10, each - each/10} {
			total, err := gateway.flood(s, i, n)
			if err != nil {
				return fmt.Errorf("%s: %w", floods[i].name, err)
			}
			memory, _, err := gateway.resident()
			if err != nil {
				return err
			}
			fmt.Printf("| %d: %s | %.0f | %s | %d MiB |\n", n, floods[i].name, total.rate(), micros(total.perRequest()), memory)
		}
	}
	return nil
}

// flood sends requests of one kind. kind is an index of floods.
func (s *server) flood(of settings, kind, requests int) (load, error) {
	tokens := make(chan struct{}, requests)
	for range requests {
		tokens <- struct{}{}
	}
	close(tokens)
	client := &http.Client{
		Transport: transport, Timeout: 30 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return s.round(func(int) operation {
		return func(l *load) error {
			if _, more := <-tokens; !more {
				return errDone
			}
			return s.lead(client, kind)
		}
	}, of.clients, 10*time.Minute)
}

// lead sends one invalid request and checks the status of its response.
func (s *server) lead(client *http.Client, kind int) error {
	f := floods[kind]
	request, err := http.NewRequest(http.MethodGet, s.url+f.path(), nil)
	if err != nil {
		return err
	}
	if f.header != nil {
		request.Header = f.header()
	}
	request.Header.Set("X-Forwarded-Proto", "https")
	r, err := client.Do(request)
	if err != nil {
		return err
	}
	if _, err := drain(r); err != nil {
		return err
	}
	if r.StatusCode != f.want {
		return fmt.Errorf("status %d", r.StatusCode)
	}
	return nil
}
