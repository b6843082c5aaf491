package ucum_test

import (
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
)

// What no unit is, no value set has: $expand drops it as $validate-code refuses it.
func TestListedNoUnit(t *testing.T) {
	vs := terminologytest.ValueSet("http://x/doses", `{"include":[{"system":"http://unitsofmeasure.org","concept":[{"code":"mcg"},{"code":"ug"}]}]}`)
	w, _ := terminologytest.Call(t, &api.Handler{Library: terminologytest.Core(t)}, "POST", "/ValueSet/$expand", terminologytest.Posted(`{"name":"valueSet","resource":`+vs+`}`))
	terminologytest.WantText(t, w.Body.String(), `"total":1`, `"code":"ug"`)
}
