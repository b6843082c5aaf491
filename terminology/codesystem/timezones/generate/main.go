// Command generate builds the table of time zones.
package main

import (
	"maps"
	"slices"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem/internal/generate"
)

func main() {
	generate.Readers{"zones.json.zst": zones}.Main()
}

// zones returns the names of time zones, including aliases.
func zones(p generate.Packages) (generate.CodeSystem, error) {
	var file struct{ Zones map[string]any }
	err := p.NPMJSON("tzdata@1.0.51", "timezone-data.json", &file)
	concepts := generate.ConceptsFromCodes(slices.Sorted(maps.Keys(file.Zones)))
	for _, c := range concepts {
		if zone, ok := file.Zones[c.Code].(string); ok {
			c.Property = []generate.Property{{Code: "zone", ValueCode: zone}}
		}
	}
	return generate.NewTable(concepts, "zone"), err
}
