package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"
)

const (
	// scanned is the number of random filters, each requested once.
	scanned = 1_000_000

	// honest is the number of different queries of users, Zipf-distributed. Each of these queries is followed by four random
	// filters.
	honest = 2_000

	// scanMaxSize is the maximum size of the cache in MiB.
	scanMaxSize = 16
)

// measureScan measures the effect of a million random filters on the memory of the
// gateway and on the hit rate of users.
func measureScan(s settings, folder string) (err error) {
	definitions := filepath.Join(folder, "scanned.json")
	if err := generate(definitions, 10_000); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(definitions)) }()
	gateway, err := start(s.binary, folder, site{
		name: "scan", options: proxied,
		routes: fmt.Sprintf("\tfhir_expand {\n\t\tcore off\n\t\tdefinitions %s\n\t\tmax_size %dMiB\n\t}", definitions, scanMaxSize),
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, gateway.stop()) }()
	fmt.Printf("\n## A scan, with max_size %d MiB\n\n| | answered from the cache | resident | at most |\n|---|--:|--:|--:|\n", scanMaxSize)
	for _, phase := range []struct {
		name     string
		honest   int
		scanning bool
	}{
		{"to warm up", 10 * honest, false},
		{"people alone", scanned / 4, false},
		{"people, and a million random filters", scanned / 4, true},
		{"people alone, after that", 10 * honest, false},
	} {
		rate, err := gateway.mixed(s, phase.honest, phase.scanning)
		if err != nil {
			return fmt.Errorf("%s: %w", phase.name, err)
		}
		now, peak, err := gateway.resident()
		if err != nil {
			return err
		}
		fmt.Printf("| %s | %.1f %% | %d MiB | %d MiB |\n", phase.name, rate, now, peak)
	}
	return nil
}

// mixed sends the given number of honest queries, each followed by four random ones if scanning is true. It returns the hit
// rate of the honest queries in percent.
func (s *server) mixed(of settings, questions int, scanning bool) (float64, error) {
	var remaining, hits atomic.Int64
	remaining.Store(int64(questions))
	client := &http.Client{Transport: transport, Timeout: 30 * time.Second}
	_, err := s.round(func(i int) operation {
		zipf := rand.NewZipf(rand.New(rand.NewPCG(uint64(i), 1)), 1.1, 1, honest-1)
		return func(*load) error {
			if remaining.Add(-1) < 0 {
				return errDone
			}
			hit, err := s.fromCache(client, expand+query("all")+fmt.Sprintf("&count=20&offset=%d", zipf.Uint64()))
			if hit {
				hits.Add(1)
			}
			for n := 0; scanning && n < 4 && err == nil; n++ {
				_, err = s.fromCache(client, expand+query("all")+"&count=20&filter="+url.QueryEscape(randomText()[:8]))
			}
			return err
		}
	}, of.clients, 10*time.Minute)
	return 100 * float64(hits.Load()) / float64(questions), err
}

// fromCache requests a path and reports whether the response came from the cache.
func (s *server) fromCache(client *http.Client, path string) (bool, error) {
	r, err := client.Get(s.url + path)
	if err != nil {
		return false, err
	}
	body, err := drain(r)
	if err == nil && r.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: status %d: %s", path, r.StatusCode, body)
	}
	return strings.Contains(r.Header.Get("Cache-Status"), "; hit"), err
}
