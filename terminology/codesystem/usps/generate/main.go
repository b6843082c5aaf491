// Command generate builds the table of states.
package main

import (
	_ "embed"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem/internal/generate"
)

func main() {
	generate.Readers{"states.json.zst": states}.Main()
}

//go:embed states.txt
var stateLines string

// states returns the states and possessions of USPS Publication 28, Appendix B.
func states(generate.Packages) (generate.CodeSystem, error) {
	var concepts []*generate.Concept
	for line := range strings.Lines(stateLines) {
		code, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		concepts = append(concepts, &generate.Concept{Code: code, Display: name})
	}
	return generate.NewTable(concepts), nil
}
