package api_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest/fixture"
)

func TestBodyIsPutBack(t *testing.T) {
	body := `{"resourceType":"Parameters","parameter":[{"name":"url","valueUri":"http://x/none"}]}`
	r := httptest.NewRequest("POST", "/fhir/R4/ValueSet/$expand", strings.NewReader(body))
	err := (&api.Handler{Library: terminologytest.Core(t)}).Expand(httptest.NewRecorder(), r)
	if again, _ := io.ReadAll(r.Body); !errors.Is(err, outcome.ErrUnknown) || string(again) != body {
		t.Errorf("got %v, %s", err, again)
	}
}

func TestBodyLimits(t *testing.T) {
	h := &api.Handler{Library: terminologytest.Core(t)}
	resource := `{"name":"tx-resource","resource":` + fixture.SystemWith("http://x/a", "1", "a") + `}`
	tests := []struct {
		name, body string
		status     int
	}{
		{"too large", `{"resourceType":"Parameters","x":"` + strings.Repeat("x", api.MaxBody) + `"}`, http.StatusRequestEntityTooLarge},
		{"too many resources", `{"resourceType":"Parameters","parameter":[{"name":"url","valueUri":"http://x/a-all"},` + resource + strings.Repeat(","+resource, api.MaxResources) + `]}`, http.StatusRequestEntityTooLarge},
		{"not JSON", `nothing`, 400},
		{"cut off", `{"resourceType":"Parameters","parameter":[`, 400},
		{"two resources", `{"resourceType":"Parameters"}{}`, 400},
		{"another resource", `{"resourceType":"Patient"}`, 400},
		{"broken tx-resource", `{"resourceType":"Parameters","parameter":[{"name":"url","valueUri":"x"},{"name":"tx-resource","resource":{"resourceType":"CodeSystem","concept":3}}]}`, 400},
		{"empty", ``, 400},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w, answer := terminologytest.Call(t, h, "POST", "/ValueSet/$expand", test.body)
			if w.Code != test.status || answer["resourceType"] != "OperationOutcome" {
				t.Errorf("got %d %s", w.Code, w.Body)
			}
		})
	}
}
