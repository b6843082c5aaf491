// Command quotaload lets many clients exceed a quota at one gateway, or at several gateways that share a Redis. It compares the
// admitted requests with those that an exact counter would admit. Build the binary, then run from e2e:
//
//	go run ./quotaload                                          # 10,000 clients, one gateway
//	go run ./quotaload -gateways 3                              # three gateways
//	go run ./quotaload -gateways 3 -clients 100 -limit 1000     # with a larger quota
//
// A tenth of the clients send half of all requests. Each request goes to a random gateway. Issuer, store and clients are on
// loopback.
package main

import (
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/caddy-fhir/caddy-fhir/e2e/issuer"
)

type load struct {
	binary                   string
	clients, gateways, limit int
	window, length           time.Duration
	rate                     int
}

func main() {
	var l load
	flag.StringVar(&l.binary, "caddy", "../caddy", "the `binary`")
	flag.IntVar(&l.clients, "clients", 10_000, "how many clients")
	flag.IntVar(&l.gateways, "gateways", 1, "how many gateways; several share a Redis")
	flag.IntVar(&l.limit, "limit", 10, "what the quota of a client is")
	flag.DurationVar(&l.window, "window", 30*time.Second, "in which `time`")
	flag.DurationVar(&l.length, "length", 75*time.Second, "how long they ask")
	flag.IntVar(&l.rate, "rate", 3000, "how many requests they send in a second, at most")
	flag.Parse()
	if err := l.run(); err != nil {
		fmt.Fprintln(os.Stderr, "quotaload:", err)
		os.Exit(1)
	}
}

func (l *load) run() error {
	trusted, err := issuer.New()
	if err != nil {
		return err
	}
	defer trusted.Close()
	d, err := l.deploy(trusted.URL)
	if err != nil {
		return err
	}
	defer d.stop()
	clients := make([]*client, l.clients)
	for i := range clients {
		clients[i] = &client{token: trusted.Token(fmt.Sprint("client-", i), fmt.Sprint("client-", i), "user/*.rs", "")}
	}
	began := time.Now()
	took, err := l.ask(clients, d)
	if err != nil {
		return err
	}
	l.report(clients, d, took, time.Since(began))
	return nil
}

// client is a client under load with its requests.
type client struct {
	token string

	mu      sync.Mutex
	answers []answer
}

// answer contains the time of a request and whether it was admitted.
type answer struct {
	at       time.Time
	admitted bool
}

const workers = 64

// ask sends the clients' requests and returns their durations.
func (l *load) ask(clients []*client, d *deployment) ([]time.Duration, error) {
	ticket, failures := make(chan struct{}), make(chan error, workers)
	took := make([][]time.Duration, workers)
	var all sync.WaitGroup
	for i := range workers {
		all.Go(func() {
			web := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1}}
			for range ticket {
				c := clients[rand.IntN(len(clients))]
				if rand.IntN(9) < 4 {
					c = clients[rand.IntN(max(1, len(clients)/10))]
				}
				began := time.Now()
				if err := c.ask(web, d.gateways[rand.IntN(len(d.gateways))].address); err != nil {
					failures <- err
					return
				}
				took[i] = append(took[i], time.Since(began))
			}
		})
	}
	err := l.pace(ticket, failures)
	close(ticket)
	all.Wait()
	return slices.Concat(took...), err
}

// pace sends tickets at the configured rate until the end of the run.
func (l *load) pace(ticket chan<- struct{}, failures <-chan error) error {
	pace, end := time.NewTicker(10*time.Millisecond), time.After(l.length)
	defer pace.Stop()
	for {
		select {
		case err := <-failures:
			return err
		case <-end:
			return nil
		case <-pace.C:
		}
		for range l.rate / 100 {
			select {
			case ticket <- struct{}{}:
			case err := <-failures:
				return err
			}
		}
	}
}

func (c *client) ask(web *http.Client, address string) error {
	r, err := http.NewRequest(http.MethodGet, "http://"+address+"/fhir/R4/Patient/1", http.NoBody)
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+c.token)
	c.mu.Lock() // a client's requests are sequential, so that their order is known
	defer c.mu.Unlock()
	response, err := web.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	let := response.StatusCode == http.StatusOK
	if !let && response.StatusCode != http.StatusTooManyRequests {
		return fmt.Errorf("status %d", response.StatusCode)
	}
	c.answers = append(c.answers, answer{time.Now(), let})
	return err
}

// exact returns how many of the client's requests an exact counter would admit.
func (c *client) exact(limit int, window time.Duration) (let int) {
	var within []time.Time
	for _, a := range c.answers {
		for len(within) > 0 && a.at.Sub(within[0]) >= window {
			within = within[1:]
		}
		if len(within) < limit {
			within = append(within, a.at)
			let++
		}
	}
	return let
}

// fullestWindow returns the largest number of requests admitted in any window.
func (c *client) fullestWindow(window time.Duration) (fullest int) {
	var within []time.Time
	for _, a := range c.answers {
		if !a.admitted {
			continue
		}
		within = append(within, a.at)
		for a.at.Sub(within[0]) >= window {
			within = within[1:]
		}
		fullest = max(fullest, len(within))
	}
	return fullest
}

func (l *load) report(clients []*client, d *deployment, took []time.Duration, length time.Duration) {
	var let, exact, over, under, refused, fullest int
	for _, c := range clients {
		mine := 0
		for _, a := range c.answers {
			if a.admitted {
				mine++
			} else {
				refused++
			}
		}
		right := c.exact(l.limit, l.window)
		let, exact, fullest = let+mine, exact+right, max(fullest, c.fullestWindow(l.window))
		over, under = over+max(0, mine-right), under+max(0, right-mine)
	}
	slices.Sort(took)
	percent := func(n int) float64 { return 100 * float64(n) / float64(exact) }
	fmt.Printf("clients %d, gateways %d, limit %d in %v: %d requests in %v (%.0f/s)\n",
		l.clients, l.gateways, l.limit, l.window, let+refused, length.Round(time.Second), float64(let+refused)/length.Seconds())
	fmt.Printf("let in %d, by an exact counter %d: %+.2f %% (clients with more: %.2f %%, with less: %.2f %%); fullest window %d of %d\n",
		let, exact, percent(let-exact), percent(over), percent(under), fullest, l.limit)
	fmt.Printf("refused %d; answers took %v, 99 %% at most %v\n", refused, took[len(took)/2].Round(time.Microsecond), took[len(took)*99/100].Round(time.Microsecond))
	fmt.Printf("steps at the store: %.3f for each request; memory of a gateway %d MiB\n", float64(d.steps())/float64(let+refused), d.memory()>>20)
}
