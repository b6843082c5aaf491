package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
)

// generate writes a synthetic code system and its value sets as a Bundle.
func generate(file string, concepts int) (err error) {
	c := terminologytest.CodeSystem{URL: system, Concepts: concepts, Designations: 3, Seed: 1}
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
