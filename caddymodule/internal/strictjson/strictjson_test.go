package strictjson_test

import (
	"testing"

	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/strictjson"
)

func TestUnmarshal(t *testing.T) {
	t.Parallel()
	type claims struct {
		jwt.Claims
		ClientID string `json:"client_id"`
		FHIRUser string `json:"fhirUser,omitempty"`
	}
	for _, test := range []struct {
		name, text string
		ok         bool
	}{
		{"plain", `{"sub":"a","client_id":"b","fhirUser":"c","other":[1],"More":2}`, true},
		{"empty", `{}`, true},
		{"repeated", `{"client_id":"a","client_id":"b"}`, false},
		{"repeated, escaped", `{"client_id":"a","client\u005fid":"b"}`, false},
		{"repeated, unknown", `{"x":1,"x":2}`, false},
		{"in two cases", `{"client_id":"a","Client_ID":"b"}`, false},
		{"in another case", `{"CLIENT_ID":"a"}`, false},
		{"embedded, in another case", `{"Sub":"a"}`, false},
		{"unknown, in two cases", `{"x":1,"X":2}`, false},
		{"with the long s", `{"ſub":"a"}`, false},
		{"with the Kelvin sign", "{\"k\":1,\"\u212a\":2}", false},
		{"no object", `[]`, false},
		{"no JSON", `{`, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			var into claims
			if err := strictjson.Unmarshal([]byte(test.text), &into); (err == nil) != test.ok {
				t.Errorf("error %v", err)
			}
		})
	}
	var members map[string]any
	if strictjson.Unmarshal([]byte(`{"a":1,"A":2}`), &members) == nil {
		t.Error("a map takes names in two cases")
	}
}
