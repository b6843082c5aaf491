package caddymodule

import (
	"maps"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
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
//		max_filter_length <bytes>
//		max_filter_words <number>
//		max_body <size>
//		max_resources <number>
//		max_remembered <size>
//		max_import_depth <number>
//		max_gathered <number>
//		max_regex_states <number>
//		max_cached_entries <number>
//		cors <origin|clients|*...>
//		ttl <duration>|off
//		max_size <size>
//		stale <duration> [<while asking>]
//		max_age <duration>
//		negative_ttl <duration>
//		failure_ttl <duration>|off
//		vary_by user|client|none
//		vary_header <names...>
//		persist [<folder>]
//		timeout <duration>
//		upstream <url> { … }
//		route <prefix> <url> { … }
//		pull_through <filters> [<entries>]|off
//		watch_interval <duration>
//	}
func (h *Expand) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	fields := subdirectives{
		"fhir_base":          word(&h.FHIRBase, checkFHIRBase),
		"definitions":        h.parseDefinitions,
		"synonyms":           words(&h.Synonyms, nil),
		"weights":            words(&h.Weights, nil),
		"core":               only("off", &h.CoreOff),
		"operations":         only("all", &h.AllOperations),
		"max_entries":        number(&h.MaxEntries),
		"max_filter_length":  number(&h.MaxFilterLength),
		"max_filter_words":   number(&h.MaxFilterWords),
		"max_body":           size(&h.MaxBody),
		"max_resources":      number(&h.MaxResources),
		"max_remembered":     size(&h.MaxRemembered),
		"max_import_depth":   number(&h.MaxImportDepth),
		"max_gathered":       number(&h.MaxGathered),
		"max_regex_states":   number(&h.MaxRegexStates),
		"max_cached_entries": number(&h.MaxCachedEntries),
		"cors":               words(&h.CORS, checkCORS),
	}
	maps.Copy(fields, h.ExpandCaching.subdirectives())
	return parseDirective(d, fields, "route")
}

// parseDefinitions reads where definitions are: files, or the word backend.
func (h *Expand) parseDefinitions(d *caddyfile.Dispenser) error {
	var list []string
	err := words(&list, nil)(d)
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
