package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"
)

// load is the result of one round, or the median of several rounds.
type load struct {
	requests int
	bytes    int64
	elapsed  time.Duration
	cpu      time.Duration // CPU time of the server
	times    []time.Duration
}

func (l load) perRequest() time.Duration { return l.cpu / time.Duration(max(1, l.requests)) }
func (l load) rate() float64             { return float64(l.requests) / l.elapsed.Seconds() }
func (l load) size() int64               { return l.bytes / int64(max(1, l.requests)) }

// quantile returns the duration that the given share of requests did not exceed.
func (l load) quantile(share float64) time.Duration {
	if len(l.times) == 0 {
		return 0
	}
	return l.times[min(len(l.times)-1, int(share*float64(len(l.times))))]
}

// operation is repeated by a client. Only one goroutine calls it at a time.
type operation func(l *load) error

// errDone is returned by an operation that has no more work.
var errDone = errors.New("done")

// round runs concurrent clients, created by newClient, for the given time or until they have no more work. It returns the first
// error.
func (s *server) round(newClient func(i int) operation, clients int, length time.Duration) (load, error) {
	ctx, cancel := context.WithTimeout(context.Background(), length)
	defer cancel()
	before, err := s.cpu()
	if err != nil {
		return load{}, err
	}
	start := time.Now()
	parts, errs := make([]load, clients), make([]error, clients)
	var all sync.WaitGroup
	for i := range clients {
		do := newClient(i)
		all.Go(func() {
			for ctx.Err() == nil && errs[i] == nil {
				errs[i] = parts[i].time(do)
			}
		})
	}
	all.Wait()
	total := load{elapsed: time.Since(start)}
	after, err := s.cpu()
	total.cpu = after - before
	for _, p := range parts {
		total.requests += p.requests
		total.bytes += p.bytes
		total.times = append(total.times, p.times...)
	}
	slices.Sort(total.times)
	// One client's error is enough to report.
	if i := slices.IndexFunc(errs, func(err error) bool { return err != nil && !errors.Is(err, errDone) }); i >= 0 {
		return total, errs[i]
	}
	return total, err
}

// time runs one operation and records its duration.
func (l *load) time(do operation) error {
	start := time.Now()
	err := do(l)
	if err != nil {
		return err
	}
	l.requests++
	l.times = append(l.times, time.Since(start))
	return nil
}

// gets returns a function that creates clients. They request the paths in random order with the header.
func (s *server) gets(paths []string, header http.Header) func(int) operation {
	transport := &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}
	client := &http.Client{Transport: transport, Timeout: 30 * time.Second}
	return func(int) operation {
		return func(l *load) error { return l.get(client, s.url+paths[rand.IntN(len(paths))], header) }
	}
}

func (l *load) get(client *http.Client, url string, header http.Header) error {
	request, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	request.Header = header
	r, err := client.Do(request)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	n, err := io.Copy(io.Discard, r.Body)
	if err == nil && r.StatusCode != http.StatusOK && r.StatusCode != http.StatusNotModified {
		err = fmt.Errorf("%s: status %d", url, r.StatusCode)
	}
	l.bytes += n
	return err
}

// alternate runs rounds of two measurements and swaps their order in every other round, because the first one appears slower.
// It returns their medians.
func alternate(rounds int, one, other func() (load, error)) (a, b load, err error) {
	var all [2][]load
	for n := range 2 * rounds {
		i := (n + n/2) % 2
		l, err := [...]func() (load, error){one, other}[i]()
		if err != nil {
			return a, b, err
		}
		all[i] = append(all[i], l)
	}
	return median(all[0]), median(all[1]), nil
}

// median returns the round with the median CPU time per request. Its request durations are those of all rounds.
func median(rounds []load) load {
	var times []time.Duration
	for _, l := range rounds {
		times = append(times, l.times...)
	}
	slices.Sort(times)
	slices.SortFunc(rounds, func(a, b load) int { return int(a.perRequest() - b.perRequest()) })
	m := rounds[len(rounds)/2]
	m.times = times
	return m
}
