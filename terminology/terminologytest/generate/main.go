// Command generate writes a synthetic code system and its value sets as a Bundle:
//
//	go run ./terminology/terminologytest/generate -url http://example.org/synthetic -concepts 100000 -designations 3 -o synthetic.json
package main

import (
	"errors"
	"flag"
	"fmt"
	"log"
	"os"

	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
)

func main() {
	log.SetFlags(0)
	var c terminologytest.CodeSystem
	flag.StringVar(&c.URL, "url", "http://example.org/synthetic", "canonical of the code system")
	flag.IntVar(&c.Concepts, "concepts", 100_000, "number of concepts")
	flag.IntVar(&c.Designations, "designations", 3, "designations of each concept")
	flag.Uint64Var(&c.Seed, "seed", 1, "what makes the content differ from that of another seed")
	file := flag.String("o", "", "file to write")
	flag.Parse()
	if err := write(*file, c); err != nil {
		log.Fatal(err)
	}
}

func write(file string, c terminologytest.CodeSystem) (err error) {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := fmt.Fprint(f, `{"resourceType":"Bundle","type":"collection","entry":[{"resource":`); err != nil {
		return err
	}
	if err := c.Write(f); err != nil {
		return err
	}
	all, tree := c.ValueSets()
	_, err = fmt.Fprintf(f, "},{\"resource\":%s},{\"resource\":%s}]}\n", all, tree)
	return err
}
