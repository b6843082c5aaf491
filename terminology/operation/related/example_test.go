package related_test

import (
	"context"
	"fmt"
	"log"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/expansion"
	"github.com/caddy-fhir/caddy-fhir/terminology/operation/related"
)

// Compare a new version of a value set with the loaded one.
func ExampleRun() {
	ctx := context.Background()
	library, err := terminology.Load(ctx, definitions.Options{Core: true})
	if err != nil {
		log.Fatal(err)
	}
	result, err := related.Run(ctx, library, related.Query{
		This: expansion.ValueSetRef{ValueSet: jsontext.Value(`{"resourceType":"ValueSet","url":"http://hl7.org/fhir/ValueSet/administrative-gender",
			"compose":{"include":[{"system":"http://hl7.org/fhir/administrative-gender","concept":[{"code":"male"},{"code":"female"}]}]}}`)},
		Other: expansion.ValueSetRef{URL: "http://hl7.org/fhir/ValueSet/administrative-gender"},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(result.Relation)
	// Output:
	// subset
}
