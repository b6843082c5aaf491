// Command guardload measures the cost of the guard: the gateway's CPU time per request, compared to a plain reverse_proxy in
// the same process, for a token that is used repeatedly. Build the binary, then run from e2e:
//
//	go run ./guardload [-caddy ../caddy] [-requests 4000] [-rounds 5] [-match text]
//	go run ./guardload [-caddy ../caddy] -atonce 1000 [-memory 256MiB]
//	go run ./guardload [-caddy ../caddy] -slow 12 [-memory 256MiB]
//
// On a busy machine, many short rounds of the first command are more precise than few long ones. The second command measures
// the gateway's memory with -atonce concurrent requests; -memory sets max_memory. The third measures the duration of other
// requests while -slow connections do not read their responses.
//
// Backend, issuer and client are in this process; all traffic stays on loopback.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/caddy-fhir/caddy-fhir/e2e/issuer"
	"github.com/caddy-fhir/caddy-fhir/e2e/loopback"
)

func main() {
	caddy := flag.String("caddy", "../caddy", "the `binary`")
	requests := flag.Int("requests", 4000, "how many requests a round of a scenario has")
	rounds := flag.Int("rounds", 5, "how many rounds; the median counts")
	match := flag.String("match", "", "measure only the requests with this `text` in their names")
	atOnce := flag.Int("atonce", 0, "measure the memory for so `many` requests at once, and not the CPU")
	memory := flag.String("memory", "256MiB", "max_memory of fhir_bearer when -atonce or -slow is set")
	slow := flag.Int("slow", 0, "measure the latency beside so `many` connections that do not read, and not the CPU")
	flag.Parse()
	measure := func() error { return run(*caddy, *match, *requests, *rounds) }
	if *atOnce > 0 {
		measure = func() error { return runCrowds(*caddy, *atOnce, *memory) }
	}
	if *slow > 0 {
		measure = func() error { return runSlow(*caddy, *slow, *memory) }
	}
	if err := measure(); err != nil {
		fmt.Fprintln(os.Stderr, "guardload:", err)
		os.Exit(1)
	}
}

// scenario is a request to measure.
type scenario struct {
	name, path, token string
	guarded           bool
	limit             float64 // maximum accepted ratio to the plain proxy
	perRequest        []float64
}

func run(binary, match string, requests, rounds int) error {
	backend := httptest.NewServer(http.HandlerFunc(serveFHIR))
	defer backend.Close()
	trusted, err := issuer.New()
	if err != nil {
		return err
	}
	defer trusted.Close()
	g, err := startGateway(binary, backend.Listener.Addr().String(), trusted.URL)
	if err != nil {
		return err
	}
	defer g.stop()
	unrestricted, bound := trusted.Token("load", "user/*.rs", "user/*.rs", ""), trusted.Token("load", "patient/*.rs", "patient/*.rs", "1")
	scenarios := []*scenario{
		{name: "read, plain reverse_proxy", path: "Patient/1"},
		{name: "read, plain reverse_proxy, with a token", path: "Patient/1", token: unrestricted},
		{name: "read, user/*.rs", path: "Patient/1", token: unrestricted, guarded: true, limit: 1.10},
		{name: "read, patient/*.rs", path: "Patient/1", token: bound, guarded: true, limit: 1.25},
		{name: "search of 50, plain reverse_proxy", path: "Encounter?_count=50"},
		{name: "search of 50, user/*.rs", path: "Encounter?_count=50", token: unrestricted, guarded: true},
		{name: "search of 50, patient/*.rs", path: "Encounter?_count=50", token: bound, guarded: true, limit: 1.5},
	}
	scenarios = slices.DeleteFunc(scenarios, func(s *scenario) bool { return !strings.Contains(s.name, match) })
	for range rounds + 1 {
		for _, s := range scenarios {
			cost, err := g.measure(s, requests)
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			s.perRequest = append(s.perRequest, cost)
		}
	}
	report(scenarios)
	return nil
}

// report prints the medians of the costs, and of their ratios to the plain proxy in the same round. It skips the first round,
// which is a warm-up.
func report(scenarios []*scenario) {
	var plain []float64
	fmt.Println("| request | CPU per request | × plain | wanted |\n|---|--:|--:|--:|")
	for _, s := range scenarios {
		costs := s.perRequest[1:]
		if s.token == "" {
			plain = costs
		}
		ratios := slices.Clone(costs)
		for n := range min(len(ratios), len(plain)) {
			ratios[n] /= plain[n]
		}
		wanted := ""
		if s.limit > 0 {
			wanted = fmt.Sprintf("%.2f", s.limit)
		}
		fmt.Printf("| %s | %.0f µs | %.2f | %s |\n", s.name, median(costs)*1e6, median(ratios), wanted)
	}
}

func median(of []float64) float64 { return slices.Sorted(slices.Values(of))[len(of)/2] }

// patient is a resource of about 2 KB. encounters is a searchset of 50 entries and about 100 KB.
var (
	patient    = `{"resourceType":"Patient","id":"1","meta":{"versionId":"1"},"text":{"status":"generated","div":"` + strings.Repeat("Narrative of the record. ", 60) + `"},"name":[{"family":"Adams","given":["Eve"]}],"gender":"female","birthDate":"1980-01-01"}`
	encounters = searchset(50, 11)
)

// searchset returns a Bundle with the given number of entries. Each entry has the given number of codings of 180 bytes.
func searchset(entries, codings int) string {
	var b strings.Builder
	b.WriteString(`{"resourceType":"Bundle","type":"searchset","total":50,"link":[{"relation":"self","url":"http://backend/fhir/R4/Encounter"}],"entry":[`)
	for i := range entries {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"fullUrl":"http://backend/fhir/R4/Encounter/%d","resource":{"resourceType":"Encounter","id":"%d","meta":{"versionId":"1","lastUpdated":"2026-01-01T00:00:00Z"},"status":"finished","class":{"system":"http://terminology.hl7.org/CodeSystem/v3-ActCode","code":"AMB"},"type":[%s],"subject":{"reference":"Patient/1"},"period":{"start":"2026-01-01T08:00:00Z","end":"2026-01-01T09:00:00Z"}},"search":{"mode":"match"}}`,
			i, i, strings.TrimSuffix(strings.Repeat(`{"coding":[{"system":"http://snomed.info/sct","code":"185345009","display":"Encounter for symptom"}],"text":"Encounter for symptom"},`, codings), ","))
	}
	return b.String() + "]}"
}

// serveFHIR is the handler of a FHIR server that returns either patient or encounters.
func serveFHIR(w http.ResponseWriter, r *http.Request) {
	body := patient
	if strings.HasPrefix(r.URL.Path, "/fhir/R4/Encounter") {
		body = encounters
	}
	w.Header().Set("Content-Type", "application/fhir+json")
	w.Header().Set("Etag", `W/"1"`)
	_, _ = io.WriteString(w, body)
}

// gateway is a Caddy process with an unguarded site and a guarded one.
type gateway struct {
	command        *exec.Cmd
	plain, guarded string
	folder         string
	client         *http.Client
}

// startGateway starts the gateway with options of fhir_bearer.
func startGateway(binary, backend, issuer string, options ...string) (*gateway, error) {
	g := &gateway{client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16, DisableCompression: true}}}
	var err error
	for _, address := range []*string{&g.plain, &g.guarded} {
		if *address, err = loopback.FreeAddress(); err != nil {
			return nil, err
		}
	}
	if g.folder, err = os.MkdirTemp("", "guardload"); err != nil {
		return nil, err
	}
	caddyfile := filepath.Join(g.folder, "Caddyfile")
	text := fmt.Sprintf("{\n\tadmin off\n\tauto_https off\n}\n\nhttp://%s {\n\treverse_proxy %s\n}\n\nhttp://%s {\n\tfhir_bearer {\n\t\ttrust %s fhir\n%s\n\t}\n\treverse_proxy %s\n}\n",
		g.plain, backend, g.guarded, issuer, strings.Join(options, "\n"), backend)
	if err := os.WriteFile(caddyfile, []byte(text), 0o600); err != nil {
		return nil, err
	}
	g.command = exec.Command(binary, "run", "--config", caddyfile)
	g.command.Env = append(os.Environ(), "XDG_DATA_HOME="+g.folder, "XDG_CONFIG_HOME="+g.folder)
	if err := g.command.Start(); err != nil {
		return nil, err
	}
	for range 100 {
		if connection, err := net.Dial("tcp", g.guarded); err == nil {
			return g, connection.Close()
		}
		time.Sleep(100 * time.Millisecond)
	}
	g.stop()
	return nil, errors.New("the gateway does not listen")
}

func (g *gateway) stop() {
	_ = g.command.Process.Signal(os.Interrupt)
	_ = g.command.Wait()
	_ = os.RemoveAll(g.folder)
}

// measure returns the CPU time of the gateway per request in seconds.
func (g *gateway) measure(s *scenario, requests int) (float64, error) {
	before, err := g.cpu()
	if err != nil {
		return 0, err
	}
	const clients = 8
	failures := make(chan error, clients)
	var group sync.WaitGroup
	for range clients {
		group.Go(func() {
			for range requests / clients {
				if err := g.send(s); err != nil {
					failures <- err
					return
				}
			}
		})
	}
	group.Wait()
	close(failures)
	if err := <-failures; err != nil {
		return 0, err
	}
	after, err := g.cpu()
	return (after - before) / float64(requests/clients*clients), err
}

func (g *gateway) send(s *scenario) error {
	r, err := g.request(s.path, s.token, s.guarded)
	if err != nil {
		return err
	}
	response, err := g.client.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	n, err := io.Copy(io.Discard, response.Body)
	if response.StatusCode != http.StatusOK || n < 1000 {
		return fmt.Errorf("status %d, %d bytes", response.StatusCode, n)
	}
	return err
}

// request returns a GET request to the guarded site with the token, or to the unguarded site.
func (g *gateway) request(path, token string, guarded bool) (*http.Request, error) {
	address := g.plain
	if guarded {
		address = g.guarded
	}
	r, err := http.NewRequest(http.MethodGet, "http://"+address+"/fhir/R4/"+path, nil)
	if err == nil && token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return r, err
}

// cpu returns the CPU time of the gateway's threads in seconds. It reads schedstat, which has a resolution of nanoseconds; that
// of stat (proc(5)) is 10 ms.
func (g *gateway) cpu() (seconds float64, err error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", g.command.Process.Pid))
	for _, thread := range threads {
		text, err := os.ReadFile(thread)
		if err != nil {
			return 0, err
		}
		nanoseconds, _, _ := strings.Cut(string(text), " ")
		n, err := strconv.ParseFloat(nanoseconds, 64)
		if err != nil {
			return 0, err
		}
		seconds += n / 1e9
	}
	return seconds, err
}
