package stores

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
)

// ParseName reads the name of a store module, and the module's own block.
func ParseName(to *json.RawMessage) option.Setter {
	return option.Guest(to, "fhir.stores", "store", checkStore)
}

func checkStore(name string) error {
	var known []string
	for _, module := range caddy.GetModules("fhir.stores") {
		known = append(known, module.ID.Name())
	}
	if !slices.Contains(known, name) {
		return fmt.Errorf("module not registered: fhir.stores.%s%s", name, option.DidYouMean(name, known))
	}
	return nil
}
