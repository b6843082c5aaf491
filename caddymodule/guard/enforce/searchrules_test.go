package enforce_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
)

// chart are two patients' records with links between them, for searches that go over several.
var chart = append([]string{
	`{"resourceType":"Practitioner","id":"bob","name":[{"family":"Boyd"}]}`,
	`{"resourceType":"Organization","id":"org","name":"Mercy"}`,
	`{"resourceType":"PractitionerRole","id":"role","practitioner":{"reference":"Practitioner/bob"},"organization":{"reference":"Organization/org"}}`,
	`{"resourceType":"Encounter","id":"ea","status":"finished","subject":{"reference":"Patient/a"},"serviceProvider":{"reference":"Organization/org"},"participant":[{"individual":{"reference":"Practitioner/alice"}}]}`,
	`{"resourceType":"Encounter","id":"eb","status":"planned","subject":{"reference":"Patient/b"},"serviceProvider":{"reference":"Organization/org"},"participant":[{"individual":{"reference":"Practitioner/bob"}}]}`,
	`{"resourceType":"Observation","id":"a3","status":"amended","subject":{"reference":"Patient/a"},"encounter":{"reference":"Encounter/ea"},"performer":[{"reference":"Patient/a"}]}`,
	`{"resourceType":"Observation","id":"a4","status":"amended","subject":{"reference":"Patient/a"},"encounter":{"reference":"Encounter/eb"},"performer":[{"reference":"Practitioner/bob"}]}`,
	`{"resourceType":"Observation","id":"b2","status":"amended","subject":{"reference":"Patient/b"},"encounter":{"reference":"Encounter/eb"},"performer":[{"reference":"Patient/a"}]}`,
}, records...)

func TestChain(t *testing.T) {
	t.Parallel()
	observations := access.Holder{Scope: "patient/Observation.rs", Patient: "a"}
	wholeObservations := access.Holder{Scope: "user/Observation.rs patient/Patient.rs", Patient: "a", User: clinician.User}
	testSearches(t, chart, []searchCase{
		{"own patient", patientA, "Observation?subject:Patient.name=adams", "Observation/a1 Observation/a2 Observation/a3 Observation/a4"},
		{"another patient", patientA, "Observation?subject:Patient.name=brown", ""},
		{"without a type", patientA, "Encounter?patient.name=adams", "Encounter/ea"},
		{"modifier at the end", patientA, "Encounter?patient.name:exact=Adams", "Encounter/ea"},
		{"several targets", patientA, "Observation?subject.identifier:missing=true", "Observation/a1 Observation/a2 Observation/a3 Observation/a4"},
		{"through another's encounter", patientA, "Observation?encounter.status=planned", ""},
		{"through an own encounter", patientA, "Observation?encounter.status=finished", "Observation/a3"},
		{"two links", patientA, "Observation?encounter:Encounter.practitioner:Practitioner.name=alder", "Observation/a3"},
		{"two links, the first hidden", patientA, "Observation?encounter:Encounter.service-provider.name=mercy", "Observation/a3"},
		{"shared type", patientA, "Observation?performer:Practitioner.name=boyd", "Observation/a4"},
		{"a whole grant does not see through other types", wholeObservations, "Observation?subject:Patient.name=brown", ""},
		{"a whole grant sees what the chain may", wholeObservations, "Observation?subject:Patient.name=adams", "Observation/a1 Observation/a2 Observation/a3 Observation/a4"},
		{"has", patientA, "Patient?_has:Observation:subject:status=amended", "Patient/a"},
		{"has, by another's record alone", patientA, "Patient?_has:Encounter:subject:status=planned", ""},
		{"has, of a shared type", patientA, "Practitioner?_has:Observation:performer:status=amended", "Practitioner/bob"},
		{"has, over another's record", patientA, "Practitioner?_has:Encounter:practitioner:status=planned", ""},
		{"nested has", patientA, "Patient?_has:Encounter:subject:_has:Observation:encounter:status=amended", "Patient/a"},
		{"chain in has", patientA, "Patient?_has:Observation:subject:performer:Practitioner.name=boyd", "Patient/a"},
		{"has in chain", patientA, "Observation?encounter:Encounter._has:Observation:encounter:status=amended", "Observation/a3"},
		{"without the type's scope", observations, "Observation?subject:Patient.name=adams", "403"},
		{"has without the type's scope", access.Holder{Scope: "patient/Patient.rs", Patient: "a"}, "Patient?_has:Observation:subject:status=final", "403"},
		{"whole, without the type's scope", access.Holder{Scope: "user/Patient.rs", User: clinician.User}, "Patient?_has:Observation:subject:status=final", "403"},
		{"whole, and the second link without scope", access.Holder{Scope: "user/Observation.rs user/Encounter.rs", User: clinician.User}, "Observation?encounter:Encounter.service-provider:Organization.name=mercy", "403"},
		{"too many types", patientA, "Observation?performer._id=a", "403"},
		{"any type", patientA, "Observation?focus._id=a", "403"},
		{"too many links", patientA, "Observation?a.b.c.d.e.f=1", "403"},
		{"no reference", patientA, "Observation?status.name=1", "400"},
		{"unknown parameter", patientA, "Observation?subject:Patient.nothing=1", "400"},
		{"result parameter", patientA, "Observation?subject:Patient._count=1", "400"},
		{"filter in a chain", patientA, "Observation?subject:Patient._filter=1", "400"},
		{"text in a chain", patientA, "Observation?subject:Patient._text=1", "403"},
		{"list in a whole chain", access.Holder{Scope: "user/Observation.rs user/Patient.rs", User: clinician.User}, "Observation?subject:Patient._text=1", "403"},
		{"malformed has", patientA, "Patient?_has:Observation:subject=1", "400"},
		{"has of nothing", patientA, "Patient?_has:Observation:status:code=1", "400"},
	})
}

// foundOrStatus is found, or the status of a refusal.
func (g *gateway) foundOrStatus(h access.Holder, target string) string {
	g.t.Helper()
	if response := g.get(h, target); response.StatusCode != http.StatusOK {
		return response.Status[:3]
	}
	return strings.Join(g.found(h, target), " ")
}

// The server must not be asked what the client may not ask.
func TestChainIsNotPassedOn(t *testing.T) {
	t.Parallel()
	for _, target := range []string{
		"Observation?subject:Patient.name=adams", "Observation?encounter.status=planned", "Patient?_has:Observation:subject:status=amended",
	} {
		g := newGateway(t, chart...)
		g.server.Seen = func(r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			r.Body = io.NopCloser(strings.NewReader(string(body)))
			if text := r.URL.RawQuery + string(body); strings.Contains(text, "_has") || strings.Contains(text, ".name") || strings.Contains(text, ".status") {
				t.Errorf("%s: asked %s", target, text)
			}
		}
		g.found(patientA, target)
	}
}

func TestChainIsBounded(t *testing.T) {
	t.Parallel()
	many := chart
	for n := range 150 {
		many = append(many, strings.Replace(`{"resourceType":"Encounter","id":"eN","status":"triaged","subject":{"reference":"Patient/a"}}`, "N", string(rune('a'+n/26))+string(rune('a'+n%26)), 1))
	}
	g := newGateway(t, many...)
	if got := g.foundOrStatus(patientA, "Observation?encounter.status=triaged"); got != "403" {
		t.Errorf("150 encounters in between: got %s, want 403", got)
	}
	if got := g.foundOrStatus(patientA, "Patient?_has:Encounter:subject:status=triaged"); got != "Patient/a" {
		t.Errorf("150 encounters of one patient: got %s", got)
	}
}

func TestSearchParameters(t *testing.T) {
	t.Parallel()
	wholeType := access.Holder{Scope: "user/Observation.rs", User: clinician.User}
	for _, tt := range []struct {
		query                 string
		bound, whole, allOpen int
	}{
		{"status=final", 200, 200, 200},
		{"status:missing=false", 200, 200, 200},
		{"status:not=final", 200, 200, 200},
		{"code:text=a", 200, 200, 200},
		{"code:in=http://example.org/vs", 200, 200, 200},
		{"code:in=ValueSet/1", 403, 403, 200},
		{"code:above=http://c|1", 200, 200, 200},
		{"value-string:contains=a", 200, 200, 200},
		{"subject:Patient=a", 200, 200, 200},
		{"subject:identifier=http://x|1", 200, 200, 200},
		{"_id:not=o1", 403, 403, 200},
		{"subject:above=Patient/a", 403, 403, 200},
		{"subject:below=Patient/a", 403, 403, 200},
		{"subject:in=Group/1", 403, 403, 200},
		{"subject:mdm=Patient/a", 403, 403, 200},
		{"subject:contained=Patient/a", 403, 403, 200},
		{"status:text-advanced=a", 403, 403, 200},
		{"code-value-quantity=http://c|1$gt5", 200, 200, 200},
		{"unknown=1", 400, 400, 200},
		{"_id=a1", 200, 200, 200},
		{"_lastUpdated=gt2020", 200, 200, 200},
		{"_profile=http://p", 200, 200, 200},
		{"_security=x", 200, 200, 200},
		{"_tag=x", 200, 200, 200},
		{"_source=http://x", 200, 200, 200},
		{"_id:not=b1", 403, 403, 200},
		{"_filter=status%20eq%20final", 403, 403, 200},
		{"_list=1", 403, 403, 200},
		{"_query=x", 403, 403, 200},
		{"_text=x", 403, 403, 200},
		{"_content=x", 403, 403, 200},
		{"_contained=true", 403, 403, 200},
		{"_contained=both", 403, 403, 200},
		{"_contained=false", 200, 200, 200},
		{"_containedType=contained", 403, 403, 200},
		{"_sort=date,-status", 200, 200, 200},
		{"_sort=subject", 403, 403, 200},
		{"_sort=subject.name", 403, 403, 200},
		{"_sort=_score", 403, 403, 200},
		{"_sort=status,unknown", 400, 400, 200},
		{"_sort=_text", 403, 403, 200},
		{"_sort:desc=date", 400, 400, 200},
		{"_total=accurate", 200, 200, 200},
		{"_summary=true", 200, 200, 200},
		{"_summary=count", 200, 200, 200},
		{"_elements=status", 200, 200, 200},
		{"_count=0", 200, 200, 200},
		{"_count=-1", 400, 200, 200},
		{"_count=x", 400, 200, 200},
		{"_include=Observation:subject", 200, 200, 200},
		{"_include=*", 200, 200, 200},
		{"_include:iterate=Observation:subject", 200, 200, 200},
		{"_include:mdm=Observation:subject", 400, 400, 200},
		{"_revinclude=Observation:has-member", 200, 200, 200},
		{"_revinclude:iterate=Observation:has-member", 403, 200, 200},
		{"_revinclude:iterate=DiagnosticReport:result", 403, 403, 200},
		{"_graph=x", 403, 403, 200},
		{"_at=2020", 400, 400, 200},
		{"_since=2020", 400, 400, 200},
		{"_language=en", 400, 400, 200},
		{"_maxresults=1", 400, 400, 200},
		{"_type=Patient", 400, 400, 200},
		{"_getpages=0", 403, 403, 403},
		{"_GETPAGES=0", 403, 403, 403},
		{"_getpagesoffset=1", 403, 403, 403},
		{"_page=1", 403, 403, 403},
		{"_pageId=1", 403, 403, 403},
		{"_offset=1", 403, 403, 403},
		{"_cursor=1", 403, 403, 403},
		{"ct=1", 403, 403, 403},
		{"_format=xml", 406, 200, 200},
		{"_format=json", 200, 200, 200},
		{"_pretty=true", 200, 200, 200},
	} {
		t.Run(tt.query, func(t *testing.T) {
			for h, want := range map[*access.Holder]int{&patientA: tt.bound, &wholeType: tt.whole, &clinician: tt.allOpen} {
				if got := newGateway(t, chart...).get(*h, "Observation?"+tt.query).StatusCode; got != want {
					t.Errorf("%s: status %d, want %d", h.Scope, got, want)
				}
			}
		})
	}
}

// TestRevinclude checks that what refers to a resource that is every patient's is not looked for among all patients.
func TestRevinclude(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		holder access.Holder
		target string
		want   string
	}{
		{"of a shared type", patientA, "Practitioner?_revinclude=Observation:performer", "Observation/a1 Observation/a4 Practitioner/alice Practitioner/bob"},
		{"of a whole type", access.Holder{Scope: "user/Practitioner.rs patient/Observation.rs", Patient: "a", User: clinician.User}, "Practitioner?_revinclude=Observation:performer", "Observation/a1 Observation/a4 Practitioner/alice Practitioner/bob"},
		{"without a scope", access.Holder{Scope: "patient/Practitioner.rs", Patient: "a"}, "Practitioner?_revinclude=Observation:performer", "Practitioner/alice Practitioner/bob"},
		{"of anything", patientA, "Practitioner?_revinclude=*", "403"},
		{"by no reference", patientA, "Practitioner?_revinclude=Observation:status", "403"},
		{"on", patientA, "Observation?_include=Observation:performer&_revinclude:iterate=Observation:performer", "403"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, chart...)
			g.server.Seen = func(r *http.Request) {
				if strings.Contains(r.URL.RawQuery, "_revinclude") {
					t.Errorf("asked %s", r.URL)
				}
			}
			if got := g.foundOrStatus(tt.holder, tt.target); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// A search of several types is by parameters that all of them have; one of a single type is as that type's.
func TestSystemSearchParameters(t *testing.T) {
	t.Parallel()
	testSearches(t, chart, []searchCase{
		{"has, of one type", patientA, "?_type=Patient&_has:Observation:subject:status=amended", "Patient/a"},
		{"has, of another's", patientA, "?_type=Patient&_has:Encounter:subject:status=planned", ""},
		{"a chain, of one type", patientA, "?_type=Encounter&patient.name=adams", "Encounter/ea"},
		{"has, of several types", patientA, "?_type=Patient,Practitioner&_has:Observation:subject:status=amended", "400"},
		{"a parameter of both types", patientA, "?_type=Observation,Encounter&patient=Patient/a", "Encounter/ea Observation/a1 Observation/a2 Observation/a3 Observation/a4"},
		{"a parameter of both types, for another", patientA, "?_type=Observation,Encounter&patient=Patient/b", "Observation/b2"},
		{"a parameter of one of two types", patientA, "?_type=Observation,Encounter&service-provider=Organization/org", "400"},
		{"the type at the end of a chain", patientA, "Observation?_id=a3,a4&subject:Patient._type=Patient", "Observation/a3 Observation/a4"},
		{"another type at the end of a chain", patientA, "Observation?subject:Patient._type=Group", ""},
		{"what fhirpy sends", patientA, "Observation?_totalMethod=count", "400"},
		{"_type beside a type", patientA, "Observation?_type=Observation", "400"},
	})
}
