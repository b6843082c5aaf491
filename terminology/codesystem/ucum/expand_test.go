package ucum_test

import (
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest/fixture"
)

// What no unit is, no value set has: $expand drops it as $validate-code refuses it.
func TestListedNoUnit(t *testing.T) {
	vs := fixture.ValueSet("http://x/doses", `{"include":[{"system":"http://unitsofmeasure.org","concept":[{"code":"mcg"},{"code":"ug"}]}]}`)
	w, _ := terminologytest.Call(t, &api.Handler{Library: terminologytest.Core(t)}, "POST", "/ValueSet/$expand", fixture.Posted(`{"name":"valueSet","resource":`+vs+`}`))
	fixture.WantText(t, w.Body.String(), `"total":1`, `"code":"ug"`)
}
