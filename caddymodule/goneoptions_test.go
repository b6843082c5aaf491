package caddymodule

import (
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig"
)

// An option that there was once is refused, by its line, with what there is instead.
func TestGoneOptions(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ block, options string }{
		{"localhost {\n fhir_expand {\n%s\n }\n}", "max_filter_length max_filter_words max_body max_resources max_remembered max_import_depth max_gathered max_regex_states " +
			"max_cached_entries watch_interval negative_ttl failure_ttl"},
		{"localhost {\n fhir_expand {\n upstream https://tx.example {\n%s\n }\n }\n}", "max_answer"},
		{"localhost {\n fhir_bearer {\n%s\n }\n}", "identity_header max_answer search_parameter"},
		{"{\n fhir {\n registration {\n%s\n }\n }\n}", "max_clients"},
		{"{\n fhir {\n user_access_brands {\n%s\n }\n }\n}", "alias identifier category"},
		{"{\n fhir {\n store redis {\n%s\n }\n }\n}", "pool_size timeout"},
		{"{\n fhir {\n store postgres {\n%s\n }\n }\n}", "timeout"},
	} {
		for option := range strings.FieldsSeq(tt.options) {
			t.Run(option, func(t *testing.T) {
				t.Parallel()
				text := strings.Replace(tt.block, "%s", option+" 1", 1)
				_, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(text), map[string]any{"filename": "Caddyfile"})
				if err == nil || !strings.Contains(err.Error(), option+" is gone: ") || !strings.Contains(err.Error(), "Caddyfile:") {
					t.Errorf("error %v", err)
				}
			})
		}
	}
}
