package enforce_test

import (
	"io"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
)

func TestValidate(t *testing.T) {
	t.Parallel()
	writer := access.Holder{Scope: "patient/*.cu", Patient: "a"}
	const own = `{"resourceType":"Observation","status":"final","subject":{"reference":"Patient/a"}}`
	for _, tt := range []struct {
		name   string
		holder access.Holder
		target string
		body   string
		status int
	}{
		{"an own record", writer, "POST Observation/$validate", own, 200},
		{"with c alone", access.Holder{Scope: "patient/*.c", Patient: "a"}, "POST Observation/$validate", own, 200},
		{"with u alone", access.Holder{Scope: "patient/*.u", Patient: "a"}, "POST Observation/$validate", own, 200},
		{"with neither", access.Holder{Scope: "patient/*.rds", Patient: "a"}, "POST Observation/$validate", own, 403},
		{"in Parameters", writer, "POST Observation/$validate", `{"resourceType":"Parameters","parameter":[{"name":"mode","valueCode":"create"},{"name":"resource","resource":` + own + `}]}`, 200},
		{"in Parameters twice", writer, "POST Observation/$validate", `{"resourceType":"Parameters","parameter":[{"name":"resource","resource":` + own + `},{"name":"resource","resource":` + own + `}]}`, 403},
		{"of another patient", writer, "POST Observation/$validate", strings.Replace(own, "Patient/a", "Patient/b", 1), 403},
		{"of nobody", writer, "POST Observation/$validate", strings.Replace(own, "Patient/a", "Patient/c", 1), 403},
		{"that names another's record", writer, "POST Observation/$validate", strings.Replace(own, `"subject"`, `"hasMember":[{"reference":"Observation/b1"}],"subject"`, 1), 403},
		{"that names what is not there", writer, "POST Observation/$validate", strings.Replace(own, `"subject"`, `"hasMember":[{"reference":"Observation/none"}],"subject"`, 1), 403},
		{"that refers by a search", writer, "POST Observation/$validate", strings.Replace(own, `"subject"`, `"hasMember":[{"reference":"Observation?code=a"}],"subject"`, 1), 403},
		{"that refers by a search of another type", access.Holder{Scope: "user/Observation.cu", User: clinician.User}, "POST Observation/$validate", strings.Replace(own, "Patient/a", "Patient?family=Brown", 1), 403},
		{"that names an own record", writer, "POST Observation/$validate", strings.Replace(own, `"subject"`, `"hasMember":[{"reference":"Observation/a2"}],"subject"`, 1), 200},
		{"on an own record", writer, "POST Observation/a1/$validate", own, 200},
		{"on another's record", writer, "POST Observation/b1/$validate", own, 404},
		{"another type", writer, "POST Observation/$validate", `{"resourceType":"Patient"}`, 400},
		{"a device of nobody", writer, "POST Device/$validate", `{"resourceType":"Device"}`, 403},
		{"with an unknown parameter", writer, "POST Observation/$validate?patient=b", own, 403},
		{"with an answer that is no outcome", writer, "POST Condition/$validate", strings.Replace(own, "Observation", "Condition", 1), 502},
		{"by GET", writer, "GET Observation/a1/$validate", "", 405},
		{"without a body", writer, "POST Observation/$validate", "", 400},
		{"by a clinician", clinician, "POST Observation/$validate", own, 200},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := operating(t).send(tt.holder, requestOf(tt.target, tt.body))
			if got.StatusCode != tt.status {
				text, _ := io.ReadAll(got.Body)
				t.Errorf("status %d, want %d: %s", got.StatusCode, tt.status, text)
			}
		})
	}
}
