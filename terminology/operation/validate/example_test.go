package validate_test

import (
	"context"
	"fmt"
	"log"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/expansion"
	"github.com/caddy-fhir/caddy-fhir/terminology/operation/validate"
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

// Validate a code with a wrong display.
func ExampleInValueSet() {
	ctx := context.Background()
	result, err := validate.InValueSet(ctx, load(ctx), validate.Query{
		ValueSetRef: expansion.ValueSetRef{URL: "http://hl7.org/fhir/ValueSet/administrative-gender"},
		Codings:     []parameters.Coding{{System: "http://hl7.org/fhir/administrative-gender", Code: "male", Display: "Man"}},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(result.Valid, result.Found.Display)
	for _, issue := range result.Issues {
		fmt.Printf("%s at %s: %s\n", issue.Severity, issue.Expression[0], issue.Text)
	}
	// Output:
	// false Male
	// error at display: Wrong Display Name 'Man' for http://hl7.org/fhir/administrative-gender#male. Valid display is 'Male' (for the language(s) '--')
}

func ExampleInCodeSystem() {
	ctx := context.Background()
	result, err := validate.InCodeSystem(ctx, load(ctx), validate.Query{
		Codings: []parameters.Coding{{System: "http://hl7.org/fhir/administrative-gender", Code: "other"}},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(result.Valid, result.Found.Version, result.Found.Display)
	// Output:
	// true 4.0.1 Other
}
