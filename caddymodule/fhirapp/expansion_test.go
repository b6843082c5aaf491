package fhirapp

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// expandedValueSet is as much of the answer as interface.md §2 lists.
type expandedValueSet struct {
	ResourceType string `json:"resourceType"`
	URL          string `json:"url"`
	Expansion    struct {
		Offset   *int `json:"offset"`
		Contains []struct {
			System  string `json:"system"`
			Code    string `json:"code"`
			Display string `json:"display"`
		} `json:"contains"`
	} `json:"expansion"`
}

// expandedCodes are the codes of an expansion, which a body must be.
func expandedCodes(t *testing.T, body string) (codes []string) {
	t.Helper()
	var got expandedValueSet
	if err := json.Unmarshal([]byte(body), &got); err != nil || got.ResourceType != "ValueSet" {
		t.Fatalf("no expansion, %v: %s", err, body)
	}
	for _, c := range got.Expansion.Contains {
		codes = append(codes, c.Code)
	}
	return codes
}

// checkCodes compares the codes of an expansion.
func checkCodes(t *testing.T, body string, want ...string) {
	t.Helper()
	if got := expandedCodes(t, body); !slices.Equal(got, want) {
		t.Errorf("codes %q, want %q", got, want)
	}
}

// memberOf is a member of a JSON document by its path, whose steps are names and
// indices, as in "issue.0.code". It is nil where there is none.
func memberOf(t *testing.T, document, path string) (member any) {
	t.Helper()
	if err := json.Unmarshal([]byte(document), &member); err != nil {
		t.Fatalf("%v: %.300s", err, document)
	}
	for step := range strings.SplitSeq(path, ".") {
		switch of := member.(type) {
		case map[string]any:
			member = of[step]
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i >= len(of) {
				return nil
			}
			member = of[i]
		default:
			return nil
		}
	}
	return member
}

// parameterIn is the value of a parameter, by its name and the name of its value, as
// in "result.valueBoolean".
func parameterIn(t *testing.T, body, path string) any {
	t.Helper()
	name, value, _ := strings.Cut(path, ".")
	parameters, _ := memberOf(t, body, "parameter").([]any)
	for _, p := range parameters {
		if parameter, ok := p.(map[string]any); ok && parameter["name"] == name {
			return parameter[value]
		}
	}
	return nil
}
