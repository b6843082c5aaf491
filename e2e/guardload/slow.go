package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/caddy-fhir/caddy-fhir/e2e/issuer"
)

const (
	requestsBeside = 20               // number of requests per neighbor
	timeBeside     = 20 * time.Second // time limit for all requests of a neighbor
)

// neighbor sends requests while another client does not read its responses.
type neighbor struct{ name, token string }

// runSlow prints the duration of the neighbors' requests while connections of one client and one person do not read their
// responses.
func runSlow(binary string, connections int, memory string) error {
	trusted, err := issuer.New()
	if err != nil {
		return err
	}
	defer trusted.Close()
	token := func(subject, client string) string {
		return trusted.TokenFor(subject, client, subject+client, "patient/*.rs", "1")
	}
	var read atomic.Int64
	backend := httptest.NewServer(slowBackend(&read))
	defer backend.Close()
	g, err := startGateway(binary, backend.Listener.Addr().String(), trusted.URL, "max_memory "+memory)
	if err != nil {
		return err
	}
	defer g.stop()
	for range connections {
		connection, err := g.requestOnly(token("1", "slow"))
		if err != nil {
			return err
		}
		defer connection.Close()
	}
	awaitQuiet(&read)
	fmt.Printf("| beside %d connections that do not read | answered | median | longest |\n|---|--:|--:|--:|\n", connections)
	return g.measureNeighbors([]neighbor{{"another client", token("2", "other")}, {"the same client, another person", token("3", "slow")}})
}

// measureNeighbors measures all neighbors concurrently.
func (g *gateway) measureNeighbors(neighbors []neighbor) error {
	failures := make(chan error, len(neighbors))
	for _, n := range neighbors {
		go func() { failures <- n.measure(g) }()
	}
	var err error
	for range neighbors {
		err = errors.Join(err, <-failures)
	}
	return err
}

// slowBackend returns a FHIR server with a short Patient and a DocumentReference of maxAnswer bytes. It counts the requests for
// the DocumentReference in read.
func slowBackend(read *atomic.Int64) http.Handler {
	document := strings.Replace(patient, `"Patient","id":"1"`, `"DocumentReference","id":"1","subject":{"reference":"Patient/1"}`, 1)
	document = strings.Replace(document, `"div":"`, `"div":"`+strings.Repeat("x", maxAnswer-len(document)), 1)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/fhir+json")
		if strings.HasSuffix(r.URL.Path, "/Patient/1") {
			_, _ = io.WriteString(w, patient)
			return
		}
		read.Add(1)
		_, _ = io.WriteString(w, document)
	})
}

// awaitQuiet waits until no long record has been requested for a second.
func awaitQuiet(read *atomic.Int64) {
	for before := int64(-1); before != read.Load(); {
		before = read.Load()
		time.Sleep(time.Second)
	}
}

// requestOnly sends a request for the long record and returns the connection without reading the response.
func (g *gateway) requestOnly(token string) (net.Conn, error) {
	connection, err := net.Dial("tcp", g.guarded)
	if err != nil {
		return nil, err
	}
	_, err = fmt.Fprintf(connection, "GET /fhir/R4/DocumentReference/1 HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n\r\n", g.guarded, token)
	return connection, err
}

// measure prints the durations of the neighbor's requests.
func (n neighbor) measure(g *gateway) error {
	var took []time.Duration
	answered := 0
	for start := time.Now(); len(took) < requestsBeside && time.Since(start) < timeBeside; {
		sent := time.Now()
		status, err := g.get("Patient/1", n.token)
		if err != nil {
			return err
		}
		took = append(took, time.Since(sent))
		if status == http.StatusOK {
			answered++
		}
	}
	slices.Sort(took)
	fmt.Printf("| %s | %d of %d | %v | %v |\n", n.name, answered, len(took), took[len(took)/2].Round(time.Millisecond/10), took[len(took)-1].Round(time.Millisecond/10))
	return nil
}

// get sends a GET request to the guarded site and reads the full response.
func (g *gateway) get(path, token string) (status int, err error) {
	r, err := g.request(path, token, true)
	if err != nil {
		return 0, err
	}
	response, err := g.client.Do(r)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, response.Body)
	return response.StatusCode, errors.Join(err, response.Body.Close())
}
