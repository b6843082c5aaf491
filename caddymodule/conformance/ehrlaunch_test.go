package conformance

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
)

const (
	infernoLaunchURI = infernoOrigin + "/custom/smart/launch"
	ehrScope         = "launch openid fhirUser offline_access patient/*.rs"
	ehrStyleURL      = issuer + "/ehr-style.json"
)

// ehrClient is the EHR. It registers what it opens apps with.
var ehrClient = oauthClient{id: "ehr", secret: "ehr-secret", method: "client_secret_basic"}

// ehrContext is what the EHR has open.
func ehrContext() url.Values {
	return url.Values{
		"user": {"alice"}, "patient": {patientID}, "encounter": {encounterID}, "intent": {"reconcile-medications"},
		"need_patient_banner": {"false"}, "smart_style_url": {ehrStyleURL}, "tenant": {"north"},
		"fhirContext": {`[{"reference":"` + practitionerReference + `","role":"https://ehr.example/role/attending"}]`},
	}
}

// fromEHR has the EHR open the client of a variant.
func fromEHR(v variant) variant {
	return variant{v.name, func(p *relyingParty) {
		v.become(p)
		p.opensWith = ehrContext()
	}}
}

func ehrPlan() testPlan {
	var variants []variant
	for _, v := range infernoVariants() {
		variants = append(variants, fromEHR(v))
	}
	return testPlan{
		name:     "Inferno: smart_full_ehr_launch",
		text:     "Likewise, opened by an EHR that registers the launch at `/oauth2/launch`. Scope `" + ehrScope + "`.",
		variants: variants,
		modules: slices.Concat(
			discoveryModules("launch-ehr", "context-ehr-patient", "context-ehr-encounter", "context-banner", "context-style"),
			[]testModule{
				{id: "smart_app_launch", checks: "the EHR opens the client's launch URL, with the FHIR API as `iss`", run: moduleAppLaunch},
				{id: "smart_launch_received", checks: "and with `launch`", run: moduleLaunchReceived},
			},
			launchModules("ehr"), openIDModules(), refreshModules("ehr"),
		),
	}
}

// openedByEHR are the parameters of the client's launch URL as the EHR opens it.
func (p *relyingParty) openedByEHR() url.Values {
	p.t.Helper()
	form := maps.Clone(p.opensWith)
	form.Set("app", p.client.id)
	r := p.Send(p.as(ehrClient).tokenRequest("/oauth2/launch", form))
	body := gatewaytest.Read(p.t, r)
	var answer struct {
		LaunchURL string `json:"launch_url"`
	}
	err := json.Unmarshal([]byte(body), &answer)
	query, ok := strings.CutPrefix(answer.LaunchURL, infernoLaunchURI+"?")
	if r.StatusCode != http.StatusCreated || err != nil || !ok {
		p.t.Fatalf("status %d: %s", r.StatusCode, body)
	}
	parameters, err := url.ParseQuery(query)
	if err != nil {
		p.t.Fatal(err)
	}
	return parameters
}

func moduleAppLaunch(p *relyingParty) {
	if iss := p.openedByEHR()["iss"]; !slices.Equal(iss, []string{fhirBase}) {
		p.t.Errorf("iss %q", iss)
	}
}

func moduleLaunchReceived(p *relyingParty) {
	first, second := p.openedByEHR()["launch"], p.openedByEHR()["launch"]
	if len(first) != 1 || bitsOf(first[0]) < 128 || slices.Equal(first, second) {
		p.t.Errorf("launch %q, then %q", first, second)
	}
}

// launchContext is what a client is launched with, as token responses and introspection tell it.
type launchContext struct {
	Patient      string           `json:"patient"`
	Encounter    string           `json:"encounter"`
	Intent       string           `json:"intent"`
	NeedsBanner  *bool            `json:"need_patient_banner"`
	StyleURL     string           `json:"smart_style_url"`
	Tenant       string           `json:"tenant"`
	FHIRContexts []map[string]any `json:"fhirContext"`
}

// checkContext checks that a launch context is what the EHR registered, or what the person has.
func (p *relyingParty) checkContext(got launchContext) {
	p.t.Helper()
	want := launchContext{Patient: patientID}
	if ehr := p.opensWith; ehr != nil {
		needsBanner := false
		want = launchContext{
			Patient: ehr.Get("patient"), Encounter: ehr.Get("encounter"), Intent: ehr.Get("intent"), NeedsBanner: &needsBanner,
			StyleURL: ehr.Get("smart_style_url"), Tenant: ehr.Get("tenant"),
		}
		if err := json.Unmarshal([]byte(ehr.Get("fhirContext")), &want.FHIRContexts); err != nil {
			p.t.Fatal(err)
		}
	}
	if !reflect.DeepEqual(got, want) {
		p.t.Errorf("launch context %+v, wanted %+v", got, want)
	}
}
