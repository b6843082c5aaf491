package expand

import (
	"maps"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/crossorigin"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirapp"
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
	fields := option.Block{
		"fhir_base":   option.Word(&h.FHIRBase, fhirapp.CheckBase),
		"definitions": h.parseDefinitions,
		"synonyms":    option.Words(&h.Synonyms, nil),
		"weights":     option.Words(&h.Weights, nil),
		"core":        option.Only("off", &h.CoreOff),
		"operations":  option.Only("all", &h.AllOperations),
		"max_entries": option.Number(&h.MaxEntries),
		"cors":        option.Words(&h.CORS, crossorigin.Check),
	}
	maps.Copy(fields, h.Caching.Subdirectives())
	maps.Copy(fields, goneFromExpand)
	return option.ParseDirective(d, fields, "route")
}

// goneFromExpand are options that nobody had a reason to set.
var goneFromExpand = option.Block{
	"max_filter_length":  option.Gone("a filter may have 1,000 bytes"),
	"max_filter_words":   option.Gone("a filter may have 20 words"),
	"max_body":           option.Gone("the body of a request may have 16 MiB"),
	"max_resources":      option.Gone("a request may bring 200 definitions along"),
	"max_remembered":     option.Gone("16 MiB of definitions are remembered under cache-ids"),
	"max_import_depth":   option.Gone("value sets may import each other 32 deep"),
	"max_gathered":       option.Gone("a request may cost 20,000,000 steps"),
	"max_regex_states":   option.Gone("a regular expression may have 1,000 states"),
	"max_cached_entries": option.Gone("a million codes of expansions are kept in memory"),
	"watch_interval":     option.Gone("files are checked every 5s"),
	"negative_ttl":       option.Gone("that there is no answer is remembered for 10s"),
	"failure_ttl":        option.Gone("a failure is repeated for 1s, or for as long as the server's Retry-After says"),
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
