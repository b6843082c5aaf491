package conformance

import (
	"encoding/json"
	"net/http"
	"slices"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
)

func g10SubScopesPlan() testPlan {
	return testPlan{
		name:     "Inferno: (g)(10), sub-scopes",
		text:     "Scopes by category, such as `patient/Condition.rs?category=…|problem-list-item`.",
		variants: alone(infernoVariant("", &infernoSymmetric).become),
		modules: []testModule{
			{id: "g10_smart_granular_scope_selection", checks: "`patient/Condition.rs` and `patient/Observation.rs` asked for: the person can give each sub-resource scope, and the whole of neither is granted", run: moduleGranularSelection},
			{id: "us_core_v610_smart_granular_scopes_1", checks: "of those asked for, the person gives the scopes of Inferno's first group, and these are granted", run: moduleGranularGroup(granularGroup1)},
			{id: "us_core_v610_smart_granular_scopes_2", checks: "likewise the second group", run: moduleGranularGroup(granularGroup2)},
			{id: "g10_us_core_7_smart_fine_grained_scopes_stu2_2-Group01", checks: "four categories are granted; a search finds them, and nothing else can be read", run: moduleSubScopes("encounter-diagnosis", "health-concern", "laboratory", "social-history")},
			{id: "g10_us_core_7_smart_fine_grained_scopes_stu2_2-Group02", checks: "four others: likewise", run: moduleSubScopes("problem-list-item", "vital-signs", "survey", "sdoh")},
		},
	}
}

// moduleSubScopes asks for the scopes of categories, and looks at what can be searched and read.
func moduleSubScopes(codes ...string) func(*relyingParty) {
	return func(p *relyingParty) {
		p.scope = "launch/patient openid fhirUser offline_access patient/Patient.rs"
		granted := map[string][]string{}
		for _, c := range categories {
			if slices.Contains(codes, c.code) {
				p.scope += " patient/" + c.resourceType + ".rs?category=" + c.system + "|" + c.code
				granted[c.resourceType] = append(granted[c.resourceType], "inferno-"+c.code)
			}
		}
		q := p.launch() // what the person refused in the modules before stays refused until they give it
		q.Set("scope", p.scope)
		p.selecting(q, func(string) bool { return true })
		token := p.checkGranted().tokens.AccessToken
		for resourceType, want := range granted {
			if got := p.found(token, resourceType); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
				p.t.Errorf("found %q, wanted %q", got, want)
			}
		}
		for _, c := range categories {
			r := p.Get("/fhir/"+c.resourceType+"/inferno-"+c.code, token)
			if readable := r.StatusCode == http.StatusOK; readable != slices.Contains(codes, c.code) {
				p.t.Errorf("%s: status %d", c.code, r.StatusCode)
			}
		}
	}
}

// found are the ids of the patient's resources of a type, sorted.
func (p *relyingParty) found(token, resourceType string) (ids []string) {
	p.t.Helper()
	var bundle struct {
		Entry []struct{ Resource fhirResource }
	}
	r := p.Get("/fhir/"+resourceType+"?patient="+patientID, token)
	body := gatewaytest.Read(p.t, r)
	if err := json.Unmarshal([]byte(body), &bundle); err != nil || r.StatusCode != http.StatusOK {
		p.t.Fatalf("status %d, %v: %s", r.StatusCode, err, body)
	}
	for _, e := range bundle.Entry {
		ids = append(ids, e.Resource.ID)
	}
	slices.Sort(ids)
	return ids
}

// fhirResource is what all resources have.
type fhirResource struct {
	Type string `json:"resourceType"`
	ID   string `json:"id"`
}

// resource is the resource of a response, which must be 200.
func (p *relyingParty) resource(r *http.Response) (resource fhirResource) {
	p.t.Helper()
	body := gatewaytest.Read(p.t, r)
	if err := json.Unmarshal([]byte(body), &resource); err != nil || r.StatusCode != http.StatusOK {
		p.t.Errorf("status %d, %v: %s", r.StatusCode, err, body)
	}
	return resource
}

// checkRecord checks that a token lets one read a resource.
func (p *relyingParty) checkRecord(token, reference string) {
	p.t.Helper()
	if got := p.resource(p.Get("/fhir/"+reference, token)); got.Type+"/"+got.ID != reference {
		p.t.Errorf("%+v, wanted %s", got, reference)
	}
}
