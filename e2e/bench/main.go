package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
	"time"
)

// settings are the command's flags.
type settings struct {
	binary, plot string
	before       string // binary of an earlier gateway to compare with
	sizes        []int
	rounds       int
	round        time.Duration
	clients      int
	durable      string        // value of the flag -durable: the store of refresh tokens
	operations   int           // operations per round against Keycloak
	soak         time.Duration // length of the load before memory is measured again, in clinical
}

func main() {
	log.SetFlags(0)
	var s settings
	var sizes string
	flag.StringVar(&s.binary, "caddy", "../caddy", "the built gateway")
	flag.StringVar(&s.before, "before", "", "an earlier gateway to compare with, in typing, authorize and cache")
	flag.StringVar(&s.plot, "plot", "", "file to draw cost against size into (.svg or .png)")
	flag.StringVar(&sizes, "sizes", "1000,10000,100000,500000", "concepts of the synthetic code systems")
	flag.IntVar(&s.rounds, "rounds", 5, "rounds of each scenario")
	flag.DurationVar(&s.round, "round", 2*time.Second, "length of a round")
	flag.IntVar(&s.clients, "clients", 10, "clients at once")
	flag.StringVar(&s.durable, "durable", "file", "where refresh tokens lie in authorize: file or memory")
	flag.IntVar(&s.operations, "operations", 1000, "operations of each round in keycloak; of the cheap ones, four or eight times as many")
	flag.DurationVar(&s.soak, "soak", time.Minute, "load before memory is measured again, in clinical")
	flag.Parse()
	for size := range strings.SplitSeq(sizes, ",") {
		n, err := strconv.Atoi(size)
		if err != nil || n < 10 {
			log.Fatalf("-sizes: %q is no number of concepts", size)
		}
		s.sizes = append(s.sizes, n)
	}
	if err := run(s, flag.Args()); err != nil {
		log.Fatal(err)
	}
}

// run runs the named measurements, or the default ones if names is empty.
func run(s settings, names []string) error {
	folder, err := os.MkdirTemp("", "bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	subjects := map[string]func(settings, string) error{
		"expand": measureExpansions, "cache": measureCache, "scan": measureScan, "authorize": measureAuthorization, "flood": measureFlood, "launch": measureLaunches, "typing": measureTyping, "keycloak": compareWithKeycloak,
		"clinical": measureClinical,
	}
	if len(names) == 0 {
		names = []string{"expand", "cache", "scan", "authorize", "flood", "launch"}
	}
	for _, name := range names {
		measure := subjects[name]
		if measure == nil {
			return fmt.Errorf("%q is not one of expand, cache, scan, authorize, flood, launch, typing, keycloak and clinical", name)
		}
		if err := measure(s, folder); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// measureExpansions measures expansions of each size and prints the tables.
func measureExpansions(s settings, folder string) error {
	var points []point
	for _, size := range s.sizes {
		p, err := measure(s, folder, size)
		if err != nil {
			return fmt.Errorf("%d concepts: %w", size, err)
		}
		points = append(points, p)
	}
	if s.plot == "" {
		return nil
	}
	return drawCost(s.plot, points)
}
