package enforce_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// others are resources that patient a may not know of, one or more for each rule by which a type is judged. In place of
// no stands the id.
var others = map[string]string{
	"in the compartment":               `{"resourceType":"Observation","id":"no","status":"final","subject":{"reference":"Patient/b"}}`,
	"a Patient":                        `{"resourceType":"Patient","id":"no","name":[{"family":"Brown"}]}`,
	"a List":                           `{"resourceType":"List","id":"no","status":"current","mode":"working","subject":{"reference":"Patient/b"},"entry":[{"item":{"reference":"Observation/a1"}}]}`,
	"a DocumentReference":              `{"resourceType":"DocumentReference","id":"no","status":"current","subject":{"reference":"Patient/b"},"content":[{"attachment":{"url":"Binary/b1"}}]}`,
	"a Group with others":              `{"resourceType":"Group","id":"no","type":"person","actual":true,"member":[{"entity":{"reference":"Patient/a"}},{"entity":{"reference":"Patient/b"}}]}`,
	"a Device":                         `{"resourceType":"Device","id":"no","patient":{"reference":"Patient/b"}}`,
	"a Binary of a record":             `{"resourceType":"Binary","id":"no","contentType":"text/plain","securityContext":{"reference":"Observation/b1"}}`,
	"a Binary of a patient":            `{"resourceType":"Binary","id":"no","contentType":"text/plain","securityContext":{"reference":"Patient/b"}}`,
	"a Binary of nothing there":        `{"resourceType":"Binary","id":"no","contentType":"text/plain","securityContext":{"reference":"Observation/gone"}}`,
	"a Binary of nobody":               `{"resourceType":"Binary","id":"no","contentType":"text/plain"}`,
	"a Provenance":                     `{"resourceType":"Provenance","id":"no","recorded":"2020-01-01T00:00:00Z","agent":[{"who":{"reference":"Practitioner/alice"}}],"target":[{"reference":"Observation/b1"}]}`,
	"a Provenance of several":          `{"resourceType":"Provenance","id":"no","recorded":"2020-01-01T00:00:00Z","agent":[{"who":{"reference":"Practitioner/alice"}}],"target":[{"reference":"Observation/b1"},{"reference":"Observation/a1"},{"reference":"Device/b1"}]}`,
	"a Provenance of a patient":        `{"resourceType":"Provenance","id":"no","recorded":"2020-01-01T00:00:00Z","agent":[{"who":{"reference":"Practitioner/alice"}}],"target":[{"reference":"Patient/b"}]}`,
	"a document":                       `{"resourceType":"Bundle","id":"no","type":"document","entry":[{"resource":{"resourceType":"Composition","id":"c","subject":{"reference":"Patient/b"}}}]}`,
	"a collection":                     `{"resourceType":"Bundle","id":"no","type":"collection","entry":[{"resource":{"resourceType":"Binary","id":"k","contentType":"text/plain","securityContext":{"reference":"Observation/b1"}}},{"resource":{"resourceType":"Observation","id":"k","status":"final","subject":{"reference":"Patient/a"}}}]}`,
	"outside of compartments":          `{"resourceType":"Library","id":"no","status":"active"}`,
	"a record that others are part of": `{"resourceType":"Observation","id":"no","status":"final","subject":{"reference":"Patient/a"},"contained":[{"resourceType":"Observation","id":"x","status":"final","subject":{"reference":"Patient/b"}}]}`,
}

// askings are requests about a resource of which the type is T and the id I; what is after the first blank line is a body.
var askings = map[string]string{
	"read":                    "GET T/I",
	"vread":                   "GET T/I/_history/1",
	"history":                 "GET T/I/_history",
	"history, page by page":   "GET T/I/_history?_count=1",
	"search by id":            "GET T?_id=I",
	"search of the system":    "GET ?_type=T&_id=I",
	"search of a compartment": "GET Patient/I/Observation",
	"search by a reference":   "GET Observation?subject=T/I",
	"a chain":                 "GET Observation?subject:T._id=I",
	"_has":                    "GET Patient?_has:T:subject:_id=I",
	"_revinclude":             "GET T?_id=I&_revinclude=Provenance:target",
	"update":                  "PUT T/I\n\nNEW",
	"JSON Patch":              `PATCH T/I` + "\n\n" + `[{"op":"add","path":"/language","value":"de"}]`,
	"delete":                  "DELETE T/I",
	"conditional update":      "PUT T?_id=I\n\nNEW",
	"conditional delete":      "DELETE T?_id=I",
	"create with a reference": "POST Observation\n\n" + `{"resourceType":"Observation","status":"final","code":{"text":"x"},"subject":{"reference":"Patient/a"},"focus":[{"reference":"T/I"}]}`,
	"an operation":            "GET T/I/$meta",
	"$everything":             "GET T/I/$everything",
	"batch":                   "POST \n\n" + `{"resourceType":"Bundle","type":"batch","entry":[{"request":{"method":"GET","url":"T/I"}},{"request":{"method":"GET","url":"T/I"}},{"request":{"method":"DELETE","url":"T/I"}}]}`,
	"transaction":             "POST \n\n" + `{"resourceType":"Bundle","type":"transaction","entry":[{"request":{"method":"GET","url":"Patient/a"}},{"request":{"method":"GET","url":"T/I"}}]}`,
}

// TestAsksAlike checks that what another patient has, and what is not there, has the FHIR server asked as often and for
// the like: else how long the answer takes would tell which it is.
func TestAsksAlike(t *testing.T) {
	t.Parallel()
	holders := map[string]access.Holder{
		"patient": patientA,
		"two patients": {
			Scope: "patient/*.cruds user/*.cruds", Patient: "a", User: interaction.Reference{Type: "Patient", ID: "c"}, UserPatient: "c",
		},
		"constraint": {Scope: "patient/*.cruds?_id=no,absent", Patient: "a"},
	}
	for kind, text := range others {
		for name, asking := range askings {
			t.Run(kind+": "+name, func(t *testing.T) {
				t.Parallel()
				for of, holder := range holders {
					hidden, absent := askedFor(t, holder, text, asking, "no"), askedFor(t, holder, text, asking, "absent")
					if !slices.Equal(hidden, absent) {
						t.Errorf("%s: there: %q\nabsent: %q", of, hidden, absent)
					}
				}
			})
		}
	}
}

// TestAsksMoreOfOwn is over what is told by how often the FHIR server is asked, as docs/evidence/guard.md says: how many of the
// patient's own records a Provenance names before one of another's.
func TestAsksMoreOfOwn(t *testing.T) {
	t.Parallel()
	for targets, want := range map[string]int{
		`{"reference":"Observation/b1"},{"reference":"Observation/a1"}`:                                2,
		`{"reference":"Observation/a1"},{"reference":"Observation/b1"}`:                                3,
		`{"reference":"Observation/a1"},{"reference":"Observation/a2"},{"reference":"Observation/b1"}`: 4,
	} {
		text := `{"resourceType":"Provenance","id":"no","target":[` + targets + `]}`
		if got := askedFor(t, access.Holder{Scope: "patient/Provenance.r patient/Observation.r", Patient: "a"}, text, "GET T/I", "no"); len(got) != want+1 {
			t.Errorf("%s: %q, want %d requests", targets, got, want)
		}
	}
}

// askedFor is what the server is asked when somebody asks about a resource of the kind of a text, by its id or another,
// and what they are answered.
func askedFor(t *testing.T, h access.Holder, text, asking, id string) (kinds []string) {
	t.Helper()
	g := newGateway(t, append(slices.Clip(records), `{"resourceType":"Patient","id":"c"}`)...)
	for range 3 {
		g.server.Put(text) // several versions
	}
	g.server.Seen = func(r *http.Request) {
		path := strings.TrimPrefix(r.URL.Path, "/fhir/R4/")
		i, _ := interaction.Parse(r.Method, path, r.URL.RawQuery, r.Header)
		kinds = append(kinds, i.Kind.String())
	}
	line, body, _ := strings.Cut(asking, "\n\n")
	own := strings.NewReplacer("Patient/b", "Patient/a", "Observation/b1", "Observation/a1", "Device/b1", "Device/a1", `"no"`, `"I"`).Replace(text)
	_, rest, _ := strings.Cut(text, `"resourceType":"`)
	resourceType, _, _ := strings.Cut(rest, `"`)
	about := func(s string) string {
		return strings.NewReplacer("T/I", resourceType+"/"+id, "T?", resourceType+"?", ":T", ":"+resourceType, "=T", "="+resourceType,
			"=I", "="+id, "/I/", "/"+id+"/", `"I"`, `"`+id+`"`).Replace(s)
	}
	method, target, _ := strings.Cut(about(line), " ")
	path, query, _ := strings.Cut(target, "?")
	r := httptest.NewRequest(method, "/fhir/R4/", strings.NewReader(about(strings.Replace(body, "NEW", own, 1))))
	r.URL = &url.URL{Path: strings.TrimSuffix("/fhir/R4/"+path, "/"), RawQuery: query}
	r.Header.Set("Content-Type", "application/fhir+json")
	if method == http.MethodPatch {
		r.Header.Set("Content-Type", "application/json-patch+json")
	}
	response := g.send(h, r)
	return append(kinds, response.Status)
}
