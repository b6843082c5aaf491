package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/caddy-fhir/caddy-fhir/e2e/issuer"
)

// maxAnswer is the default maximum size of a response that the guard inspects, in bytes.
const maxAnswer = 16 << 20

// crowd is a number of concurrent requests and their results.
type crowd struct {
	name, path, token string
	guarded           bool
	answer            string

	mu       sync.Mutex
	statuses map[int]int
	longest  time.Duration
}

// runCrowds measures the gateway's memory during concurrent requests and simultaneous responses. It starts a new
// gateway for each kind of request.
func runCrowds(binary string, size int, memory string) error {
	trusted, err := issuer.New()
	if err != nil {
		return err
	}
	defer trusted.Close()
	unrestricted, bound := trusted.Token("load", "user/*.rs", "user/*.rs", ""), trusted.Token("load", "patient/*.rs", "patient/*.rs", "1")
	document := strings.Replace(patient, `"Patient","id":"1"`, `"DocumentReference","id":"1","subject":{"reference":"Patient/1"}`, 1)
	longest := strings.Replace(document, `"div":"`, `"div":"`+strings.Repeat("x", maxAnswer-len(document)), 1)
	page := searchset(1000, 74)
	fmt.Printf("| %d at once | answered | 503 | longest | resident before | at most |\n|---|--:|--:|--:|--:|--:|\n", size)
	for _, c := range []*crowd{
		{name: "search of 50, 100 KB, plain reverse_proxy", path: "Encounter", answer: encounters},
		{name: "search of 50, 100 KB, user/*.rs", path: "Encounter", answer: encounters, token: unrestricted, guarded: true},
		{name: "search of 50, 100 KB, patient/*.rs", path: "Encounter", answer: encounters, token: bound, guarded: true},
		{name: fmt.Sprintf("search of 1000, %d MB, user/*.rs", len(page)/1e6), path: "Encounter?_count=1000", answer: page, token: unrestricted, guarded: true},
		{name: fmt.Sprintf("search of 1000, %d MB, patient/*.rs", len(page)/1e6), path: "Encounter?_count=1000", answer: page, token: bound, guarded: true},
		{name: "read of 16 MiB, patient/*.rs", path: "DocumentReference/1", answer: longest, token: bound, guarded: true},
	} {
		if err := c.run(binary, trusted, size, memory); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return nil
}

// run starts a gateway, sends one request and then the crowd's requests to it, and prints the results.
func (c *crowd) run(binary string, i *issuer.Issuer, size int, memory string) error {
	var there sync.WaitGroup
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		there.Done()
		there.Wait() // wait until all requests have arrived
		w.Header().Set("Content-Type", "application/fhir+json")
		_, _ = io.WriteString(w, c.answer)
	}))
	defer backend.Close()
	g, err := startGateway(binary, backend.Listener.Addr().String(), i.URL, "max_memory "+memory)
	if err != nil {
		return err
	}
	defer g.stop()
	there.Add(1)
	if err := c.send(g); err != nil {
		return err
	}
	before, err := g.memory("VmRSS")
	if err != nil {
		return err
	}
	c.statuses = map[int]int{}
	there.Add(size)
	if err := c.sendAll(g, size); err != nil {
		return err
	}
	peak, err := g.memory("VmHWM")
	fmt.Printf("| %s | %d | %d | %.1f s | %d MB | %d MB |\n", c.name, c.statuses[200], c.statuses[503], c.longest.Seconds(), before, peak)
	return err
}

// sendAll sends the requests concurrently. It returns an error if a request gets no response.
func (c *crowd) sendAll(g *gateway, size int) error {
	failures := make(chan error, size)
	var group sync.WaitGroup
	for range size {
		group.Go(func() { failures <- c.send(g) })
	}
	group.Wait()
	for range size {
		if err := <-failures; err != nil {
			return err
		}
	}
	return nil
}

func (c *crowd) send(g *gateway) error {
	r, err := g.request(c.path, c.token, c.guarded)
	if err != nil {
		return err
	}
	start := time.Now()
	response, err := g.client.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	c.note(response, time.Since(start))
	return err
}

func (c *crowd) note(response *http.Response, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.statuses != nil {
		c.statuses[response.StatusCode]++
		c.longest = max(c.longest, took)
	}
}

// memory returns a value of /proc/<pid>/status in MB: VmRSS is the resident memory, VmHWM its maximum.
func (g *gateway) memory(name string) (int, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", g.command.Process.Pid))
	if err != nil {
		return 0, err
	}
	_, after, _ := strings.Cut(string(text), name+":")
	fields := strings.Fields(after)
	if len(fields) == 0 {
		return 0, fmt.Errorf("no %s", name)
	}
	kibibytes, err := strconv.Atoi(fields[0])
	return kibibytes * 1024 / 1e6, err
}
