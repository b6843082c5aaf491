package caddymodule

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/caddyserver/caddy/v2"
)

// parseStore reads the name of a store module, and the module's own block.
func parseStore(to *json.RawMessage) setter { return guest(to, "fhir.stores", "store", checkStore) }

func checkStore(name string) error {
	var known []string
	for _, module := range caddy.GetModules("fhir.stores") {
		known = append(known, module.ID.Name())
	}
	if !slices.Contains(known, name) {
		return fmt.Errorf("module not registered: fhir.stores.%s%s", name, didYouMean(name, known))
	}
	return nil
}
