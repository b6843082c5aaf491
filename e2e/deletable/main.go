// Command deletable checks that each feature can be deleted separately. In a copy of the repository, it deletes the feature's
// folder and its import line, and then builds, vets and tests the rest, except for packages that test the complete standard
// build (documents, conformance).
//
//	cd e2e && go run ./deletable                      every feature
//	cd e2e && go run ./deletable -only ucum,lookup    some, by folder name
//	cd e2e && go run ./deletable -some 3 -seed 17     a random sample
//	cd e2e && go run ./deletable -list                prints the folders
//
// A feature is a package that a list imports with the blank identifier. The lists are the files caddymodule/*.go and the
// packages that contain nothing but such imports. Imports with a comment that begins with "core" are not features.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/e2e/feature"
)

const module = "github.com/caddy-fhir/caddy-fhir"

func main() {
	log.SetFlags(0)
	root := flag.String("root", "..", "folder of the repository")
	only := flag.String("only", "", "names of the features to delete, separated by commas; default: all")
	some := flag.Int("some", 0, "number of features to choose at random; 0: all")
	seed := flag.Uint64("seed", uint64(time.Now().UnixNano()), "seed of that choice")
	list := flag.Bool("list", false, "print the features and delete none")
	var c check
	flag.BoolVar(&c.vetOnly, "vet", false, "build and vet only")
	flag.StringVar(&c.tests, "tests", "./...", "packages to test, separated by spaces")
	flag.Parse()
	features, err := feature.Find(*root, module)
	if err == nil {
		features, err = choose(features, *only, *some, *seed)
	}
	if err != nil {
		log.Fatal(err)
	}
	if *list {
		for _, f := range features {
			fmt.Println(f.Folder)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	failed, err := c.run(ctx, *root, features)
	stop()
	switch {
	case err != nil:
		log.Fatal(err)
	case failed > 0:
		log.Fatalf("%d of %d features cannot be deleted (seed %d)", failed, len(features), *seed)
	}
}

// choose returns the features with the given comma-separated names, or the given number of random features.
func choose(features []feature.Feature, only string, some int, seed uint64) ([]feature.Feature, error) {
	if only != "" {
		var chosen []feature.Feature
		for name := range strings.SplitSeq(only, ",") {
			i := slices.IndexFunc(features, func(f feature.Feature) bool { return f.Name() == name || f.Folder == name })
			if i < 0 {
				return nil, fmt.Errorf("no feature %s", name)
			}
			chosen = append(chosen, features[i])
		}
		return chosen, nil
	}
	if some > 0 && some < len(features) {
		rand.New(rand.NewPCG(seed, 0)).Shuffle(len(features), func(i, k int) { features[i], features[k] = features[k], features[i] })
		features = features[:some]
	}
	return features, nil
}
