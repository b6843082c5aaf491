package searchparam_test

import (
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/searchparam"
)

func TestRank(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name                string
		resourceType, param string
		less, greater       string // members of the two resources
		descending          bool
	}{
		{"date", "Patient", "birthdate", `"birthDate":"1970"`, `"birthDate":"1970-02"`, false},
		{"period by its start", "Encounter", "date", `"period":{"start":"2020-01-01","end":"2024"}`, `"period":{"start":"2020-02-01","end":"2020-03-01"}`, false},
		{"times in zones", "Observation", "date", `"effectiveDateTime":"2020-01-01T12:00:00+05:00"`, `"effectiveDateTime":"2020-01-01T08:00:00Z"`, false},
		{"timing by its first event", "Observation", "date", `"effectiveTiming":{"event":["2022","2019"]}`, `"effectiveDateTime":"2020"`, false},
		{"instant", "Observation", "_lastUpdated", `"meta":{"lastUpdated":"2020-01-01T00:00:00.1Z"}`, `"meta":{"lastUpdated":"2020-01-01T00:00:00.2Z"}`, false},
		{"string without case and accents", "Patient", "family", `"name":[{"family":"ábel"}]`, `"name":[{"family":"Acer"}]`, false},
		{"least of several", "Patient", "given", `"name":[{"given":["Zoe","Amy"]}]`, `"name":[{"given":["Bea"]}]`, false},
		{"greatest of several, descending", "Patient", "given", `"name":[{"given":["Bea"]}]`, `"name":[{"given":["Zoe","Amy"]}]`, true},
		{"part of a name", "Patient", "name", `"name":[{"family":"Zorn","given":["Amy"]}]`, `"name":[{"family":"Bell"}]`, false},
		{"code", "Observation", "status", `"status":"amended"`, `"status":"final"`, false},
		{"concept by system", "Observation", "code", `"code":{"coding":[{"system":"a","code":"2"}]}`, `"code":{"coding":[{"system":"b","code":"1"}]}`, false},
		{"identifier", "Patient", "identifier", `"identifier":[{"system":"a","value":"1"}]`, `"identifier":[{"system":"a","value":"2"}]`, false},
		{"quantity", "Observation", "value-quantity", `"valueQuantity":{"value":9.5}`, `"valueQuantity":{"value":10}`, false},
		{"number", "RiskAssessment", "probability", `"prediction":[{"probabilityDecimal":0.09}]`, `"prediction":[{"probabilityDecimal":0.1}]`, false},
		{"uri", "ValueSet", "url", `"url":"http://a"`, `"url":"http://b"`, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p, _ := searchparam.Lookup(tt.resourceType, tt.param)
			rank := func(members string) searchparam.Rank {
				res, err := resource.Parse([]byte(`{"resourceType":"` + tt.resourceType + `",` + members + `}`))
				if err != nil {
					t.Fatal(err)
				}
				return p.Rank(res, tt.descending)
			}
			less, greater := rank(tt.less), rank(tt.greater)
			if !p.CanSort() || !less.HasValue || !greater.HasValue || less.Compare(greater) >= 0 || greater.Compare(less) <= 0 {
				t.Errorf("%+v, %+v", less, greater)
			}
		})
	}
}

func TestRankOfNothing(t *testing.T) {
	t.Parallel()
	res, _ := resource.Parse([]byte(`{"resourceType":"Observation","code":{"text":"x"},"valueQuantity":{"unit":"mg"},"effectiveTiming":{"code":{}}}`))
	for _, name := range []string{"code", "value-quantity", "date", "status", "value-string", "_lastUpdated"} {
		if p, ok := searchparam.Lookup("Observation", name); !ok || p.Rank(res, false).HasValue {
			t.Errorf("%s has a rank", name)
		}
	}
	for _, name := range []string{"subject", "code-value-quantity"} {
		if p, ok := searchparam.Lookup("Observation", name); !ok || p.CanSort() {
			t.Errorf("%s can be sorted by", name)
		}
	}
}
