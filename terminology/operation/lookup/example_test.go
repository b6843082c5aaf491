package lookup_test

import (
	"context"
	"fmt"
	"log"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/operation/lookup"
	"github.com/caddy-fhir/caddy-fhir/terminology/parameters"
)

// load returns a library with the built-in code systems and value sets of FHIR R4.
func load(ctx context.Context) *terminology.Library {
	library, err := terminology.Load(ctx, definitions.Options{Core: true})
	if err != nil {
		log.Fatal(err)
	}
	return library
}

func ExampleRun() {
	ctx := context.Background()
	concept, err := lookup.Run(load(ctx), lookup.Query{
		Coding:     parameters.Coding{System: "http://terminology.hl7.org/CodeSystem/v3-ActCode", Code: "DRUGPOL"},
		Properties: []string{"parent"},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(concept.Name, concept.Display)
	for _, p := range concept.Properties {
		fmt.Println(p.Code, p.Value)
	}
	// Output:
	// v3.ActCode drug policy
	// parent _ActHealthInsuranceTypeCode
}
