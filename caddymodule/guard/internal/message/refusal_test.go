package message

import (
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

// Of a FHIR server's message, only the client's own input and known words are repeated.
func TestReason(t *testing.T) {
	t.Parallel()
	s := SentTerms{}.AddBody([]byte(`{"resourceType":"Observation","status":"abc","subject":{"reference":"Patient/a"},"valueInteger":12.50}`)).
		AddParameters([]smart.Parameter{{Name: "date", Value: "geabc,2024"}, {Name: "code:in", Value: "http://x|y"}})
	for text, want := range map[string]string{
		`HAPI-0450: Failed to parse request body as JSON resource. Error was: HAPI-1821: [element="status"] Invalid attribute value "abc": Unknown ObservationStatus code: 'abc'`: `HAPI-0450: Failed to parse request body as JSON resource. Error was: HAPI-1821: [element= "status"] Invalid attribute value "abc": Unknown … code: 'abc'`,
		`Invalid date/time format: "abc"`: `Invalid date/time format: "abc"`,
		`Invalid value: geabc,2024`:       `Invalid value: geabc, 2024`,
		`Invalid value 12.50 of date`:     `Invalid value 12.50 of date`,
		`Unknown value "http://x"`:        `Unknown value "http://x"`,
		`Invalid reference to Patient/a`:  `Invalid reference to Patient/a`,
		`HAPI-0524: Unknown search parameter "date" for resource type "CareTeam". Valid search parameters for this search are: [a, b, c, d, e, f]`: `HAPI-0524: Unknown search parameter "date" for resource type "CareTeam"`,
		`Ann Brown is ill. Invalid value of date.`:                                                          `Invalid value of date.`,
		`Invalid value for Brown of date`:                                                                   `Invalid value for … of date`,
		`Invalid value "Brown" of date`:                                                                     `Invalid value … of date`,
		`Invalid value 'Ann Brown' of date`:                                                                 `Invalid value … of date`,
		`Invalid value of Patient/b, Ann Brown and 1970-01-02 in date with value`:                           ``,
		`Invalid value, xÜ"abc" is no value of date`:                                                        `Invalid value, … "abc" is no value of date`,
		`Observation.status: minimum required = 1 (from http://hl7.org/fhir/StructureDefinition/Patient|4)`: `Observation.status: minimum required = 1 (from http://hl7.org/fhir/StructureDefinition/Patient|4)`,
		`Invalid value http://host/fhir/StructureDefinition/x of date`:                                      `Invalid value … of date`,
		`It doesn't be a value of "abc", but of 'Brown' as well`:                                            ``,
		`Invalid value of the date "Brown`:                                                                  `Invalid value of the date …`,
		`Brown, Ann: invalid`:                                                                               ``,
		`A resource with this value exists: Patient/b`:                                                      ``,
		`Invalid value: Patient/a already has one`:                                                          ``,
		`The resource Patient/a was not found`:                                                              ``,
		`Invalid match URL: 3 resources match`:                                                              ``,
		``:                                                                                                  ``,
		strings.Repeat("invalid value ", maxReason/len("x")/2):                                              ``,
	} {
		if got := s.filterReason(text); got != want {
			t.Errorf("%s:\n got %s\nwant %s", text, got, want)
		}
	}
	many := SentTerms{}
	for n := range maxSentTerms + 1 {
		many.add(strings.Repeat("x", n))
	}
	if got := many.filterReason("invalid value"); got != "" {
		t.Errorf("to who sends all names: %s", got)
	}
}
