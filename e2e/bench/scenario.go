package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// system is the URL of the synthetic code system and the prefix of the URLs of its value sets.
const system = "http://example.org/synthetic"

const expand = "/fhir/R4/ValueSet/$expand?"

// point is the cost of requests at one code system size, for the plot.
type point struct {
	concepts int
	typed    load
	respond  load
}

// scenario is a kind of request to measure.
type scenario struct {
	name   string
	paths  []string
	header http.Header // request header
}

// measure starts the gateway with a code system of the given size and runs all scenarios.
func measure(s settings, folder string, concepts int) (p point, err error) {
	definitions := filepath.Join(folder, "synthetic-"+strconv.Itoa(concepts)+".json")
	if err := generate(definitions, concepts); err != nil {
		return p, err
	}
	gateway, err := startExpand(s.binary, folder, "gateway", definitions)
	if err != nil {
		return p, err
	}
	defer func() { err = errors.Join(err, gateway.stop(), os.Remove(definitions)) }()
	typed, err := typedPaths(gateway, query("all"), concepts)
	if err != nil {
		return p, err
	}
	now, peak, err := gateway.resident()
	if err != nil {
		return p, err
	}
	fmt.Printf("\n## %d concepts, %d MiB resident when loaded, %d at most\n\n%s", concepts, now, peak, tableHead)
	all := query("all")
	p = point{concepts: concepts}
	for _, sc := range []scenario{
		{"typed, count=20", flatten(typed), nil},
		{"is-a, count=20", []string{expand + query("tree") + "&count=20"}, nil},
		{"no filter, count=20", []string{expand + all + "&count=20"}, nil},
	} {
		ours, fixed, err := compare(s, folder, gateway, sc)
		if err != nil {
			return p, fmt.Errorf("%s: %w", sc.name, err)
		}
		printRow(sc.name, ours, fixed)
		if sc.name == "typed, count=20" {
			p.typed, p.respond = ours, fixed
		}
	}
	if err := measureLengths(s, gateway, typed); err != nil {
		return p, err
	}
	return p, measureFullExpansion(s, gateway, expand+all)
}

// startExpand starts a gateway with the definitions and no cache.
func startExpand(binary, folder, name, definitions string) (*server, error) {
	return start(binary, folder, site{
		name:   name,
		routes: "\tfhir_expand {\n\t\tcore off\n\t\tdefinitions " + definitions + "\n\t\tmax_entries 1000000\n\t\tttl off\n\t}",
	})
}

// compare runs rounds against the gateway and, in turn, against a fixed response of the same size.
func compare(s settings, folder string, gateway *server, sc scenario) (ours, fixed load, err error) {
	warm, err := gateway.round(gateway.gets(sc.paths, sc.header), s.clients, s.round/2)
	if err != nil {
		return ours, fixed, err
	}
	respond, err := startRespond(s.binary, folder, int(warm.size()))
	if err != nil {
		return ours, fixed, err
	}
	defer func() { err = errors.Join(err, respond.stop()) }()
	return alternate(s.rounds,
		func() (load, error) { return gateway.round(gateway.gets(sc.paths, sc.header), s.clients, s.round) },
		func() (load, error) { return respond.round(respond.gets([]string{"/"}, nil), s.clients, s.round) })
}

// startRespond runs stock Caddy's respond directive with a body of the given size in bytes.
func startRespond(binary, folder string, size int) (*server, error) {
	body := strings.Repeat("x", size)
	return start(binary, folder, site{name: "respond", options: proxied, routes: "\theader Content-Type application/fhir+json\n\trespond " + body})
}

// measureLengths measures requests separately for each length of the typed text.
func measureLengths(s settings, gateway *server, typed [][]string) error {
	fmt.Printf("\n%s", lengthsHead)
	for i, paths := range typed {
		if len(paths) == 0 {
			continue
		}
		l, err := gateway.round(gateway.gets(paths, nil), s.clients, s.round)
		if err != nil {
			return err
		}
		printLength(i+1, l)
	}
	now, peak, err := gateway.resident()
	fmt.Printf("\nUnder this load: %d MiB resident, %d at most.\n", now, peak)
	return err
}

// measureFullExpansion measures an expansion of all concepts in one response.
func measureFullExpansion(s settings, gateway *server, path string) error {
	l, err := gateway.round(gateway.gets([]string{path}, nil), 1, s.round)
	if err != nil {
		return err
	}
	now, peak, err := gateway.resident()
	fmt.Printf("\nUnpaged: %d MB in one answer, %.0f MB/s, %d MiB resident afterwards, %d at most.\n",
		l.size()/1e6, float64(l.bytes)/1e6/l.elapsed.Seconds(), now, peak)
	return err
}

func query(valueSet string) string { return "url=" + url.QueryEscape(system+"/"+valueSet) }

// longest is the maximum length of the typed prefixes in characters.
const longest = 10

// typedPaths returns the requests of a user who types words and codes of a value set letter by letter. They are grouped by length,
// starting at 1.
func typedPaths(gateway *server, valueSet string, concepts int) ([][]string, error) {
	sample, err := sampleConcepts(gateway, valueSet, concepts)
	paths := make([][]string, longest)
	for _, c := range sample {
		for _, text := range append(strings.Fields(c.Display), c.Code) {
			text = strings.TrimLeft(text, "[(^") // people type words without brackets
			addTyped(paths, valueSet, []rune(text))
		}
	}
	return paths, err
}

// coding is the code and display of a concept.
type coding struct{ Code, Display string }

// sampleConcepts returns a few hundred random concepts of a value set.
func sampleConcepts(gateway *server, valueSet string, concepts int) (sample []coding, err error) {
	for range 20 {
		page := fmt.Sprintf("%s%s&offset=%d&count=20", gateway.url+expand, valueSet, rand.IntN(max(1, concepts-20)))
		r, err := http.Get(page)
		if err != nil {
			return nil, err
		}
		var answer struct {
			Expansion struct{ Contains []coding }
		}
		err = json.NewDecoder(r.Body).Decode(&answer)
		if err := errors.Join(err, r.Body.Close()); err != nil {
			return nil, err
		}
		sample = append(sample, answer.Expansion.Contains...)
	}
	return sample, nil
}

func addTyped(paths [][]string, valueSet string, text []rune) {
	for n := 1; n <= min(len(text), longest); n++ {
		paths[n-1] = append(paths[n-1], filterPath(valueSet, string(text[:n])))
	}
}

// filterPath returns the path that requests the first page of an expansion with the filter.
func filterPath(valueSet, filter string) string {
	return expand + valueSet + "&count=20&filter=" + url.QueryEscape(filter)
}

func flatten(lists [][]string) (all []string) {
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}
