package documents

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/revalidation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/breaker"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/bearer"
	"github.com/caddy-fhir/caddy-fhir/terminology/dispatch"
)

// docs/operation.md lists every value of the labels that have a list, and no other.
func TestMetricsDocumentLabels(t *testing.T) {
	text := gatewaytest.ReadFile(t, "../../docs/operation.md")
	for metric, want := range map[string][]string{
		"caddy_fhir_endpoint_duration_seconds":     endpoint.Names(),
		"caddy_fhir_bearer_decisions_total":        wordsOf(bearer.Decisions),
		"caddy_fhir_expand_requests_total":         wordsOf(dispatch.Outcomes),
		"caddy_fhir_store_operations_total":        append(wordsOf(breaker.Outcomes), breaker.Operations...),
		"caddy_fhir_store_problem":                 wordsOf(store.Causes),
		"caddy_fhir_store_connections":             {"idle", "used"},
		"caddy_fhir_idp_checked_timestamp_seconds": wordsOf(revalidation.Results),
		"caddy_fhir_definitions":                   {"concepts", "code_systems", "value_sets"},
	} {
		row := regexp.MustCompile("(?m)^\\| `" + metric + "` \\|[^|]*\\|(.*)\\|$").FindStringSubmatch(text)
		if row == nil {
			t.Errorf("no row for %s", metric)
			continue
		}
		values := regexp.MustCompile(`\([^)]*\)`).ReplaceAllString(row[1], "") // what they mean
		var listed []string
		for _, span := range codeSpan.FindAllString(values, -1) {
			listed = append(listed, strings.Trim(span, "`"))
		}
		for _, value := range want {
			if !slices.Contains(listed, value) {
				t.Errorf("%s: %q is not listed", metric, value)
			}
		}
		for _, value := range listed {
			if !slices.Contains(want, value) {
				t.Errorf("%s: %q is no value of its label", metric, value)
			}
		}
	}
}

func wordsOf[W ~string](list []W) (words []string) {
	for _, w := range list {
		words = append(words, string(w))
	}
	return words
}
