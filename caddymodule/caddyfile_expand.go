package caddymodule

import (
	"maps"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/fhirapp"
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
//		max_age <duration>
//		vary_by user|client|none
//		vary_header <names...>
//		persist [<folder>]
//		timeout <duration>
//		upstream <url> { … }
//		route <prefix> <url> { … }
//		pull_through <filters> [<entries>]|off
//	}
func (h *Expand) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	fields := subdirectives{
		"fhir_base":   word(&h.FHIRBase, fhirapp.CheckBase),
		"definitions": h.parseDefinitions,
		"synonyms":    words(&h.Synonyms, nil),
		"weights":     words(&h.Weights, nil),
		"core":        only("off", &h.CoreOff),
		"operations":  only("all", &h.AllOperations),
		"max_entries": number(&h.MaxEntries),
		"cors":        words(&h.CORS, checkCORS),
	}
	maps.Copy(fields, h.ExpandCaching.subdirectives())
	maps.Copy(fields, goneFromExpand)
	return parseDirective(d, fields, "route")
}

// goneFromExpand are options that nobody had a reason to set.
var goneFromExpand = subdirectives{
	"max_filter_length":  gone("a filter may have 1,000 bytes"),
	"max_filter_words":   gone("a filter may have 20 words"),
	"max_body":           gone("the body of a request may have 16 MiB"),
	"max_resources":      gone("a request may bring 200 definitions along"),
	"max_remembered":     gone("16 MiB of definitions are remembered under cache-ids"),
	"max_import_depth":   gone("value sets may import each other 32 deep"),
	"max_gathered":       gone("a request may cost 20,000,000 steps"),
	"max_regex_states":   gone("a regular expression may have 1,000 states"),
	"max_cached_entries": gone("a million codes of expansions are kept in memory"),
	"watch_interval":     gone("files are checked every 5s"),
	"negative_ttl":       gone("that there is no answer is remembered for 10s"),
	"failure_ttl":        gone("a failure is repeated for 1s, or for as long as the server's Retry-After says"),
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
