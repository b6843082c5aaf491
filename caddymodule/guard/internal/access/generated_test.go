package access

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/compartment"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/searchparam"
)

var slow = flag.Bool("slow", false, "draw ten times the samples")

// For random grants and resources, a patient-bound grant covers only resources in the patient's compartment and of shared
// types. It permits no write that refers to another patient.
func TestGenerated(t *testing.T) {
	t.Parallel()
	samples := 5_000
	if *slow {
		samples *= 10
	}
	d := sampler{rand.New(rand.NewPCG(11, 12))}
	covered, written := 0, 0
	for range samples {
		text := d.resource()
		res := parse(t, text)
		scope := d.scope(res.Type)
		r := New(Holder{Scope: scope, Patient: "a", User: interaction.Reference{Type: "Patient", ID: "a"}, UserPatient: "a"}, NewTypeRules(nil))
		for _, g := range r.Grants {
			if isCovered(r.Covers(g, res)) {
				covered++
				checkCoveredResource(t, scope, text, res)
			}
			if isCovered(r.CoversNew(g, res)) {
				written++
				checkWritten(t, scope, text, res)
			}
		}
	}
	if covered < samples/100 || written < samples/200 {
		t.Errorf("only %d covered and %d written of %d: the samples cover too little", covered, written, samples)
	}
}

// checkCoveredResource checks that a patient-bound grant may cover a resource.
func checkCoveredResource(t *testing.T, scope, text string, res resource.Resource) {
	t.Helper()
	named := namedReferences(t, text, res.Type)
	inside := slices.Contains(named, "Patient/a")
	if res.Type == "Patient" {
		inside = res.ID == "a"
	}
	switch rule := defaultTypeRules[res.Type]; {
	case rule == unassignedRule && len(named) > 0 && !inside,
		rule == aloneRule && slices.ContainsFunc(named, isOtherPatient),
		rule == nil && !inside:
		t.Fatalf("%s covers %s", scope, text)
	}
}

// checkWritten checks that a patient-bound grant may permit writing a resource.
func checkWritten(t *testing.T, scope, text string, res resource.Resource) {
	t.Helper()
	if res.Type != "Patient" && slices.ContainsFunc(namedReferences(t, text, res.Type), isOtherPatient) {
		t.Fatalf("%s writes %s", scope, text)
	}
}

// isOtherPatient reports whether a reference may refer to a patient other than a.
func isOtherPatient(reference string) bool {
	return strings.Contains(reference, "Patient") && reference != "Patient/a"
}

// namedReferences returns the membership references of a resource. It decodes the JSON independently of the guard.
func namedReferences(t *testing.T, text, resourceType string) []string {
	t.Helper()
	var decoded any
	if err := json.Unmarshal([]byte(text), &decoded); err != nil {
		t.Fatal(err)
	}
	var all []string
	names, _ := compartment.PatientParameters(resourceType)
	for _, name := range append(slices.Clone(names), "patient") {
		p, _ := searchparam.Lookup(resourceType, name)
		for _, path := range p.Paths {
			all = append(all, references(decoded, append(slices.Clone(path.Elements), "reference"))...)
		}
	}
	return all
}

// references returns the strings at the end of a path, including those in arrays.
func references(value any, path []string) []string {
	switch value := value.(type) {
	case string:
		if len(path) == 0 {
			return []string{value}
		}
	case map[string]any:
		if len(path) > 0 {
			return references(value[path[0]], path[1:])
		}
	case []any:
		var all []string
		for _, element := range value {
			all = append(all, references(element, path)...)
		}
		return all
	}
	return nil
}

// sampler generates random samples.
type sampler struct{ *rand.Rand }

func pickOne[T any](d sampler, from ...T) T { return from[d.IntN(len(from))] }

// types are the generated types: with one membership parameter, with several, and with a special rule.
var types = []string{
	"Patient", "Observation", "Condition", "AllergyIntolerance", "Appointment", "Coverage", "List", "Group", "Person",
	"RelatedPerson", "Basic", "Device", "Practitioner", "Binary", "Provenance", "Bundle", "CodeSystem",
}

// scope returns a random patient-bound scope, for the given type or another one.
func (d sampler) scope(resourceType string) string {
	scope := pickOne(d, "patient/", "user/") + pickOne(d, resourceType, resourceType, "*", pickOne(d, types...)) + "." + pickOne(d, "cruds", "rs", "r", "cud", "read", "*")
	if !strings.HasSuffix(scope, "read") && !strings.HasSuffix(scope, ".*") {
		scope += pickOne(d, "", "", "?_id=a,b", "?status=final", "?_tag=x")
	}
	return scope
}

// resource returns a random resource with references to patients inside and outside of membership elements.
func (d sampler) resource() string {
	resourceType := pickOne(d, types...)
	members := []string{fmt.Sprintf(`"resourceType":%q,"id":%q`, resourceType, pickOne(d, "a", "b", "c"))}
	used := map[string]bool{}
	names, _ := compartment.PatientParameters(resourceType)
	for _, name := range append(slices.Clone(names), "patient", "status") {
		p, _ := searchparam.Lookup(resourceType, name)
		for _, path := range p.Paths {
			if first := path.Elements[0]; !used[first] && d.IntN(3) > 0 {
				used[first] = true
				members = append(members, d.element(path))
			}
		}
	}
	for _, name := range []string{"extension", "contained", "securityContext", "target", "link"} {
		if d.IntN(4) == 0 && !used[name] {
			members = append(members, fmt.Sprintf(`%q:[%s]`, name, d.inner()))
		}
	}
	return "{" + strings.Join(members, ",") + "}"
}

// element returns a random element at a path.
func (d sampler) element(path resource.Path) string {
	text := d.reference()
	if path.Type == "code" {
		text = pickOne(d, `"final"`, `"amended"`)
	}
	for _, name := range slices.Backward(path.Elements) {
		if text = fmt.Sprintf(`%q:%s`, name, pickOne(d, text, "["+text+"]")); name != path.Elements[0] {
			text = "{" + text + "}"
		}
	}
	return text
}

// inner returns a random element: one unrelated to membership, or a contained resource.
func (d sampler) inner() string {
	return pickOne(d, d.reference(), `{"url":"x","valueReference":`+d.reference()+`}`,
		`{"resourceType":"Observation","id":"c","subject":`+d.reference()+`}`, `{"other":`+d.reference()+`}`)
}

// reference returns a random reference: to patient a, to another patient, or to another type.
func (d sampler) reference() string {
	return fmt.Sprintf(`{"reference":%q}`, pickOne(d, "Patient/a", "Patient/b", "Patient/b/_history/1", "Patient?identifier=a",
		"https://other.example/fhir/Patient/a", "Group/a", "#c", "urn:uuid:a", "Patient/ab", "Practitioner/a"))
}

// isCovered reports whether a verdict covers a resource without additional lookups.
func isCovered(v Verdict) bool { return v.Covered && len(v.Dependencies) == 0 }
