package lookup_test

import (
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
)

// TestCodingWithParameters checks that the parameters system and version complete a coding.
func TestCodingWithParameters(t *testing.T) {
	system := func(version, display string) string {
		return `{"resourceType":"CodeSystem","url":"http://x/s","version":"` + version + `","status":"active","content":"complete","concept":[{"code":"a","display":"` + display + `"}]}`
	}
	h := &api.Handler{Library: terminologytest.Library(t, system("1", "first"), system("2", "second"))}
	for _, tt := range []struct{ name, coding, more, want string }{
		{"the latest", `{"system":"http://x/s","code":"a"}`, "", "second"},
		{"a version beside it", `{"system":"http://x/s","code":"a"}`, `,{"name":"version","valueString":"1"}`, "first"},
		{"a system beside it", `{"code":"a"}`, `,{"name":"system","valueUri":"http://x/s"}`, "second"},
		{"a version of its own", `{"system":"http://x/s","version":"2","code":"a"}`, `,{"name":"version","valueString":"1"}`, "second"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, _ := terminologytest.Call(t, h, "POST", "/CodeSystem/$lookup", `{"resourceType":"Parameters","parameter":[{"name":"coding","valueCoding":`+tt.coding+`}`+tt.more+`]}`)
			if !strings.Contains(w.Body.String(), `"valueString":"`+tt.want+`"`) {
				t.Error(w.Body.String())
			}
		})
	}
}
