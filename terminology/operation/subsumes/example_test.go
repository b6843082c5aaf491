package subsumes_test

import (
	"context"
	"fmt"
	"log"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/operation/subsumes"
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
	parent := parameters.Coding{System: "http://terminology.hl7.org/CodeSystem/v3-ActCode", Code: "_ActHealthInsuranceTypeCode"}
	relation, err := subsumes.Run(ctx, load(ctx), parent, parameters.Coding{Code: "DRUGPOL"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(relation)
	// Output:
	// subsumes
}
