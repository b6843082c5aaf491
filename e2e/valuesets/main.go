// Command valuesets reports how many value sets can be expanded, and what content is missing for the others. It checks the
// built-in value sets of FHIR R4, and those in packages, files or folders:
//
//	cd e2e && go run ./valuesets node/packages/hl7.terminology.r4-7.0.1.tgz
//
// docs/evidence/valuesets.md describes where to get the package. TestEveryValueSet performs the same check through a gateway.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/expansion"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	_ "github.com/caddy-fhir/caddy-fhir/terminology/standard" // registers the code systems
)

func main() {
	log.SetFlags(0)
	l, err := terminology.Load(context.Background(), definitions.Options{Core: true, Definitions: os.Args[1:]})
	if err != nil {
		log.Fatal(err)
	}
	lacking, all, expanded := make(map[string][]string), make(map[string]bool), 0
	for _, vs := range l.Definitions().ValueSets.List {
		if all[vs.URL] {
			continue
		}
		all[vs.URL] = true
		if lack := expand(l, vs.URL); lack != "" {
			lacking[lack] = append(lacking[lack], vs.URL)
		} else {
			expanded++
		}
	}
	fmt.Printf("%d of %d value sets expand. The others lack:\n\n| Value sets | What is missing |\n|---:|---|\n", expanded, len(all))
	by := func(a, b string) int { return cmp.Or(len(lacking[b])-len(lacking[a]), cmp.Compare(a, b)) }
	for _, lack := range slices.SortedFunc(maps.Keys(lacking), by) {
		fmt.Printf("| %d | %s |\n", len(lacking[lack]), lack)
	}
	if os.Getenv("VERBOSE") != "" {
		for lack, urls := range lacking {
			fmt.Printf("\n%s\n\t%s\n", lack, strings.Join(urls, "\n\t"))
		}
	}
}

// expand expands a value set and returns its missing content, or "".
func expand(l *terminology.Library, url string) string {
	none := 0
	q := expansion.Query{Page: expansion.Page{Count: &none}}
	q.URL = url
	_, err := l.Expand(context.Background(), q)
	if err == nil {
		return ""
	}
	if failed, ok := errors.AsType[*outcome.Error](err); ok && len(failed.Missing) > 0 {
		systems, missing := &l.Definitions().Systems, failed.Missing[0]
		system, _, _ := strings.Cut(missing.Canonical, "|")
		if index := systems.CodeSystem(system, ""); index != definitions.None && systems.CodeSystems[index].Content.HasConcepts() {
			return "the version that they name of a code system that is here in another"
		}
		return missing.ResourceType + " `" + system + "`"
	}
	return err.Error()
}
