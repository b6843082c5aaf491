package fhirapp

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

const (
	genderSet  = "http://hl7.org/fhir/ValueSet/administrative-gender"
	maritalSet = "http://hl7.org/fhir/ValueSet/marital-status"
)

// answered expands a value set and returns the answer as plain JSON.
func answered(t *testing.T, g *gateway, token string, parameters url.Values) map[string]any {
	t.Helper()
	response := g.Get("/fhir/R4/ValueSet/$expand?"+parameters.Encode(), token, "Content-Type", "application/fhir+json")
	var answer map[string]any
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("status %d: %v %v", response.StatusCode, answer, err)
	}
	return answer
}

func entries(answer map[string]any) []map[string]any {
	contains, _ := answer["expansion"].(map[string]any)["contains"].([]any)
	list := make([]map[string]any, len(contains))
	for i, c := range contains {
		list[i] = c.(map[string]any)
	}
	return list
}

func displays(answer map[string]any) string {
	var list []string
	for _, e := range entries(answer) {
		list = append(list, e["display"].(string))
	}
	return strings.Join(list, ", ")
}

// The interface's description of $expand (§2 and §4.2), a case a row, asked
// through the whole gateway.
func TestInterfaceExpand(t *testing.T) {
	t.Parallel()
	g := exampleGateway(t, nil)
	token := g.Token()
	ask := func(t *testing.T, pairs ...string) map[string]any {
		q := url.Values{}
		for i := 0; i < len(pairs); i += 2 {
			q.Set(pairs[i], pairs[i+1])
		}
		return answered(t, g, token, q)
	}
	rows := map[string]func(t *testing.T){
		"resourceType: always the value ValueSet": func(t *testing.T) {
			if got := ask(t, "url", genderSet)["resourceType"]; got != "ValueSet" {
				t.Errorf("%v", got)
			}
		},
		"url: the URL of the expanded value set; echoes the requested url": func(t *testing.T) {
			if got := ask(t, "url", maritalSet)["url"]; got != maritalSet {
				t.Errorf("%v", got)
			}
		},
		"expansion.offset: 0 when no offset is requested": func(t *testing.T) {
			if got := ask(t, "url", genderSet)["expansion"].(map[string]any)["offset"]; got != 0.0 {
				t.Errorf("%v", got)
			}
		},
		"expansion.contains: the matching entries": func(t *testing.T) {
			if got := displays(ask(t, "url", genderSet)); got != "Male, Female, Other, Unknown" {
				t.Errorf("%v", got)
			}
		},
		"expansion.contains[]: system, code, display": func(t *testing.T) {
			want := map[string]any{"system": "http://hl7.org/fhir/administrative-gender", "code": "male", "display": "Male"}
			if got := entries(ask(t, "url", genderSet))[0]; !maps.Equal(got, want) {
				t.Errorf("%v", got)
			}
		},
		"filter: only matching entries are returned": func(t *testing.T) {
			if got := displays(ask(t, "url", maritalSet, "filter", "married")); got != "Married, Never Married" {
				t.Errorf("%v", got)
			}
		},
		"offset: at which the expansion starts": func(t *testing.T) {
			answer := ask(t, "url", genderSet, "offset", "2")
			if got := displays(answer); got != "Other, Unknown" || answer["expansion"].(map[string]any)["offset"] != 2.0 {
				t.Errorf("%v", answer)
			}
		},
		"count: number of results to return": func(t *testing.T) {
			if got := displays(ask(t, "url", genderSet, "offset", "1", "count", "2")); got != "Female, Other" {
				t.Errorf("%v", got)
			}
		},
		"rule 1: without filter, all entries of the value set are listed": func(t *testing.T) {
			if answer := ask(t, "url", maritalSet); float64(len(entries(answer))) != answer["expansion"].(map[string]any)["total"] {
				t.Errorf("%v", answer)
			}
		},
		"rule 2: a one-letter filter returned only the entry whose display text contains it": func(t *testing.T) {
			if got := displays(ask(t, "url", genderSet, "filter", "k")); got != "Unknown" {
				t.Errorf("%v", got)
			}
		},
		"rule 3: the operation keeps no state": func(t *testing.T) {
			first := ask(t, "url", genderSet)
			ask(t, "url", genderSet, "filter", "f")
			if again := ask(t, "url", genderSet); displays(first) != displays(again) {
				t.Errorf("%v, then %v", first, again)
			}
		},
		"rule 4: at run time, to check a value while a user edits a form": func(t *testing.T) {
			for typed, want := range map[string]string{"n": "Never Married, Annulled, Interlocutory, unmarried, Domestic partner, unknown", "ne": "Never Married", "nev mar": "Never Married"} {
				if got := displays(ask(t, "url", maritalSet, "filter", typed)); got != want {
					t.Errorf("%q: %v", typed, got)
				}
			}
		},
	}
	for name, row := range rows {
		t.Run(name, row)
	}
}
