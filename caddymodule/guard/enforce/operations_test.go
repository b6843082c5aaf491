package enforce_test

import (
	"reflect"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/enforce"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

func TestParseOperation(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		words []string
		want  enforce.Operation
	}{
		{"patient", []string{"$everything", "patient", "r"}, enforce.Operation{Name: "$everything", Reach: enforce.PatientReach, Permission: smart.Read}},
		{"whole, with types", []string{"$match", "whole", "rs", "Patient", "Practitioner"}, enforce.Operation{Name: "$match", Reach: enforce.WholeReach, Permission: smart.Read | smart.Search, Types: []string{"Patient", "Practitioner"}}},
		{"instance", []string{"$meta", "instance", "r"}, enforce.Operation{Name: "$meta", Reach: enforce.InstanceReach, Permission: smart.Read}},
		{"words of SMART 1", []string{"$meta", "instance", "read"}, enforce.Operation{Name: "$meta", Reach: enforce.InstanceReach, Permission: smart.Read | smart.Search}},
		{"token", []string{"$closure", "token"}, enforce.Operation{Name: "$closure", Reach: enforce.TokenReach}},
		{"a name with dots", []string{"$hapi.fhir.x", "whole", "u"}, enforce.Operation{Name: "$hapi.fhir.x", Reach: enforce.WholeReach, Permission: smart.Update}},
		{"off", []string{"$everything", "off"}, enforce.Operation{Name: "$everything", Reach: enforce.NoReach}},
		{"no export", []string{"$export", "off"}, enforce.Operation{Name: "$export", Reach: enforce.NoReach}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := enforce.ParseOperation(tt.words...)
			if err != nil || !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got %+v, %v, want %+v", got, err, tt.want)
			}
		})
	}
}

func TestParseOperationRefused(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		words []string
	}{
		{"nothing", nil},
		{"a name alone", []string{"$everything"}},
		{"no dollar sign", []string{"everything", "patient", "r"}},
		{"a path", []string{"Patient/$everything", "patient", "r"}},
		{"an unknown reach", []string{"$everything", "all", "r"}},
		{"no permissions", []string{"$everything", "patient"}},
		{"permissions in another order", []string{"$everything", "patient", "sr"}},
		{"permissions with a constraint", []string{"$everything", "patient", "r?a=b"}},
		{"an unknown type", []string{"$everything", "patient", "r", "patient"}},
		{"off, and more", []string{"$everything", "off", "Patient"}},
		{"an export of one's own", []string{"$export", "whole", "rs"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got, err := enforce.ParseOperation(tt.words...); err == nil {
				t.Errorf("taken for %+v", got)
			}
		})
	}
}
