// Command synthetic creates and loads a synthetic code system. It prints the cost of loading and the duration of searches in
// one process, for docs/evidence/performance.md:
//
//	cd e2e && go run ./synthetic -concepts 500000 -designations 3
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/expansion"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
)

func main() {
	concepts := flag.Int("concepts", 100_000, "number of concepts")
	designations := flag.Int("designations", 3, "number of designations of each")
	workers := flag.Int("workers", 10, "how many ask at once")
	flag.Parse()
	cs := terminologytest.CodeSystem{URL: "http://example.org/synthetic", Concepts: *concepts, Designations: *designations}
	if err := measure(cs, *workers); err != nil {
		slog.Error("failed", slog.Any("error", err))
		os.Exit(1)
	}
}

// measure takes and prints all measurements.
func measure(cs terminologytest.CodeSystem, workers int) (err error) {
	folder, err := os.MkdirTemp("", "synthetic")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	size, err := write(cs, folder)
	if err != nil {
		return err
	}
	start := time.Now()
	l, err := terminology.Load(context.Background(), definitions.Options{
		Definitions: []string{folder}, Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})), Terminal: definitions.Terminal(os.Stderr),
	})
	if err != nil {
		return err
	}
	fmt.Printf("load of %d concepts with %d designations, %.0f MB of JSON: %.1f s\n", cs.Concepts, cs.Designations,
		float64(size)/1e6, time.Since(start).Seconds())
	memory()
	h := &api.Handler{Library: l, Limits: expansion.Limits{Entries: cs.Concepts}}
	if err := measureFullExpansion(h, cs.URL+"/all"); err != nil {
		return err
	}
	if err := measureTyping(h, cs, workers); err != nil {
		return err
	}
	if err := measureRepeated(h, "is-a, count=20", workers, "url", cs.URL+"/tree", "count", "20"); err != nil {
		return err
	}
	memory()
	runtime.KeepAlive(h)
	return nil
}

// write writes the definitions to folder and returns their size in bytes.
func write(cs terminologytest.CodeSystem, folder string) (size int64, err error) {
	f, err := os.Create(filepath.Join(folder, "codesystem.json"))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := cs.Write(f); err != nil {
		return 0, err
	}
	all, tree := cs.ValueSets()
	if err := os.WriteFile(filepath.Join(folder, "valuesets.json"), []byte(all+tree), 0o600); err != nil {
		return 0, err
	}
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// memory prints the current and the maximum resident memory of this process (Linux only).
func memory() {
	runtime.GC()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return
	}
	for line := range strings.Lines(string(status)) {
		if name, value, _ := strings.Cut(line, ":"); name == "VmHWM" || name == "VmRSS" {
			fmt.Printf("%s: %s\n", map[string]string{"VmHWM": "resident at most", "VmRSS": "resident"}[name], strings.TrimSpace(value))
		}
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	fmt.Printf("heap: %d kB\n", m.HeapAlloc/1000)
}

// sendRequest sends one $expand request to the handler. pairs are names and values of parameters.
func sendRequest(h *api.Handler, w http.ResponseWriter, pairs ...string) error {
	values := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		values.Set(pairs[i], pairs[i+1])
	}
	return h.Expand(w, &http.Request{Method: http.MethodGet, Header: http.Header{}, URL: &url.URL{Path: "/ValueSet/$expand", RawQuery: values.Encode()}})
}

// counter is a response writer that counts the bytes of the body.
type counter struct {
	header http.Header
	n      int
}

func (c *counter) Header() http.Header { return c.header }
func (c *counter) WriteHeader(int)     {}
func (c *counter) Write(p []byte) (int, error) {
	c.n += len(p)
	return len(p), nil
}

// measureFullExpansion measures the first unpaged expansion and subsequent ones.
func measureFullExpansion(h *api.Handler, valueSet string) error {
	for _, name := range []string{"unpaged expansion, first time", "unpaged expansion", "unpaged expansion"} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		w, start := &counter{header: http.Header{}}, time.Now()
		if err := sendRequest(h, w, "url", valueSet); err != nil {
			return err
		}
		took := time.Since(start)
		runtime.ReadMemStats(&after)
		fmt.Printf("%s: %.1f MB in %v, %.0f MB/s, %.1f MB allocated\n", name, float64(w.n)/1e6, took.Round(time.Millisecond),
			float64(w.n)/1e6/took.Seconds(), float64(after.TotalAlloc-before.TotalAlloc)/1e6)
	}
	return nil
}

// measureTyping measures requests with prefixes of typed words, grouped by length.
func measureTyping(h *api.Handler, cs terminologytest.CodeSystem, workers int) error {
	fmt.Println("| letters | p50 | p99 | max | entries on average |\n|---|---|---|---|---|")
	var all []string
	for length := 1; length <= 10; length++ {
		var filters []string
		for _, typed := range cs.SearchTexts(1000) {
			if runes := []rune(typed); len(runes) >= length {
				filters = append(filters, string(runes[:length]))
			}
		}
		all = append(all, filters...)
		found := 0
		for _, filter := range filters[:min(50, len(filters))] {
			w := httptest.NewRecorder()
			if err := sendRequest(h, w, "url", cs.URL+"/all", "filter", filter, "count", "20"); err != nil {
				return err
			}
			found += bytes.Count(w.Body.Bytes(), []byte(`"code":`))
		}
		t, err := run(workers, 200*workers, func(i int) error {
			return sendRequest(h, &counter{header: http.Header{}}, "url", cs.URL+"/all", "filter", filters[i%len(filters)], "count", "20")
		})
		if err != nil {
			return err
		}
		fmt.Printf("| %d | %v | %v | %v | %.1f |\n", length, t.at(0.5), t.at(0.99), t.at(1), float64(found)/50)
	}
	start := time.Now()
	for _, filter := range all {
		if err := sendRequest(h, &counter{header: http.Header{}}, "url", cs.URL+"/all", "filter", filter, "count", "20"); err != nil {
			return err
		}
	}
	fmt.Printf("one at a time, all lengths: %v on average\n", (time.Since(start) / time.Duration(len(all))).Round(100*time.Nanosecond))
	return nil
}

// measureRepeated measures repetitions of the same request.
func measureRepeated(h *api.Handler, name string, workers int, pairs ...string) error {
	t, err := run(workers, 1000*workers, func(int) error { return sendRequest(h, &counter{header: http.Header{}}, pairs...) })
	if err != nil {
		return err
	}
	fmt.Printf("%s: p50 %v, p99 %v, max %v\n", name, t.at(0.5), t.at(0.99), t.at(1))
	return nil
}
