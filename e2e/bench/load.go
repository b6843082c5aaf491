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

// round sends requests for the paths, chosen at random, by so many clients for so
// long. The first answer that is not 200 ends it.
func (s *server) round(paths []string, clients int, length time.Duration) (load, error) {
	transport := &http.Transport{MaxIdleConnsPerHost: clients, DisableCompression: true}
	defer transport.CloseIdleConnections()
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
		all.Go(func() {
			client := http.Client{Transport: transport, Timeout: 30 * time.Second}
			for ctx.Err() == nil && errs[i] == nil {
				errs[i] = parts[i].get(&client, s.url+paths[rand.IntN(len(paths))])
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
	return whole, errors.Join(append(errs, err)...)
}

func (l *load) get(client *http.Client, url string) error {
	start := time.Now()
	r, err := client.Get(url)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	n, err := io.Copy(io.Discard, r.Body)
	if err == nil && r.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: status %d", url, r.StatusCode)
	}
	l.requests++
	l.bytes += n
	l.times = append(l.times, time.Since(start))
	return err
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
