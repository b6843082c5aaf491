package translate_test

import (
	"context"
	"fmt"
	"log"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/operation/translate"
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

// Translate with a concept map that is not loaded.
func ExampleRun() {
	ctx := context.Background()
	result, err := translate.Run(ctx, load(ctx), translate.Query{
		ConceptMapRef: translate.ConceptMapRef{ConceptMap: []byte(`{
			"resourceType": "ConceptMap",
			"status": "active",
			"group": [{
				"source": "http://hl7.org/fhir/administrative-gender",
				"target": "http://example.org/sex",
				"element": [{"code": "male", "target": [{"code": "M", "equivalence": "equal"}]}]
			}]
		}`)},
		Codings: []parameters.Coding{{System: "http://hl7.org/fhir/administrative-gender", Code: "male"}},
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, match := range result.Matches {
		fmt.Println(match.Equivalence, match.Concept.System, match.Concept.Code)
	}
	// Output:
	// equal http://example.org/sex M
}
