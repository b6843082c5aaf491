package conformance

import (
	"net/url"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/servertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
)

const (
	conditionCategory   = "?category=http://terminology.hl7.org/CodeSystem/condition-category|"
	observationCategory = "?category=http://terminology.hl7.org/CodeSystem/observation-category|"
	usCoreCodes         = "?category=http://hl7.org/fhir/us/core/CodeSystem/"
)

// granularScopes are what people must be able to choose, by the name of the page's box.
var granularScopes = map[string]string{
	"Condition.rs problem-list-item":   conditionCategory + "problem-list-item",
	"Condition.rs health-concern":      usCoreCodes + "condition-category|health-concern",
	"Condition.rs encounter-diagnosis": conditionCategory + "encounter-diagnosis",
	"Observation.rs laboratory":        observationCategory + "laboratory",
	"Observation.rs vital-signs":       observationCategory + "vital-signs",
	"Observation.rs social-history":    observationCategory + "social-history",
	"Observation.rs survey":            observationCategory + "survey",
	"Observation.rs sdoh":              usCoreCodes + "us-core-category|sdoh",
	"Observation.rs clinical-test":     usCoreCodes + "us-core-observation-category|clinical-test",
}

// Inferno's groups of them (SMART App Launch with fine-grained scopes).
var (
	granularGroup1 = []string{"Condition.rs encounter-diagnosis", "Condition.rs health-concern", "Observation.rs laboratory", "Observation.rs social-history"}
	granularGroup2 = []string{"Condition.rs problem-list-item", "Observation.rs vital-signs", "Observation.rs survey", "Observation.rs sdoh"}
)

const resourceLevelScope = "launch/patient openid fhirUser offline_access patient/Condition.rs patient/Observation.rs patient/Patient.rs"

// selecting answers the consent page with what the person wants of its boxes.
func (p *relyingParty) selecting(q url.Values, wanted func(box string) bool) *signInFlow {
	p.t.Helper()
	p.flowOf(q, p.ask(q)) // signs in
	q.Set("prompt", "consent")
	picker := p.Get("/oauth2/authorize?"+q.Encode(), "").Header.Get("Location") // there is one patient to pick
	page := p.Get(p.Get(picker, "").Header.Get("Location"), "")
	form := servertest.ReadForm(gatewaytest.Read(p.t, page))
	for name := range form.Fields {
		if box, ok := strings.CutPrefix(name, "may "); ok && !wanted(box) {
			form.Fields.Del(name)
		}
	}
	form.Fields.Set("decision", "allow")
	return p.flowOf(q, p.follow(p.Post(form.Action, form.Fields)))
}

// moduleGranularSelection has the person give each sub-resource scope alone, in turn.
func moduleGranularSelection(p *relyingParty) {
	for wanted, query := range granularScopes {
		resource, _, _ := strings.Cut(wanted, " ")
		q := p.launch()
		q.Set("scope", resourceLevelScope)
		f := p.selecting(q, func(box string) bool {
			_, part, isPart := strings.Cut(box, " ")
			return !isPart || strings.HasSuffix(wanted, " "+part) || !strings.HasPrefix(box, "patient/"+resource)
		})
		want := strings.Replace(resourceLevelScope, "patient/"+resource, "patient/"+resource+query, 1)
		if !sameWords(f.tokens.Scope, want) {
			p.t.Errorf("%s: granted %q", wanted, f.tokens.Scope)
		}
		if again := p.exchange(formOfRefresh(f.tokens.Refresh, "")); again.Scope != f.tokens.Scope {
			p.t.Errorf("%s: refreshed as %q", wanted, again.Scope)
		}
	}
}

// moduleGranularGroup asks for all sub-resource scopes, of which the person gives some.
func moduleGranularGroup(group []string) func(*relyingParty) {
	return func(p *relyingParty) {
		scope, given := "openid launch/patient", map[string]bool{}
		for name, query := range granularScopes {
			resource, _, _ := strings.Cut(name, " ")
			scope += " patient/" + resource + query
		}
		want := "openid launch/patient"
		for _, name := range group {
			resource, _, _ := strings.Cut(name, " ")
			want += " patient/" + resource + granularScopes[name]
			given["patient/"+resource+granularScopes[name]] = true
		}
		q := p.launch()
		q.Set("scope", scope)
		if f := p.selecting(q, func(box string) bool { return given[box] }); !sameWords(f.tokens.Scope, want) {
			p.t.Errorf("granted %q, wanted %q", f.tokens.Scope, want)
		}
	}
}
