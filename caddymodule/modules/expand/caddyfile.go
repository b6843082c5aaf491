package expand

import (
	"maps"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/crossorigin"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirbase"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
)

// UnmarshalCaddyfile sets up the handler from Caddyfile tokens. Syntax:
//
//	fhir_expand [<matcher>] {
//		fhir_base <path>
//		definitions [backend] <file|folder|pattern...>
//		synonyms english|<file|canonical...>
//		weights <files...>
//		core off
//		operations all
//		max_entries <number>
//		cors <origin|clients|*...>
//		ttl <duration>|off
//		max_size <size>
//		stale <duration> [<while asking>]
//		vary_by user|client|none
//		vary_header <names...>
//		timeout <duration>
//		upstream <url> { … }
//		route <prefix> <url> { … }
//	}
func (h *Expand) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	fields := option.Block{
		"fhir_base":   option.Word(&h.FHIRBase, fhirbase.CheckBase),
		"definitions": h.parseDefinitions,
		"synonyms":    option.Words(&h.Synonyms, nil),
		"weights":     option.Words(&h.Weights, nil),
		"core":        option.Only("off", &h.CoreOff),
		"operations":  option.Only("all", &h.AllOperations),
		"max_entries": option.Number(&h.MaxEntries),
		"cors":        option.Words(&h.CORS, crossorigin.Check),
	}
	maps.Copy(fields, h.Caching.Subdirectives())
	return option.ParseDirective(d, fields, "route")
}

// parseDefinitions reads where definitions are: files, or the word backend.
func (h *Expand) parseDefinitions(d *caddyfile.Dispenser) error {
	var list []string
	err := option.Words(&list, nil)(d)
	for _, w := range list {
		if w == "backend" {
			h.BackendDefinitions = true
		} else {
			h.Definitions = append(h.Definitions, w)
		}
	}
	return err
}

var _ caddyfile.Unmarshaler = (*Expand)(nil)
