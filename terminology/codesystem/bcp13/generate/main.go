// Command generate builds the table of media types.
package main

import (
	"maps"
	"slices"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem/internal/generate"
)

func main() {
	generate.Readers{"media-types.json.zst": mediaTypes}.Main()
}

// mediaTypes returns the media types registered with IANA and common unregistered ones.
func mediaTypes(p generate.Packages) (generate.CodeSystem, error) {
	var types map[string]struct{}
	err := p.NPMJSON("mime-db@1.54.0", "db.json", &types)
	table := generate.NewTable(generate.ConceptsFromCodes(slices.Sorted(maps.Keys(types))))
	table.CaseSensitive = false // media types are case-insensitive (RFC 2045 §5.1)
	return table, err
}
