package expand

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
)

var errNoExpand = errors.New("there is no fhir_expand in it")

// configuredExpands returns the handlers of a configuration that load different definitions, in its order.
func configuredExpands(path, adapter string) (handlers []*Expand, err error) {
	if strings.EqualFold(filepath.Ext(path), ".json") {
		adapter = ""
	}
	text, path, _, err := caddycmd.LoadConfig(path, adapter)
	if err != nil {
		return nil, err
	}
	if text == nil {
		return nil, errors.New("no configuration: name one with --config")
	}
	var config any
	if err := json.Unmarshal(text, &config); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	seen := map[string]bool{}
	err = eachExpand(config, func(h *Expand) {
		o := h.definitionOptions()
		if key := definitionsKey(&o); !seen[key] {
			seen[key] = true
			handlers = append(handlers, h)
		}
	})
	if err == nil && len(handlers) == 0 {
		err = errNoExpand
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return handlers, nil
}

// eachExpand visits the handlers within a configuration in JSON.
func eachExpand(value any, visit func(*Expand)) error {
	switch v := value.(type) {
	case []any:
		for _, element := range v {
			if err := eachExpand(element, visit); err != nil {
				return err
			}
		}
	case map[string]any:
		if v["handler"] == "fhir_expand" {
			h, err := expandOf(v)
			if err == nil {
				visit(h)
			}
			return err
		}
		for _, name := range slices.Sorted(maps.Keys(v)) { // always in the same order
			if err := eachExpand(v[name], visit); err != nil {
				return err
			}
		}
	}
	return nil
}

func expandOf(settings map[string]any) (*Expand, error) {
	text, err := json.Marshal(settings)
	if err != nil {
		return nil, err
	}
	h := new(Expand)
	if err := json.Unmarshal(text, h); err != nil {
		return nil, fmt.Errorf("fhir_expand: %w", err)
	}
	return h, nil
}
