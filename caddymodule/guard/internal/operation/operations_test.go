package operation_test

import (
	"reflect"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/operation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

func TestParseOperation(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		words []string
		want  operation.Operation
	}{
		{"patient", []string{"$everything", "patient", "r"}, operation.Operation{Name: "$everything", Requirement: operation.RequirePatient, Permission: smart.Read}},
		{"whole, with types", []string{"$match", "whole", "rs", "Patient", "Practitioner"}, operation.Operation{Name: "$match", Requirement: operation.RequireAll, Permission: smart.Read | smart.Search, Types: []string{"Patient", "Practitioner"}}},
		{"instance", []string{"$meta", "instance", "r"}, operation.Operation{Name: "$meta", Requirement: operation.RequireInstance, Permission: smart.Read}},
		{"words of SMART 1", []string{"$meta", "instance", "read"}, operation.Operation{Name: "$meta", Requirement: operation.RequireInstance, Permission: smart.Read | smart.Search}},
		{"token", []string{"$closure", "token"}, operation.Operation{Name: "$closure", Requirement: operation.RequireToken}},
		{"a name with dots", []string{"$hapi.fhir.x", "whole", "u"}, operation.Operation{Name: "$hapi.fhir.x", Requirement: operation.RequireAll, Permission: smart.Update}},
		{"off", []string{"$everything", "off"}, operation.Operation{Name: "$everything", Requirement: operation.Disabled}},
		{"no export", []string{"$export", "off"}, operation.Operation{Name: "$export", Requirement: operation.Disabled}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := operation.ParseOperation(tt.words...)
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
			if got, err := operation.ParseOperation(tt.words...); err == nil {
				t.Errorf("taken for %+v", got)
			}
		})
	}
}
