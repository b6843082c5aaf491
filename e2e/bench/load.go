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

// load is what one round, or the median of several, was like.
type load struct {
	requests int
	bytes    int64
	elapsed  time.Duration
	cpu      time.Duration // of the server, in all
	times    []time.Duration
}

func (l load) perRequest() time.Duration { return l.cpu / time.Duration(max(1, l.requests)) }
func (l load) rate() float64             { return float64(l.requests) / l.elapsed.Seconds() }
func (l load) size() int64               { return l.bytes / int64(max(1, l.requests)) }

// quantile is the time within which a share of the requests were answered.
func (l load) quantile(share float64) time.Duration {
	if len(l.times) == 0 {
		return 0
	}
	return l.times[min(len(l.times)-1, int(share*float64(len(l.times))))]
}

// operation is what a client does again and again. It is called by one goroutine
// at a time.
type operation func(l *load) error

// errDone is returned by an operation that has nothing left to do.
var errDone = errors.New("done")

// round has so many clients, each made by newClient, do what they do for so long,
// or until they have nothing left to do. The first error ends it.
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
	whole := load{elapsed: time.Since(start)}
	after, err := s.cpu()
	whole.cpu = after - before
	for _, p := range parts {
		whole.requests += p.requests
		whole.bytes += p.bytes
		whole.times = append(whole.times, p.times...)
	}
	slices.Sort(whole.times)
	// One client's error tells as much as all of them.
	if i := slices.IndexFunc(errs, func(err error) bool { return err != nil && !errors.Is(err, errDone) }); i >= 0 {
		return whole, errs[i]
	}
	return whole, err
}

// time counts one operation.
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

// gets is a client that asks for the paths, chosen at random, with a header.
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

// beside has rounds of two in turn, each first in every other round, since who is measured first appears dearer. It
// returns their medians.
func beside(rounds int, one, other func() (load, error)) (a, b load, err error) {
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

// median is the round whose CPU per request is the middle one, with the requests'
// times of all rounds.
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
