package terminology_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"math"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/expansion"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

// load returns a library with the built-in code systems and value sets of FHIR R4.
func load(ctx context.Context) *terminology.Library {
	library, err := terminology.Load(ctx, definitions.Options{Core: true})
	if err != nil {
		log.Fatal(err)
	}
	return library
}

// Search a pick list while the user types.
func ExampleLibrary_Expand() {
	ctx := context.Background()
	expansion, err := load(ctx).Expand(ctx, expansion.Query{
		ValueSetRef: expansion.ValueSetRef{URL: "http://hl7.org/fhir/ValueSet/administrative-gender"},
		Page:        expansion.Page{Filter: "ma", Count: new(10)},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("found:", expansion.Total())
	for code := range expansion.Codes() {
		fmt.Printf("%s|%s %q\n", code.System, code.Code, code.Display)
	}
	for _, p := range expansion.Parameters() {
		fmt.Printf("%s=%s\n", p.Name, p.Value)
	}
	// Output:
	// found: 1
	// http://hl7.org/fhir/administrative-gender|male "Male"
	// filter=ma
	// count=10
	// used-codesystem=http://hl7.org/fhir/administrative-gender|4.0.1
}

// Expand a value set defined by the program from loaded codes.
func ExampleLibrary_Expand_valueSet() {
	ctx := context.Background()
	expansion, err := load(ctx).Expand(ctx, expansion.Query{ValueSetRef: expansion.ValueSetRef{ValueSet: []byte(`{
		"resourceType": "ValueSet",
		"status": "active",
		"compose": {"include": [{
			"system": "http://terminology.hl7.org/CodeSystem/v3-ActCode",
			"filter": [{"property": "concept", "op": "child-of", "value": "_ActCoverageTypeCode"}]
		}]}
	}`)}})
	if err != nil {
		log.Fatal(err)
	}
	for code := range expansion.Codes() {
		fmt.Println(code.Code, code.Abstract, code.Display)
	}
	// Output:
	// _ActInsurancePolicyCode true ActInsurancePolicyCode
	// _ActInsuranceTypeCode true ActInsuranceTypeCode
	// _ActProgramTypeCode true ActProgramTypeCode
}

// An error lists the missing definitions, so that the caller can obtain them elsewhere.
func ExampleError() {
	ctx := context.Background()
	_, err := load(ctx).Expand(ctx, expansion.Query{ValueSetRef: expansion.ValueSetRef{URL: "http://example.org/ValueSet/unknown"}})
	if failed, ok := errors.AsType[*outcome.Error](err); ok {
		fmt.Println(errors.Is(err, outcome.ErrUnknown), failed.Code, failed.Missing[0])
	}
	// Output:
	// true not-found ValueSet http://example.org/ValueSet/unknown
}

func TestPageIsChecked(t *testing.T) {
	for _, page := range []expansion.Page{{Offset: new(-1)}, {Count: new(-1)}, {Offset: new(1), Count: new(math.MaxInt)}} {
		q := expansion.Query{ValueSetRef: expansion.ValueSetRef{URL: "http://hl7.org/fhir/ValueSet/administrative-gender"}, Page: page}
		if _, err := load(t.Context()).Expand(t.Context(), q); err == nil && (page.Count == nil || *page.Count != math.MaxInt32) {
			t.Errorf("page %+v: got no error", page)
		}
	}
}

// Definitions sent with a request take precedence over loaded ones for that request.
func ExampleLibrary_WithResources() {
	ctx := context.Background()
	library, err := load(ctx).WithResources([]byte(`{
		"resourceType": "CodeSystem",
		"url": "http://example.org/sex",
		"content": "complete",
		"concept": [{"code": "M", "display": "Male"}]
	}`))
	if err != nil {
		log.Fatal(err)
	}
	expansion, err := library.Expand(ctx, expansion.Query{ValueSetRef: expansion.ValueSetRef{URL: "http://example.org/sex?fhir_vs"}})
	if err != nil {
		log.Fatal(err)
	}
	for code := range expansion.Codes() {
		fmt.Println(code.Code, code.Display)
	}
	// Output:
	// M Male
}

func ExampleLibrary_Capabilities() {
	for _, system := range load(context.Background()).Capabilities().CodeSystems[:2] {
		fmt.Println(system.URI, system.DefaultVersion)
	}
	// Output:
	// http://hl7.org/fhir/CodeSystem/example 4.0.1
	// http://healthit.gov/nhin/purposeofuse 2.0
}
