package enforce_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/enforce"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/fhirserver"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/searchparam"
)

// chart contains two patients' records with references between them, for chained searches.
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
	allObservations := access.Holder{Scope: "user/Observation.rs patient/Patient.rs", Patient: "a", User: clinician.User}
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
		{"unrestricted grant, chain to a hidden patient", allObservations, "Observation?subject:Patient.name=brown", ""},
		{"unrestricted grant, chain to a visible patient", allObservations, "Observation?subject:Patient.name=adams", "Observation/a1 Observation/a2 Observation/a3 Observation/a4"},
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

// foundOrStatus is like found, but returns the status if the search is rejected.
func (g *gateway) foundOrStatus(h access.Holder, target string) string {
	g.t.Helper()
	if response := g.get(h, target); response.StatusCode != http.StatusOK {
		return response.Status[:3]
	}
	return strings.Join(g.found(h, target), " ")
}

// A chain through types that the client may not search is not forwarded.
func TestChainIsNotForwarded(t *testing.T) {
	t.Parallel()
	for _, target := range []string{
		"Observation?subject:Patient.name=adams", "Observation?encounter.status=planned", "Patient?_has:Observation:subject:status=amended",
	} {
		g := newGateway(t, chart...)
		g.server.OnRequest = func(r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			r.Body = io.NopCloser(strings.NewReader(string(body)))
			if text := r.URL.RawQuery + string(body); strings.Contains(text, "_has") || strings.Contains(text, ".name") || strings.Contains(text, ".status") {
				t.Errorf("%s: unexpected request %s", target, text)
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
	typeHolder := access.Holder{Scope: "user/Observation.rs", User: clinician.User}
	for _, tt := range []struct {
		query                        string
		bound, unrestricted, allOpen int
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
			for h, want := range map[*access.Holder]int{&patientA: tt.bound, &typeHolder: tt.unrestricted, &clinician: tt.allOpen} {
				if got := newGateway(t, chart...).get(*h, "Observation?"+tt.query).StatusCode; got != want {
					t.Errorf("%s: status %d, want %d", h.Scope, got, want)
				}
			}
		})
	}
}

// A reverse include from a shared resource does not search the records of all patients.
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
			g.server.OnRequest = func(r *http.Request) {
				if strings.Contains(r.URL.RawQuery, "_revinclude") {
					t.Errorf("unexpected request %s", r.URL)
				}
			}
			if got := g.foundOrStatus(tt.holder, tt.target); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// A search of several types accepts the parameters that all types share; a search of one type accepts that type's parameters.
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

// The number of requests per page of a search is limited.
func TestSearchIsBounded(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	requests := 0
	g.server.Handlers = map[string]http.HandlerFunc{"Observation": func(w http.ResponseWriter, r *http.Request) {
		requests++
		if n := r.URL.Query().Get("_count"); n != "" && n != "1000" {
			t.Errorf("_count is %s", n)
		}
		w.Header().Set("Content-Type", "application/fhir+json")
		_, _ = io.WriteString(w, fmt.Sprintf(`{"resourceType":"Bundle","type":"searchset","link":[{"relation":"next","url":"http://backend.internal:8080/fhir/Observation?page=%d"}]}`, requests))
	}}
	g.SupportsCompartmentSearch = true
	g.server.Handlers["Patient/a/Observation"] = g.server.Handlers["Observation"]
	response := g.get(patientA, "Observation?_count=5000")
	if text := bodyOf(t, response); response.StatusCode != http.StatusOK || requests > 48 || !strings.Contains(text, "_page/") {
		t.Errorf("status %d after %d requests: %s", response.StatusCode, requests, text)
	}
}

// A search of the system restricts types by _type.
func TestTypes(t *testing.T) {
	t.Parallel()
	all := "Account,AdverseEvent,Appointment,Basic,Claim,Condition,Consent,Coverage,Device,Encounter,Flag,Goal,Immunization,Invoice,List,Media,Observation"
	for target, want := range map[string]int{
		"?_sort=_lastUpdated&_type=" + all: 403,
		"?_type=" + all:                    200,
		"?_sort=_lastUpdated":              403,
		"?_sort=_lastUpdated&_type=" + strings.TrimPrefix(all, "Account,"): 200,
		"?_type=Unheard":         400,
		"?_type=Patient,Unheard": 400,
		"?_type=Patient,":        400,
		"?_type=Patient,Patient": 200,
	} {
		g := newGateway(t, records...)
		g.Limits = fhirserver.Limits{Requests: 1000}
		if got := g.get(patientA, target); got.StatusCode != want {
			t.Errorf("%s: status %d, want %d", target, got.StatusCode, want)
		}
	}
}

// A search of all types finds every type in the scopes, in pages within the limit on requests.
func TestAllTypes(t *testing.T) {
	t.Parallel()
	const requests = 12
	few := access.Holder{Scope: "patient/Encounter.rs patient/Observation.rs?status=amended patient/Patient.r", Patient: "a"}
	for _, tt := range []searchCase{
		{"all types", patientA, "", "Device/a1 Device/free Encounter/ea Observation/a1 Observation/a2 Observation/a3 Observation/a4 Observation/b2 Organization/org Patient/a Practitioner/alice Practitioner/bob PractitionerRole/role"},
		{"with a parameter of all types", patientA, "?_id=a1,b1,ea", "Device/a1 Encounter/ea Observation/a1"},
		{"with one of some types", patientA, "?status=final", "400"},
		{"in a compartment", patientA, "Patient/a/*", "Encounter/ea Observation/a1 Observation/a2 Observation/a3 Observation/a4 Observation/b2 Patient/a"},
		{"in another's compartment", patientA, "Patient/b/*", "Observation/b2"},
		{"the scopes' types", few, "", "Encounter/ea Observation/a3 Observation/a4 Observation/b2"},
	} {
		g := newGateway(t, chart...)
		g.Limits = fhirserver.Limits{Requests: requests}
		if got := g.foundOrStatus(tt.holder, tt.target); got != tt.want {
			t.Errorf("%s: %s\nwant %s", tt.name, got, tt.want)
		}
	}
	lacking := newGateway(t, chart...)
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/fhir/R4?_count=100", nil)
	err := lacking.Serve(w, r, serverWithoutType{lacking.server, "Condition"}, enforce.Bearer{Rights: access.New(patientA, lacking.TypeRules)})
	if err != nil || !strings.Contains(w.Body.String(), `"Encounter"`) {
		t.Errorf("a server that lacks a type: %v %s", err, w.Body)
	}
	sent := 0
	g := newGateway(t, chart...)
	g.Limits = fhirserver.Limits{Requests: requests}
	g.server.OnRequest = func(*http.Request) { sent++ }
	var page bundle
	for target := ""; ; target = page.next() {
		sent, page = 0, bundle{}
		if err := json.NewDecoder(g.get(patientA, target).Body).Decode(&page); err != nil || sent > requests {
			t.Fatalf("%d requests for a page, %v", sent, err)
		}
		if page.next() == "" {
			break
		}
	}
}

// serverWithoutType is a server that does not support one type.
type serverWithoutType struct {
	message.NextHandler
	resourceType string
}

func (s serverWithoutType) ServeHTTP(w http.ResponseWriter, r *http.Request) error {
	if strings.HasSuffix(r.URL.Path, "/"+s.resourceType) {
		w.WriteHeader(http.StatusNotFound)
		return nil
	}
	return s.NextHandler.ServeHTTP(w, r)
}

// The constraints of two scopes are evaluated separately, not combined.
func TestConstraintsDoNotMix(t *testing.T) {
	t.Parallel()
	observation := func(id, category, status string) string {
		return strings.NewReplacer(`"id":"a1"`, `"id":"`+id+`"`, "laboratory", category, "final", status).Replace(records[3])
	}
	g := newGateway(t, observation("1", "laboratory", "final"), observation("2", "laboratory", "amended"),
		observation("3", "survey", "final"), observation("4", "survey", "amended"))
	h := access.Holder{Patient: "a", Scope: "patient/Observation.rs?category=laboratory&status=final patient/Observation.rs?category=survey&status=amended"}
	if got := strings.Join(g.found(h, "Observation"), " "); got != "Observation/1 Observation/4" {
		t.Errorf("found %s", got)
	}
	text := bodyOf(t, g.get(h, "Observation?_summary=count"))
	if !strings.Contains(text, `"total":2`) {
		t.Errorf("counted %s", text)
	}
}

// All references are included if scopes cover the targets, even if the FHIR server does not support wildcards in _include.
func TestIncludeAll(t *testing.T) {
	t.Parallel()
	encounters := access.Holder{Scope: "patient/Encounter.rs patient/Practitioner.rs", Patient: "a"}
	for _, value := range []string{"*", "*:*", "Encounter:*"} {
		testSearches(t, chart, []searchCase{
			{"all, " + value, patientA, "Encounter?_include=" + value, "Encounter/ea Organization/org Patient/a Practitioner/alice"},
			{"as scopes go, " + value, encounters, "Encounter?_include=" + value, "Encounter/ea Practitioner/alice"},
			{"another's, " + value, patientA, "Observation?_id=a4&_include=" + strings.Replace(value, "Encounter", "Observation", 1), "Observation/a4 Patient/a Practitioner/bob"},
		})
	}
	own := access.Holder{Scope: "patient/Patient.rs patient/Encounter.rs", Patient: "a"}
	for _, value := range []string{"*", "*:*"} {
		testSearches(t, chart, []searchCase{{"what refers, " + value, own, "Patient?_revinclude=" + value, "Encounter/ea Patient/a"}})
	}
	g := newGateway(t, chart...)
	var includes []string
	g.server.OnRequest = func(r *http.Request) {
		parameters, _ := smart.ParseParameters(r.URL.RawQuery)
		for _, p := range parameters {
			if p.Name == "_include" {
				includes = append(includes, p.Value)
			}
		}
	}
	g.found(encounters, "Encounter?_include=*:*")
	if slices.Sort(includes); slices.Contains(includes, "*:*") || slices.Contains(includes, "Encounter:service-provider") || !slices.Contains(includes, "Encounter:practitioner") {
		t.Errorf("includes %v", includes)
	}
}

// A site can make a type outside of all compartments accessible to the patient in its search parameter patient.
func TestPatientParameterRule(t *testing.T) {
	t.Parallel()
	task := func(id, patient string) string {
		return `{"resourceType":"Task","id":"` + id + `","status":"requested","intent":"order","for":{"reference":"Patient/` + patient + `"}}`
	}
	g := newGateway(t, append([]string{task("ta", "a"), task("tb", "b")}, records...)...)
	if got := g.foundOrStatus(patientA, "Task"); got != "403" {
		t.Errorf("without the rule: %s", got)
	}
	g.TypeRules = access.NewTypeRules(access.TypeRules{"Task": access.FindRule("patient")})
	for target, want := range map[string]string{
		"Task": "Task/ta", "Task?_id=tb": "", "Task?patient=Patient/b": "", "Patient/a/Task": "Task/ta", "Patient/b/Task": "", "Task?_summary=count": "403",
	} {
		if got := g.foundOrStatus(patientA, target); got != want {
			t.Errorf("%s: %s, want %s", target, got, want)
		}
	}
	for _, tt := range []struct {
		method, id, patient string
		want                int
	}{
		{http.MethodGet, "ta", "", 200}, {http.MethodGet, "tb", "", 404}, {http.MethodPut, "ta", "a", 200}, {http.MethodPut, "ta", "b", 403},
		{http.MethodPut, "tb", "a", 404}, {http.MethodDelete, "tb", "", 404}, {http.MethodDelete, "ta", "", 204},
	} {
		r := newRequest(tt.method, "/fhir/R4/Task/"+tt.id, "application/fhir+json", task(tt.id, tt.patient))
		if response := g.send(patientA, r); response.StatusCode != tt.want {
			t.Errorf("%s %s for %s: %d, want %d", tt.method, tt.id, tt.patient, response.StatusCode, tt.want)
		}
	}
}

// siteParameters returns R4's search parameters and those of a site.
func siteParameters(t *testing.T) (s searchparam.Set) {
	t.Helper()
	for _, d := range []searchparam.Definition{
		{Base: []string{"Patient"}, Code: "race", Type: "token", Expression: "Patient.extension.where(url = 'http://x/race').extension.value.code"},
		{Base: []string{"CareTeam"}, Code: "role", Type: "token", Expression: "CareTeam.participant.role"},
		{Base: []string{"CareTeam"}, Code: "member", Type: "reference", Expression: "CareTeam.participant.member", Target: []string{"Practitioner"}},
		{Base: []string{"Goal"}, Code: "description", Type: "token", Expression: "Goal.description"},
		{Base: []string{"Observation"}, Code: "about", Type: "reference", Expression: "Observation.focus"},
	} {
		if err := s.Add(d); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

var teams = []string{
	`{"resourceType":"Patient","id":"a","name":[{"family":"Adams"}],"extension":[{"url":"http://x/race","extension":[{"url":"ombCategory","valueCoding":{"code":"w"}}]}]}`,
	`{"resourceType":"Patient","id":"b","name":[{"family":"Brown"}],"extension":[{"url":"http://x/race","extension":[{"url":"ombCategory","valueCoding":{"code":"v"}}]}]}`,
	`{"resourceType":"Practitioner","id":"bob","name":[{"family":"Boyd"}]}`,
	`{"resourceType":"CareTeam","id":"ta","status":"active","subject":{"reference":"Patient/a"},"participant":[{"role":[{"coding":[{"code":"doctor"}]}],"member":{"reference":"Practitioner/bob"}},{"member":{"reference":"Patient/b"}}]}`,
	`{"resourceType":"CareTeam","id":"tc","status":"active","subject":{"reference":"Patient/a"},"participant":[{"role":[{"coding":[{"code":"nurse"}]}]}]}`,
	`{"resourceType":"CareTeam","id":"tb","status":"inactive","subject":{"reference":"Patient/b"},"participant":[{"role":[{"coding":[{"code":"doctor"}]}],"member":{"reference":"Practitioner/bob"}}]}`,
	`{"resourceType":"Goal","id":"ga","subject":{"reference":"Patient/a"},"description":{"coding":[{"code":"walk"}],"text":"Walk"}}`,
	`{"resourceType":"Observation","id":"oa","status":"final","subject":{"reference":"Patient/a"},"focus":[{"reference":"Patient/b"}]}`,
	`{"resourceType":"Observation","id":"ob","status":"final","subject":{"reference":"Patient/b"},"focus":[{"reference":"Patient/a"}]}`,
}

// A site's search parameters are judged like R4's and reveal no other resources.
func TestSiteParameters(t *testing.T) {
	t.Parallel()
	doctors := access.Holder{Scope: "patient/CareTeam.rs?role=doctor", Patient: "a"}
	own := access.Holder{Scope: "patient/Patient.rs?race=v", Patient: "a"}
	unrestricted := access.Holder{Scope: "user/CareTeam.rs user/Practitioner.rs", User: clinician.User}
	for _, tt := range []searchCase{
		{"a token", patientA, "CareTeam?role=doctor", "CareTeam/ta"},
		{"by another's", patientA, "Patient?race=v", ""},
		{"by one's own", patientA, "Patient?race=w", "Patient/a"},
		{"a modifier", patientA, "CareTeam?role:missing=false", "CareTeam/ta CareTeam/tc"},
		{"a modifier that looks elsewhere", patientA, "CareTeam?member:below=Practitioner/bob", "403"},
		{"a modifier of another kind", patientA, "CareTeam?role:contains=doc", "403"},
		{"of another type", patientA, "Observation?role=doctor", "400"},
		{"none at all", patientA, "CareTeam?rule=doctor", "400"},
		{"a reference to another patient", patientA, "CareTeam?member=Patient/b", ""},
		{"a reference that makes nothing one's own", patientA, "Observation?about=Patient/a", ""},
		{"a reference by its type", patientA, "CareTeam?member:Practitioner=bob", "CareTeam/ta"},
		{"chain to a shared resource", patientA, "CareTeam?member.name=boyd", "CareTeam/ta"},
		{"a chain to another patient", patientA, "CareTeam?member:Patient.name=brown", ""},
		{"a chain that names no type and may go anywhere", patientA, "Observation?about.name=brown", "403"},
		{"a chain to another patient, without a scope for it", unrestricted, "CareTeam?member:Patient.name=brown", "403"},
		{"at the end of a chain", patientA, "CareTeam?patient.race=w", "CareTeam/ta CareTeam/tc"},
		{"at the end of a chain, another's", patientA, "CareTeam?patient.race=v", ""},
		{"has", patientA, "Practitioner?_has:CareTeam:member:status=active", "Practitioner/bob"},
		{"has, by another's", patientA, "Practitioner?_has:CareTeam:member:status=inactive", ""},
		{"has, by the parameter", patientA, "Patient?_has:CareTeam:patient:role=doctor", "Patient/a"},
		{"include", patientA, "CareTeam?_include=CareTeam:member", "CareTeam/ta CareTeam/tc Practitioner/bob"},
		{"revinclude to a shared resource", patientA, "Practitioner?_revinclude=CareTeam:member", "CareTeam/ta Practitioner/bob"},
		{"revinclude over another's", patientA, "Patient?_revinclude=Observation:about", "Patient/a"},
		{"sort", patientA, "CareTeam?_sort=role", "CareTeam/ta CareTeam/tc"},
		{"sort by a reference", patientA, "CareTeam?_sort=member", "403"},
		{"a constraint", doctors, "CareTeam", "CareTeam/ta"},
		{"a constraint that nothing meets", own, "Patient", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := teamGateway(t).foundOrStatus(tt.holder, tt.target); got != tt.want {
				t.Errorf("%s: got %s, want %s", tt.target, got, tt.want)
			}
		})
	}
}

func teamGateway(t *testing.T) *gateway {
	t.Helper()
	g := newGateway(t, teams...)
	g.Parameters = siteParameters(t)
	g.server.Parameters = g.Parameters
	return g
}

// A site's reference parameter is not chained by the FHIR server, because the server's definition may be broader.
func TestSiteReferenceIsNotChainedByBackend(t *testing.T) {
	t.Parallel()
	unrestricted := access.Holder{Scope: "user/CareTeam.rs user/Practitioner.rs", User: clinician.User}
	for _, target := range []string{"CareTeam?member.name=boyd", "Practitioner?_has:CareTeam:member:status=active"} {
		g := teamGateway(t)
		g.server.OnRequest = func(r *http.Request) {
			if strings.Contains(r.URL.RawQuery, "member.") || strings.Contains(r.URL.RawQuery, "_has") {
				t.Errorf("%s: unexpected request %s", target, r.URL)
			}
		}
		if got := g.foundOrStatus(unrestricted, target); !strings.Contains(got, "/") {
			t.Errorf("%s: got %s", target, got)
		}
	}
}

// A patch may not change the elements that a constraint with a site's parameter evaluates.
func TestSiteConstraintIsNotPatched(t *testing.T) {
	t.Parallel()
	g := teamGateway(t)
	walks := access.Holder{Scope: "patient/Goal.cruds?description=walk", Patient: "a"}
	for element, want := range map[string]int{"description": http.StatusForbidden, "statusReason": http.StatusOK} {
		patch := `{"resourceType":"Parameters","parameter":[{"name":"operation","part":[{"name":"type","valueCode":"replace"},{"name":"path","valueString":"Goal.` + element + `"},{"name":"value","valueString":"x"}]}]}`
		r := newRequest(http.MethodPatch, "/fhir/R4/Goal/ga", "application/fhir+json", patch)
		if response := g.send(walks, r); response.StatusCode != want {
			t.Errorf("%s: status %d, want %d", element, response.StatusCode, want)
		}
	}
}

// Relationships on the FHIR server determine which patients' records a user may access.
func TestRelatedPatients(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, user, answer, want string
	}{
		{"a patient's", "RelatedPerson", `{"resourceType":"RelatedPerson","id":"r","patient":{"reference":"Patient/a"}}`, "a"},
		{"by our address", "RelatedPerson", `{"resourceType":"RelatedPerson","id":"r","patient":{"reference":"https://gateway.example/fhir/R4/Patient/a"}}`, "a"},
		{"no longer", "RelatedPerson", `{"resourceType":"RelatedPerson","id":"r","active":false,"patient":{"reference":"Patient/a"}}`, ""},
		{"another person", "RelatedPerson", `{"resourceType":"RelatedPerson","id":"s","patient":{"reference":"Patient/a"}}`, ""},
		{"another type", "RelatedPerson", `{"resourceType":"Person","id":"r","link":[{"target":{"reference":"Patient/a"}}]}`, ""},
		{"of two", "Person", `{"resourceType":"Person","id":"r","link":[{"target":{"reference":"Patient/a"}},{"target":{"reference":"Patient/b"}}]}`, "a b"},
		{"without a patient", "Person", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t)
			if tt.answer != "" {
				g.server.Handlers = map[string]http.HandlerFunc{tt.user + "/r": newHandler(tt.answer)}
			}
			got, err := g.RelatedPatients(httptest.NewRequest(http.MethodGet, "/fhir/R4/Patient", nil), g.server, interaction.Reference{Type: tt.user, ID: "r"}, nil)
			if !slices.Equal(got, strings.Fields(tt.want)) || err != nil {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}

// wardObservations returns Observations of patient a (by subject, performer or both), mixed with some of patient b.
func wardObservations() []string {
	all := slices.Clone(records[:2])
	for n := range 60 {
		subject, performer := "Patient/a", "Patient/b"
		switch {
		case n%3 == 0:
			subject, performer = "Patient/b", "Patient/a"
		case n%5 == 0:
			performer = "Patient/a"
		case n%7 == 0:
			subject = "Patient/b"
		}
		date := fmt.Sprintf(`"effectiveDateTime":"2024-%02d-%02d",`, 1+n*7%12, 1+n*11%28)
		if n%10 == 9 {
			date = ""
		}
		all = append(all, fmt.Sprintf(`{"resourceType":"Observation","id":"o%02d","status":"%s",%s"subject":{"reference":"%s"},"performer":[{"reference":"%s"}]}`,
			n, []string{"final", "amended"}[n%2], date, subject, performer))
	}
	return all
}

// read returns the ids on all pages of a search, in order.
func (g *gateway) read(h access.Holder, target string, size int) []string {
	g.t.Helper()
	var all []string
	for pages := 0; target != ""; pages++ {
		var b bundle
		if err := json.NewDecoder(g.get(h, target).Body).Decode(&b); err != nil || pages > 200 {
			g.t.Fatalf("%s: %v, page %d", target, err, pages)
		}
		target = b.next()
		if size > 0 && len(b.Entry) > size || target != "" && len(b.Entry) < size {
			g.t.Errorf("a page of %d, of %d", len(b.Entry), size)
		}
		for _, e := range b.Entry {
			all = append(all, e.Resource.ID)
		}
	}
	return all
}

func TestMergedPages(t *testing.T) {
	t.Parallel()
	constrained := access.Holder{Scope: "user/Observation.s?status=final user/Observation.s?status=amended,final user/Observation.s?date=2024", User: clinician.User}
	for _, order := range []string{"", "_sort=date", "_sort=status,-date,_id", "_sort=-_id"} {
		for _, size := range []int{3, 7, 50} {
			for name, h := range map[string]access.Holder{"patient": patientA, "constraints": constrained} {
				t.Run(fmt.Sprintf("%s/%s/%d", name, order, size), func(t *testing.T) {
					t.Parallel()
					g := newGateway(t, wardObservations()...)
					got := g.read(h, fmt.Sprintf("Observation?_count=%d&%s", size, order), size)
					g.SupportsCompartmentSearch = true // a single branch, so the server's order applies
					want := g.read(h, "Observation?_count=100&"+order, 0)
					if order == "" || !strings.Contains(order, "_id") {
						slices.Sort(got)
						slices.Sort(want)
					}
					if !slices.Equal(got, want) {
						t.Errorf("got %v, want %v", got, want)
					}
				})
			}
		}
	}
}

// In a search with several branches, each page continues where the previous one ended.
func TestMergedOrder(t *testing.T) {
	t.Parallel()
	g := newGateway(t, wardObservations()...)
	dates := map[string]string{}
	for _, text := range wardObservations() {
		var o struct{ ID, EffectiveDateTime string }
		_ = json.Unmarshal([]byte(text), &o)
		dates[o.ID] = o.EffectiveDateTime
	}
	for _, descending := range []bool{false, true} {
		target := "Observation?_count=4&_sort=date"
		if descending {
			target = "Observation?_count=4&_sort=-date"
		}
		ids := g.read(patientA, target, 4)
		ordered := slices.IsSortedFunc(ids, func(a, b string) int {
			x, y := dates[a], dates[b]
			switch {
			case x == "" || y == "":
				return strings.Compare(y, x) // resources without a date come last
			case descending:
				return strings.Compare(y, x)
			}
			return strings.Compare(x, y)
		})
		if !ordered {
			t.Errorf("%s: %v", target, ids)
		}
	}
}

func TestTotal(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		holder access.Holder
		target string
		want   int // expected total; -1: absent; -403: rejected
	}{
		{"all on the page", patientA, "Observation?status=final&_count=100", 27},
		{"more pages", patientA, "Observation?status=final&_count=2", -1},
		{"accurate", patientA, "Observation?status=final&_count=2&_total=accurate", 27},
		{"estimate", patientA, "Observation?status=final&_count=2&_total=estimate", -1},
		{"count alone", patientA, "Observation?status=final&_summary=count", 27},
		{"a page of nothing", patientA, "Observation?status=final&_count=0", 27},
		{"of overlapping constraints", access.Holder{Scope: "user/Observation.s?status=final user/Observation.s?date=lt2024-04 patient/Observation.s", Patient: "a", User: clinician.User}, "Observation?_summary=count", 59},
		{"of too many constraints", access.Holder{Scope: "user/Observation.s?status=final user/Observation.s?date=lt2024-04 user/Observation.s?code=x patient/Observation.s", Patient: "a", User: clinician.User}, "Observation?_summary=count", -403},
		{"of two constraints", access.Holder{Scope: "user/Observation.s?status=final user/Observation.s?date=lt2024-04", User: clinician.User}, "Observation?_summary=count", 34},
		{"of several types", patientA, "?_type=Observation,Patient&_summary=count", 56},
		{"where the server finds more", patientA, "Group?_summary=count", -403},
		{"where the server finds more, on a page", patientA, "Group?_count=1", 0},
		{"of what a chain does not find", patientA, "Observation?subject:Patient.name=brown&_summary=count", 0},
		{"count of a chain without matches", patientA, "Observation?subject:Patient.name=nobody&_summary=count", 0},
		{"chain without matches", patientA, "Observation?subject:Patient.name=nobody", 0},
		{"whole", clinician, "Observation?_count=2", 60},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, wardObservations()...)
			response := g.get(tt.holder, tt.target)
			if response.StatusCode != http.StatusOK {
				if response.StatusCode != -tt.want {
					t.Errorf("status %d", response.StatusCode)
				}
				return
			}
			b := mustDecode[bundle](t, response)
			if got := b.total(); got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
		})
	}
}

func (b bundle) total() int {
	if b.Total == nil {
		return -1
	}
	return *b.Total
}

// The constraints of several scopes are combined as a union, with the expected number of searches.
func TestUnion(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		holder   access.Holder
		want     string
		requests int
	}{
		{"the same parameter", access.Holder{Scope: "patient/Observation.s?category=http://c|laboratory patient/Observation.s?category=http://c|vital-signs", Patient: "a"}, "a1 a2", 1},
		{"different parameters", access.Holder{Scope: "patient/Observation.s?category=http://c|laboratory patient/Observation.s?status=final", Patient: "a"}, "a1 a2", 2},
		{"one within the other", access.Holder{Scope: "patient/Observation.s?category=http://c|laboratory patient/Observation.s", Patient: "a"}, "a1 a2", 1},
		{"a patient's and a constraint", access.Holder{Scope: "patient/Observation.s user/Observation.s?category=http://c|laboratory", Patient: "a", User: clinician.User}, "a1 a2 b1", 2},
		{"a patient's and all", access.Holder{Scope: "patient/Observation.s user/Observation.s", Patient: "a", User: clinician.User}, "a1 a2 b1", 1},
		{"never the context of one with the constraint of another", access.Holder{Scope: "patient/Observation.s?category=http://c|vital-signs user/Observation.s?status=draft", Patient: "a", User: clinician.User}, "a2", 2},
		{"twice the same", access.Holder{Scope: "patient/Observation.rs patient/Observation.read", Patient: "a"}, "a1 a2", 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, records...)
			g.SupportsCompartmentSearch = true
			requests := 0
			g.server.OnRequest = func(*http.Request) { requests++ }
			if got := strings.Join(g.read(tt.holder, "Observation", 0), " "); got != tt.want || requests != tt.requests {
				t.Errorf("got %q by %d requests, want %q by %d", got, requests, tt.want, tt.requests)
			}
		})
	}
}

// An included entry is on the page of a match that refers to it, even if the FHIR server puts other matches on that page.
func TestIncludedOnItsPage(t *testing.T) {
	t.Parallel()
	g := newGateway(t, chart...)
	for target := "Observation?_count=1&_sort=_id&_include=Observation:encounter&_include=Observation:performer"; target != ""; {
		b := mustDecode[bundle](t, g.get(patientA, target))
		target = b.next()
		var with []string
		for _, e := range b.Entry[1:] {
			with = append(with, e.Resource.ResourceType+"/"+e.Resource.ID)
		}
		// The subject may also be included, because a match on another page refers to it.
		with = slices.DeleteFunc(with, func(of string) bool { return of == "Patient/a" && strings.HasPrefix(b.Entry[0].Resource.ID, "a") })
		want := map[string]string{"a1": "Practitioner/alice", "a2": "", "a3": "Encounter/ea", "a4": "Practitioner/bob", "b2": "Patient/a"}[b.Entry[0].Resource.ID]
		slices.Sort(with)
		if got := strings.Join(with, " "); got != want {
			t.Errorf("%s with %q, want %q", b.Entry[0].Resource.ID, got, want)
		}
	}
}

// With a read scope, searches may include the targets of a match's references, but not the resources that refer to a match.
func TestIncludeByRead(t *testing.T) {
	t.Parallel()
	h := access.Holder{Scope: "patient/Encounter.rs patient/Observation.r patient/Practitioner.r", Patient: "a"}
	for target, want := range map[string]string{
		"Encounter?_include=Encounter:practitioner":     "Encounter/ea Practitioner/alice",
		"Encounter?_revinclude=Observation:encounter":   "Encounter/ea",
		"Encounter?_include=Encounter:service-provider": "Encounter/ea",
	} {
		if got := strings.Join(newGateway(t, chart...).found(h, target), " "); got != want {
			t.Errorf("%s: got %q, want %q", target, got, want)
		}
	}
}

func TestCompartmentSearch(t *testing.T) {
	t.Parallel()
	testSearches(t, chart, []searchCase{
		{"own", patientA, "Patient/a/Observation", "Observation/a1 Observation/a2 Observation/a3 Observation/a4 Observation/b2"},
		{"own, with a parameter", patientA, "Patient/a/Observation?status=final", "Observation/a1 Observation/a2"},
		{"own patient", patientA, "Patient/a/Patient", "Patient/a"},
		{"another's", patientA, "Patient/b/Observation", "Observation/b2"},
		{"another's patient", patientA, "Patient/b/Patient", ""},
		{"without a patient", patientA, "Patient/c/Observation", ""},
		{"a practitioner's", patientA, "Practitioner/bob/Observation", "Observation/a4"},
		{"an encounter's", patientA, "Encounter/eb/Observation", "Observation/a4 Observation/b2"},
		{"an encounter", patientA, "Encounter/ea/Encounter", "Encounter/ea"},
		{"another's encounter", patientA, "Encounter/eb/Encounter", ""},
		{"a type in no compartment", patientA, "Patient/a/Organization", ""},
		{"all types", access.Holder{Scope: "patient/Observation.rs patient/Encounter.rs", Patient: "a"}, "Patient/a/*", "Encounter/ea Observation/a1 Observation/a2 Observation/a3 Observation/a4 Observation/b2"},
		{"named types", patientA, "Patient/a/*?_type=Encounter,Patient", "Encounter/ea Patient/a"},
		{"all types under all scopes", patientA, "Patient/a/*", "Encounter/ea Observation/a1 Observation/a2 Observation/a3 Observation/a4 Observation/b2 Patient/a"},
		{"no scope", access.Holder{Scope: "patient/Patient.rs", Patient: "a"}, "Patient/a/Observation", "403"},
		{"a clinician", clinician, "Patient/b/Observation", "Observation/b1 Observation/b2"},
		{"a clinician, by practitioner", clinician, "Practitioner/bob/Encounter", "Encounter/eb"},
		{"a clinician, named types", clinician, "Patient/b/*?_type=Encounter", "Encounter/eb"},
		{"a clinician of one type", access.Holder{Scope: "user/Observation.rs", User: clinician.User}, "Patient/b/Observation", "Observation/b1 Observation/b2"},
	})
}

// The parameters of a search by POST are sent to the FHIR server in a body, for every page.
func TestPostedSearch(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"Observation/_search", "Patient/a/Observation/_search"} {
		for _, byCompartment := range []bool{false, true} {
			g := newGateway(t, wardObservations()...)
			g.SupportsCompartmentSearch = byCompartment
			g.server.OnRequest = func(r *http.Request) {
				if strings.Contains(r.URL.RawQuery, "status") || !strings.Contains(r.URL.RawQuery, "_getpages") && !strings.Contains(r.URL.RawQuery, "_id=") && r.Method != http.MethodPost {
					t.Errorf("%s %s", r.Method, r.URL)
				}
			}
			r := newRequest(http.MethodPost, "/fhir/R4/"+path, "application/x-www-form-urlencoded", "status=final&_count=3")
			var b bundle
			if err := json.NewDecoder(g.send(patientA, r).Body).Decode(&b); err != nil || len(b.Entry) != 3 || b.next() == "" {
				t.Fatalf("%s: %+v, %v", path, b, err)
			}
			if more := g.read(patientA, b.next(), 3); len(more) != 24 {
				t.Errorf("%s: %d more", path, len(more))
			}
		}
	}
}

// modelTypes lists types with their membership parameters, as a JSON template of the elements that the parameters search.
var modelTypes = []struct{ name, members string }{
	{"Observation", `"subject":%s`}, {"Condition", `"subject":%s`}, {"Coverage", `"beneficiary":%s,"policyHolder":%s`},
	{"CommunicationRequest", `"recipient":[%s]`}, {"AllergyIntolerance", `"patient":%s,"asserter":%s`},
	{"Communication", `"sender":%s`}, {"Composition", `"author":[%s]`}, {"DocumentManifest", `"subject":%s`},
	{"Procedure", `"subject":%s`}, {"MedicationDispense", `"subject":%s,"receiver":[%s]`}, {"MedicationAdministration", `"subject":%s`},
	{"DiagnosticReport", `"subject":%s`}, {"ServiceRequest", `"subject":%s`}, {"DocumentReference", `"subject":%s`},
	{"Encounter", `"subject":%s`}, {"Immunization", `"patient":%s`},
}

type modelRecord struct {
	text, id, updated string
	isOwn, isHidden   bool // belongs to patient a; has a label that a rule denies and contains another patient's record
}

// modelRecords returns records of several types with UUIDs: many of the last type, few of the others. Most of them were updated
// at the same time as others.
func modelRecords(seed uint64, types, few, many int) (all []modelRecord) {
	random := rand.New(rand.NewPCG(seed, uint64(types)))
	for n, of := range modelTypes[:types] {
		count := random.IntN(few)
		if n == types-1 {
			count = many
		}
		for range count {
			r := modelRecord{
				id:      fmt.Sprintf("%08x-%04x-4%03x-8%03x-%012x", random.Uint32(), random.Uint32()>>16, random.Uint32()>>20, random.Uint32()>>20, random.Uint64()>>16),
				updated: fmt.Sprintf("2024-01-%02dT00:00:00Z", 1+random.IntN(9)),
				isOwn:   random.IntN(5) > 0, isHidden: random.IntN(5) == 0,
			}
			reference, more := `{"reference":"Patient/b"}`, ""
			if r.isOwn {
				reference = `{"reference":"Patient/a"}`
			}
			if r.isHidden {
				more = `,"contained":[{"resourceType":"Observation","id":"c","subject":{"reference":"Patient/c"}}]`
			}
			r.text = fmt.Sprintf(`{"resourceType":%q,"id":%q,"meta":{"lastUpdated":%q,"security":[{"code":"%v"}]}%s,%s}`,
				of.name, r.id, r.updated, r.isHidden, more, strings.ReplaceAll(of.members, "%s", reference))
			all = append(all, r)
		}
	}
	return all
}

// compareBy compares two records by a sort key of _sort.
func compareBy(key string, a, b modelRecord) int {
	switch key {
	case "_lastUpdated":
		return cmp.Compare(a.updated, b.updated)
	case "-_lastUpdated":
		return cmp.Compare(b.updated, a.updated)
	case "_id":
		return cmp.Compare(a.id, b.id)
	}
	return 0
}

// The pages of searches of several types match a model: no match is lost, repeated or out of order, pages are full except the
// last, and each page costs at most 48 requests.
func TestSearchOfTypes(t *testing.T) {
	t.Parallel()
	for _, types := range []int{1, 2, 9, 16} {
		for at, order := range []string{"", "_lastUpdated", "-_lastUpdated", "_id"} {
			for _, who := range []struct {
				name   string
				holder access.Holder
				rules  bool
				finds  func(modelRecord) bool
			}{
				{"patient", access.Holder{Scope: "patient/*.rs", Patient: "a"}, false, func(r modelRecord) bool { return r.isOwn && !r.isHidden }},
				{"user", access.Holder{Scope: "user/*.rs", User: clinician.User}, false, func(modelRecord) bool { return true }},
				{"system with a rule", access.Holder{Scope: "system/*.rs"}, true, func(r modelRecord) bool { return !r.isHidden }},
				{"patient with a rule", access.Holder{Scope: "patient/*.rs", Patient: "a"}, true, func(r modelRecord) bool { return r.isOwn && !r.isHidden }},
			} {
				t.Run(fmt.Sprintf("%d types by %s, %s", types, order, who.name), func(t *testing.T) {
					t.Parallel()
					records := modelRecords(uint64(at), types, 7, 80)
					for _, of := range []struct{ size, longest int }{{1, 0}, {10, 0}, {10, 7}, {50, 0}, {1000, 7}} {
						m := searchModel{newGateway(t), records, who.holder, who.finds, order, types, of.size, of.longest, 0}
						if who.rules {
							m.withRules(`deny resource.meta.security.code == 'true'`)
						}
						m.run()
					}
				})
			}
		}
	}
}

// Searches work if the FHIR server's pages leave many matches for later pages.
func TestSearchOfManyRecords(t *testing.T) {
	t.Parallel()
	h := access.Holder{Scope: "patient/*.rs", Patient: "a"}
	finds := func(r modelRecord) bool { return r.isOwn && !r.isHidden }
	for types, many := range map[int]int{2: 400, 9: 60} {
		m := searchModel{newGateway(t), modelRecords(1, types, many, many), h, finds, "-_lastUpdated", types, 50, 0, 0}
		m.run()
	}
}

// searchModel is a search of several types, with its expected matches.
type searchModel struct {
	*gateway
	records []modelRecord
	holder  access.Holder
	finds   func(modelRecord) bool
	order   string
	types   int
	size    int // value of _count
	longest int // page size of the FHIR server; 0 means _count
	asked   int // number of requests for a page
}

func (m *searchModel) run() {
	m.t.Helper()
	want := map[string]modelRecord{}
	for _, r := range m.records {
		m.server.Put(r.text)
		if m.finds(r) {
			want[r.id] = r
		}
	}
	m.server.ShufflesTies, m.server.MaxCount = true, m.longest
	m.server.OnRequest = func(r *http.Request) {
		if m.asked++; len(r.URL.String()) > 2000 {
			m.t.Errorf("request URL of %d characters", len(r.URL.String()))
		}
	}
	var names []string
	for _, of := range modelTypes[:m.types] {
		names = append(names, of.name)
	}
	target := fmt.Sprintf("?_count=%d&_type=%s", m.size, strings.Join(names, ","))
	if m.order != "" {
		target += "&_sort=" + m.order
	}
	var last *modelRecord
	for pages := 0; target != "" && (pages < 5 || m.size > 1); pages++ {
		var b bundle
		m.asked = 0
		response := m.get(m.holder, target)
		if err := json.NewDecoder(response.Body).Decode(&b); err != nil || response.StatusCode != http.StatusOK || pages > 300 {
			m.t.Fatalf("_count=%d, page %d: status %d, %v", m.size, pages, response.StatusCode, err)
		}
		target = b.next()
		if m.asked > 48 || len(target) > 3000 || len(b.Entry) > m.size {
			m.t.Errorf("_count=%d, page %d: %d requests, a link of %d bytes, %d matches", m.size, pages, m.asked, len(target), len(b.Entry))
		}
		// A page that passes unjudged has the server's length. A page that reaches the limit on requests may be shorter.
		if isFull := len(b.Entry) == m.size || m.asked == 1 && m.longest > 0 || m.asked > 40; target != "" && (len(b.Entry) == 0 || !isFull) {
			m.t.Errorf("_count=%d, page %d: %d of %d matches by %d requests, and a link to the next", m.size, pages, len(b.Entry), m.size, m.asked)
		}
		for _, e := range b.Entry {
			r, ok := want[e.Resource.ID]
			if delete(want, e.Resource.ID); !ok || last != nil && compareBy(m.order, *last, r) > 0 {
				m.t.Fatalf("_count=%d, page %d: %s is repeated, or out of order", m.size, pages, e.Resource.ID)
			}
			last = &r
		}
	}
	if target == "" && len(want) > 0 {
		m.t.Errorf("_count=%d, pages of %d: %d matches are lost", m.size, m.longest, len(want))
	}
}
