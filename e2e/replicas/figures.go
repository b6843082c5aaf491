package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/caddy-fhir/caddy-fhir/e2e/replicas/deployment"
)

// workersOfFigures is the number of concurrent clients.
const workersOfFigures = 8

// subject is a deployment that is measured.
type subject struct {
	*deployment.Deployment
	name    string
	workers []*worker
}

// worker is a client with a grant, and browsers of different signed-in users. Each user has so few grants that the gateway does
// not revoke the oldest one.
type worker struct {
	browsers []*browser
	apps     []*app // one app for each gateway, used in turn
	turn     int
	flows    int
	tokens   tokens
	patient  string
}

// app returns the app that uses the next gateway.
func (w *worker) app() *app {
	w.turn++
	return w.apps[w.turn%len(w.apps)]
}

// workload is an operation to measure.
type workload struct {
	name string
	do   func(*worker, context.Context) error
}

var duties = []workload{
	{"sign-in and code flow", (*worker).signIn},
	{"code flow, signed in already", (*worker).flow},
	{"refresh", (*worker).refresh},
	{"introspection", (*worker).introspect},
	{"guarded read", (*worker).read},
}

// signIn signs the user in with a new browser.
func (w *worker) signIn(ctx context.Context) error {
	w.flows++
	b, err := newBrowser(w.app().issuer, w.app().http, w.browsers[w.flows%len(w.browsers)].user)
	if err != nil {
		return err
	}
	request := newAuthorization(scope)
	a := b.signIn(ctx, request)
	if a.code() == "" {
		return errors.New("no code after signing in: " + a.summary())
	}
	w.tokens, err = mustTokens(w.app().exchange(ctx, a.code(), request.verifier))
	return err
}

func (w *worker) flow(ctx context.Context) error {
	request := newAuthorization(scope)
	w.flows++
	own := *w.browsers[w.flows%len(w.browsers)]
	client := *w.app().http
	client.Jar = own.http.Jar
	own.http = &client
	code, err := own.mustCode(ctx, request)
	if err != nil {
		return err
	}
	w.tokens, err = mustTokens(w.app().exchange(ctx, code, request.verifier))
	return err
}

func (w *worker) refresh(ctx context.Context) (err error) {
	w.tokens, err = mustTokens(w.app().refresh(ctx, w.tokens.Refresh))
	return err
}

func (w *worker) introspect(ctx context.Context) error {
	if a := w.app().introspect(ctx, w.tokens.Access); activity(a) != "ok" {
		return errors.New("not active: " + a.summary())
	}
	return nil
}

func (w *worker) read(ctx context.Context) error {
	if a := w.app().get(ctx, w.patient, w.tokens.Access); a.status != http.StatusOK {
		return errors.New("not read: " + a.summary())
	}
	return nil
}

// newSubject deploys gateways with a store and signs all users in. Requests bypass nginx.
func (s *settings) newSubject(ctx context.Context, store string, gateways int) (*subject, error) {
	s.store, s.cuts = store, false
	s.gateways = s.maxGateways(gateways)
	d, err := s.deploy("")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", store, err)
	}
	of := &subject{Deployment: d, name: store}
	for i := range workersOfFigures {
		w, err := of.newWorker(ctx, i)
		if err != nil {
			d.Stop()
			return nil, fmt.Errorf("%s: %w", store, err)
		}
		of.workers = append(of.workers, w)
	}
	return of, nil
}

func (of *subject) newWorker(ctx context.Context, i int) (w *worker, err error) {
	plain := &app{of.Issuer, of.Client()}
	w = new(worker)
	for _, g := range of.Gateways {
		w.apps = append(w.apps, plain.at(g))
	}
	for n := i; n < people; n += workersOfFigures {
		b, err := newBrowser(of.Issuer, w.apps[0].http, fmt.Sprintf("p%d", n))
		if err == nil {
			err = b.mustSignIn(ctx)
		}
		if err != nil {
			return nil, err
		}
		w.browsers = append(w.browsers, b)
	}
	if err := w.flow(ctx); err != nil {
		return nil, err
	}
	w.patient, err = firstPatient(w.apps[0].read(ctx, w.tokens.Access))
	return w, err
}

// cost is the load and CPU time of one round of an operation.
type cost struct {
	operations     int
	elapsed        time.Duration
	gateway, store float64 // CPU time in seconds
	took           spread
}

// measure repeats an operation with all workers for the given time.
func (of *subject) measure(ctx context.Context, d workload, length time.Duration) (c cost, err error) {
	before, storeBefore, err := of.cpu()
	if err != nil {
		return c, err
	}
	start := time.Now()
	parts, errs := make([]spread, len(of.workers)), make([]error, len(of.workers))
	var group sync.WaitGroup
	for i, w := range of.workers {
		group.Go(func() {
			for time.Since(start) < length && errs[i] == nil && ctx.Err() == nil {
				begun := time.Now()
				errs[i] = d.do(w, ctx)
				parts[i] = append(parts[i], time.Since(begun))
			}
		})
	}
	group.Wait()
	c.elapsed = time.Since(start)
	after, storeAfter, err := of.cpu()
	c.gateway, c.store = after-before, storeAfter-storeBefore
	c.took = slices.Concat(parts...)
	c.operations = len(c.took)
	return c, errors.Join(append(errs, err)...)
}

// cpu returns the CPU time in seconds that the gateways and the store have used so far.
func (of *subject) cpu() (gateways, store float64, err error) {
	for _, g := range of.Gateways {
		seconds, err := g.CPU()
		if err != nil {
			return 0, 0, err
		}
		gateways += seconds
	}
	for _, server := range of.Engine.Servers() {
		seconds, err := server.CPU()
		if err != nil {
			return 0, 0, err
		}
		store += seconds
	}
	return gateways, store, nil
}

// measureOperations measures all stores and prints the results as Markdown tables.
func measureOperations(ctx context.Context, s settings) error {
	stores := []string{"memory", "file"}
	for _, store := range []string{"redis", "postgres"} {
		if missing := deployment.Missing(store); len(missing) > 0 {
			fmt.Println("without", store, "-", errMissing(missing))
			continue
		}
		stores = append(stores, store)
	}
	if err := s.compare(ctx, stores); err != nil {
		return err
	}
	for _, store := range stores[2:] {
		if err := s.countTrips(ctx, store); err != nil {
			return fmt.Errorf("%s: %w", store, err)
		}
	}
	for _, store := range stores[2:] {
		if err := s.scale(ctx, store); err != nil {
			return fmt.Errorf("%s: %w", store, err)
		}
	}
	return nil
}

// compare measures each operation with each store.
func (s *settings) compare(ctx context.Context, stores []string) error {
	var subjects []*subject
	defer func() {
		for _, of := range subjects {
			of.Stop()
		}
	}()
	for _, store := range stores {
		of, err := s.newSubject(ctx, store, 1)
		if err != nil {
			return err
		}
		subjects = append(subjects, of)
	}
	fmt.Printf("One gateway, %d clients at once, %d rounds of %v, medians:\n\n", workersOfFigures, s.rounds, s.round)
	fmt.Print("| operation | store | per second | p50 | p99 | CPU of the gateway | × memory | CPU of the store |\n|---|---|--:|--:|--:|--:|--:|--:|\n")
	for _, d := range duties {
		costs := make([][]cost, len(subjects))
		for range s.rounds {
			for i, of := range subjects {
				c, err := of.measure(ctx, d, s.round)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", of.name, d.name, err)
				}
				costs[i] = append(costs[i], c)
			}
		}
		for i, of := range subjects {
			printCosts(d.name, of.name, costs[i], costs[0])
		}
	}
	return nil
}

func printCosts(operation, store string, costs, beside []cost) {
	gateway := func(c cost) float64 { return c.gateway / float64(c.operations) * 1000 }
	var ratios []float64
	for n, c := range costs {
		ratios = append(ratios, gateway(c)/gateway(beside[n]))
	}
	fmt.Printf("| %s | %s | %.0f | %s | %s | %.3f ms | %.2f | %.3f ms |\n", operation, store,
		medianOf(costs, func(c cost) float64 { return float64(c.operations) / c.elapsed.Seconds() }),
		milliseconds(quantileOf(costs, 0.5)), milliseconds(quantileOf(costs, 0.99)),
		medianOf(costs, gateway), median(ratios),
		medianOf(costs, func(c cost) float64 { return c.store / float64(c.operations) * 1000 }))
}

func medianOf(costs []cost, of func(cost) float64) float64 {
	var values []float64
	for _, c := range costs {
		values = append(values, of(c))
	}
	return median(values)
}

func quantileOf(costs []cost, share float64) time.Duration {
	return time.Duration(medianOf(costs, func(c cost) float64 { return float64(c.took.quantile(share)) }))
}

func median(values []float64) float64 { return slices.Sorted(slices.Values(values))[len(values)/2] }

// scale measures one, two and three gateways that share a store.
func (s *settings) scale(ctx context.Context, store string) error {
	fmt.Printf("\nGateways on %s, their clients taking them in turn:\n\n| operation | gateways | per second | CPU of all gateways | CPU of the store |\n|---|--:|--:|--:|--:|\n", store)
	var subjects []*subject
	defer func() {
		for _, of := range subjects {
			of.Stop()
		}
	}()
	for n := range 3 {
		of, err := s.newSubject(ctx, store, n+1)
		if err != nil {
			return err
		}
		subjects = append(subjects, of)
	}
	for _, d := range duties {
		costs := make([][]cost, len(subjects))
		for range s.rounds {
			for i, of := range subjects {
				c, err := of.measure(ctx, d, s.round)
				if err != nil {
					return fmt.Errorf("%d gateways, %s: %w", i+1, d.name, err)
				}
				costs[i] = append(costs[i], c)
			}
		}
		for i, c := range costs {
			fmt.Printf("| %s | %d | %.0f | %.3f ms | %.3f ms |\n", d.name, i+1,
				medianOf(c, func(c cost) float64 { return float64(c.operations) / c.elapsed.Seconds() }),
				medianOf(c, func(c cost) float64 { return c.gateway / float64(c.operations) * 1000 }),
				medianOf(c, func(c cost) float64 { return c.store / float64(c.operations) * 1000 }))
		}
	}
	return nil
}
