package enforce_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
)

// parts are what generated writes are put together of. What is of patient b has an id that begins with b.
var parts = map[string][]string{
	"scope": {
		"patient/*.cruds", "patient/*.read patient/*.write", "patient/*.cud", "patient/Observation.cruds?category=http://c|laboratory patient/*.rs",
		"patient/Observation.cruds patient/Encounter.cruds",
	},
	"type": {"Observation", "Observation", "Observation", "Encounter", "Patient", "Device", "Binary", "Provenance", "List", "Practitioner"},
	"reference": {
		"Patient/a", "Patient/a", "Patient/a", "Patient/b", "Patient/b", "https://gateway.example/fhir/R4/Patient/b",
		"http://backend.internal:8080/fhir/Patient/b", "/Patient/b", "Patient/b/_history/1", "Patient?identifier=1", "Observation/a1",
		"Observation/b1", "Encounter/a1", "Encounter/b1", "#c", "urn:uuid:b", "Practitioner/alice", "Device/free", "Binary/b1", "Patient/",
	},
	"element":  {"subject", "subject", "performer", "patient", "target", "securityContext", "focus", "encounter", "contained"},
	"header":   {"", "", "", "", `If-Match: W/"1"`, `If-Match: *`, "If-None-Match: *", "X-Cascade: delete", "Prefer: return=representation"},
	"criteria": {"_id=a1", "_id=b1", "_id=none", "status=final", "subject=Patient/b", "_id=a1&_cascade=delete", "subject.name=x"},
	"pointer": {
		"/subject", "/subject/reference", "/performer", "/performer/0", "/performer/0/reference", "/patient/reference", "/target/0/reference",
		"/target/-", "/securityContext/reference", "/status", "/status", "/status", "/focus", "/id", "/focus", "/focus/0/reference", "/resourceType", "/meta", "/", "",
	},
	"op": {"add", "replace", "remove", "move", "copy", "test"},
	"path": {
		".subject", ".subject.reference", ".performer[0]", ".status", ".status", ".status", ".focus", ".focus[0]", ".patient", ".target[0]", "", ".where(true).subject",
		".contained[0]", ".meta", ".id", ".encounter",
	},
}

// writer generates writes.
type writer struct{ *rand.Rand }

func (w writer) pick(name string) string { return parts[name][w.IntN(len(parts[name]))] }

func (w writer) reference() string { return `{"reference":"` + w.pick("reference") + `"}` }

// resource is a resource with some references.
func (w writer) resource(resourceType, id string) string {
	text := `{"resourceType":"` + resourceType + `","status":"amended","category":[{"coding":[{"system":"http://c","code":"laboratory"}]}]`
	if id != "" {
		text += `,"id":"` + id + `"`
	}
	seen := map[string]bool{}
	if w.IntN(2) == 0 {
		text, seen["subject"] = text+`,"subject":{"reference":"Patient/a"}`, true
	}
	for range w.IntN(3) {
		element := w.pick("element")
		switch {
		case seen[element] && w.IntN(20) > 0:
			continue
		case slices.Contains([]string{"performer", "focus", "target"}, element):
			text += `,"` + element + `":[` + w.reference() + `]`
		case element == "contained":
			text += `,"contained":[{"resourceType":"Specimen","id":"c","subject":` + w.reference() + `}]`
		default:
			text += `,"` + element + `":` + w.reference()
		}
		seen[element] = true
	}
	return text + "}"
}

// patch is a JSON Patch or a FHIRPath Patch.
func (w writer) patch(resourceType string) (body, header string) {
	var all []string
	if w.IntN(3) == 0 {
		for range 1 + w.IntN(2) {
			value := []string{`,{"name":"value","valueReference":` + w.reference() + `}`, `,{"name":"value","valueCode":"amended"}`}[w.IntN(2)]
			all = append(all, change([]string{"add", "replace", "delete"}[w.IntN(3)], resourceType+w.pick("path"), value))
		}
		return `{"resourceType":"Parameters","parameter":[` + strings.Join(all, ",") + `]}`, ""
	}
	for range 1 + w.IntN(2) {
		values := []string{`"Patient/b"`, `"Patient/a"`, `"amended"`, w.reference(), `[` + w.reference() + `]`}
		all = append(all, fmt.Sprintf(`{"op":%q,"path":%q,"from":%q,"value":%s}`, w.pick("op"), w.pick("pointer"), w.pick("pointer"), values[w.IntN(len(values))]))
	}
	return "[" + strings.Join(all, ",") + "]", "Content-Type: application/json-patch+json\n"
}

// request is a write of some resource.
func (w writer) request() (tt writing) {
	resourceType := w.pick("type")
	id := []string{"a1", "a1", "a1", "b1", "ab", "none", "free", "a", "b", "a2"}[w.IntN(10)]
	target := resourceType + "/" + id
	if w.IntN(4) == 0 {
		target = resourceType + "?" + w.pick("criteria")
	}
	tt.header = w.pick("header")
	tt.body = w.resource(resourceType, id)
	switch w.IntN(4) {
	case 0:
		tt.request = "POST " + resourceType
		if w.IntN(3) == 0 {
			tt.header = "If-None-Exist: " + w.pick("criteria")
		}
	case 1:
		tt.request = "PUT " + target
	case 2:
		tt.request = "PATCH " + target
		body, header := w.patch(resourceType)
		tt.body, tt.header = body, header+tt.header
	default:
		tt.request, tt.body = "DELETE "+target, ""
	}
	return tt
}

// owning finds what says whose a resource is.
var owning = regexp.MustCompile(`"(?:subject|patient|securityContext|performer|target)":\[?\{"reference":"([^"]*)"`)

// contained finds what generated resources contain.
var contained = regexp.MustCompile(`"contained":\[\{[^]]*\]`)

// owners are the patients whose a resource is, by the first letters of what it names.
func owners(reference, text string) string {
	var all []string
	if of, id, _ := strings.Cut(reference, "/"); of == "Patient" {
		all = append(all, id[:1])
	}
	text = contained.ReplaceAllString(text, "") // has no owner of its own
	for _, match := range owning.FindAllStringSubmatch(text, -1) {
		parts := strings.Split(strings.Split(match[1], "/_history")[0], "/")
		last := parts[len(parts)-1]
		if isRecord := strings.HasPrefix(last, "a") || strings.HasPrefix(last, "b"); isRecord && !slices.Contains(all, last[:1]) && last != "alice" {
			all = append(all, last[:1])
		}
	}
	return strings.Join(all, "")
}

// TestNoWriteReachesOther checks by generated writes that a patient's token changes the patient's own records alone,
// makes nobody else's its own, gives nothing away, and adds no reference to what is another's.
func TestNoWriteReachesOther(t *testing.T) {
	t.Parallel()
	ofOther := regexp.MustCompile(`"reference":"[^"]*/b[^"]*"|"reference":"[^"]*\?`)
	done := map[string]int{}
	for seed := range uint64(200) {
		w := writer{rand.New(rand.NewPCG(seed, 1))}
		g := newGateway(t, writable...)
		g.Upsert = seed%2 == 0
		for range 50 {
			before := g.server.All()
			tt := w.request()
			tt.holder = access.Holder{Scope: w.pick("scope"), Patient: "a"}
			response := g.written(tt)
			after := g.server.All()
			for reference, text := range after {
				was, existed := before[reference]
				if was == text {
					continue
				}
				done[strings.Fields(tt.request)[0]]++
				switch {
				case response.StatusCode/100 != 2:
					t.Errorf("%+v changed %s with status %d", tt, reference, response.StatusCode)
				case existed && owners(reference, was) != "a":
					t.Errorf("%+v changed %s", tt, was)
				case text != "" && owners(reference, text) != "a":
					t.Errorf("%+v made %s", tt, text)
				case len(ofOther.FindAllString(text, -1)) > len(ofOther.FindAllString(was, -1)):
					t.Errorf("%+v added a reference to %s: %s", tt, reference, text)
				}
			}
		}
	}
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		if done[method] < 20 {
			t.Errorf("only %d writes by %s succeeded", done[method], method)
		}
	}
}
