package judge

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/rule"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// pathResponses are a FHIR server's responses by path. Other paths get 404.
type pathResponses map[string]*message.Response

func (s pathResponses) Do(_ context.Context, c message.Call) (*message.Response, error) {
	if a := s[c.Path]; a != nil {
		return a, nil
	}
	return message.NewResponse(http.StatusNotFound, nil), nil
}

func (pathResponses) RequestCount() int { return 0 }

func responseWithBody(text string) *message.Response {
	return message.NewResponse(http.StatusOK, []byte(text))
}

// vipPolicy denies resources labelled as VIP.
type vipPolicy struct{ vipResources }

func (p vipPolicy) Evaluate(context.Context, rule.Request) rule.Evaluation {
	return rule.Evaluation{Resources: p.vipResources}
}

func (vipPolicy) ReportFailure(*http.Request, error) {}

type vipResources struct{}

func (vipResources) MayDeny() bool                           { return true }
func (vipResources) MayAllow() bool                          { return false }
func (vipResources) DependsOn(element string) bool           { return element == "meta" }
func (vipResources) DeniesType(context.Context, string) bool { return false }

func (vipResources) Evaluate(_ context.Context, res resource.Resource) rule.Decision {
	if meta, _ := res.Member("meta"); strings.Contains(string(meta), "VIP") {
		return rule.Decision{Effect: rule.Deny}
	}
	return rule.Decision{}
}

// fixedPolicy returns the same effect for each request, or for each of its resources.
type fixedPolicy struct {
	rule.Decision
	ofResources bool
	failures    *[]string
}

func (p fixedPolicy) Evaluate(context.Context, rule.Request) rule.Evaluation {
	if p.ofResources {
		return rule.Evaluation{Resources: fixedResources{p}}
	}
	return rule.Evaluation{Decision: p.Decision}
}

func (p fixedPolicy) ReportFailure(_ *http.Request, err error) {
	*p.failures = append(*p.failures, p.Rule+": "+err.Error())
}

type fixedResources struct{ by fixedPolicy }

func (r fixedResources) MayDeny() bool                           { return r.by.Effect != rule.Allow }
func (r fixedResources) MayAllow() bool                          { return r.by.Effect == rule.Allow }
func (r fixedResources) DependsOn(element string) bool           { return element == r.by.Rule }
func (r fixedResources) DeniesType(context.Context, string) bool { return r.by.Effect == rule.Deny }

func (r fixedResources) Evaluate(context.Context, resource.Resource) rule.Decision {
	return r.by.Decision
}

// Policies can be combined in any order: a denial takes precedence, then a permission; otherwise, the scopes determine access.
// An unknown effect denies. Each policy gets its own errors, and no policy is evaluated after a denial.
func TestPoliciesCombine(t *testing.T) {
	t.Parallel()
	failure := errors.New("failed")
	for _, tt := range []struct {
		name     string
		first    rule.Decision
		second   rule.Decision
		want     rule.Effect
		failures string
	}{
		{"nothing", rule.Decision{}, rule.Decision{}, "", ""},
		{"allow", rule.Decision{}, rule.Decision{Effect: rule.Allow}, rule.Allow, ""},
		{"the first that allows", rule.Decision{Effect: rule.Allow}, rule.Decision{}, rule.Allow, ""},
		{"deny", rule.Decision{}, rule.Decision{Effect: rule.Deny}, rule.Deny, ""},
		{"deny after allow", rule.Decision{Effect: rule.Allow}, rule.Decision{Effect: rule.Deny}, rule.Deny, ""},
		{"deny before allow", rule.Decision{Effect: rule.Deny}, rule.Decision{Effect: rule.Allow}, rule.Deny, ""},
		{"an unknown effect", rule.Decision{Effect: rule.Allow}, rule.Decision{Effect: "Allow"}, rule.Deny, ""},
		{"an error that denies", rule.Decision{Effect: rule.Deny, Err: failure}, rule.Decision{Effect: rule.Allow, Err: failure}, rule.Deny, "first: failed"},
		{"an error that does not allow", rule.Decision{Err: failure}, rule.Decision{Effect: rule.Allow}, rule.Allow, "first: failed"},
	} {
		for _, ofResources := range []bool{false, true} {
			var failures []string
			tt.first.Rule, tt.second.Rule = "first", "second"
			x := Judge{
				Request: httptest.NewRequest(http.MethodGet, "/", nil), GrantedRights: new(access.Rights),
				Policies: []rule.Policy{fixedPolicy{tt.first, ofResources, &failures}, fixedPolicy{tt.second, ofResources, &failures}},
			}
			c := message.NewGet("Patient/1", "")
			i, err := c.Interaction()
			if err != nil {
				t.Fatal(err)
			}
			var got rule.Effect
			switch of, err := x.ForCall(t.Context(), c, i); {
			case errors.Is(err, message.ErrDeniedByPolicy):
				got = rule.Deny
			case !ofResources && len(of.GrantedRights.Grants) == 1:
				got = rule.Allow
			default:
				got = of.PolicyEffect(t.Context(), resource.Resource{})
			}
			if got != tt.want || strings.Join(failures, ", ") != tt.failures {
				t.Errorf("%s, of resources: %t: %q, failures %q", tt.name, ofResources, got, failures)
			}
		}
	}
}

// Elements that any policy evaluates are requested. A type that any policy denies is denied.
func TestPoliciesOfResources(t *testing.T) {
	t.Parallel()
	j := (&Judge{Policies: []rule.Policy{
		fixedPolicy{Decision: rule.Decision{Effect: rule.Allow, Rule: "data"}, ofResources: true},
		fixedPolicy{Decision: rule.Decision{Effect: rule.Deny, Rule: "meta"}, ofResources: true},
	}}).evaluatePolicies(t.Context(), message.NewGet("Patient/1", ""), interaction.Interaction{Kind: interaction.Read}, true)
	if !j.mayAllow || !j.mayDeny || !j.dependsOn("data") || !j.dependsOn("meta") || j.dependsOn("id") || !j.deniesType(t.Context(), "Patient") {
		t.Errorf("%+v", j)
	}
}

// Older versions are returned only if the FHIR server returns the current version of the same resource and no policy denies it.
// For a deleted resource, the version before the deletion is judged.
func TestCheckCurrent(t *testing.T) {
	t.Parallel()
	const plain, star = `{"resourceType":"Patient","id":"1"}`, `{"resourceType":"Patient","id":"1","meta":{"security":[{"code":"VIP"}]}}`
	history := func(entries string) *message.Response {
		return responseWithBody(`{"resourceType":"Bundle","type":"history","entry":[` + entries + `]}`)
	}
	gone := message.NewResponse(http.StatusGone, nil)
	deletion := `{"request":{"method":"DELETE","url":"Patient/1"},"response":{"status":"204"}}`
	for name, tt := range map[string]struct {
		server  pathResponses
		visible bool
	}{
		"the current version":        {pathResponses{"Patient/1": responseWithBody(plain)}, true},
		"a denied one":               {pathResponses{"Patient/1": responseWithBody(star)}, false},
		"another resource":           {pathResponses{"Patient/1": responseWithBody(`{"resourceType":"Patient","id":"2"}`)}, false},
		"another type":               {pathResponses{"Patient/1": responseWithBody(`{"resourceType":"Person","id":"1"}`)}, false},
		"no resource":                {pathResponses{"Patient/1": responseWithBody(`[]`)}, false},
		"not found":                  {pathResponses{}, false},
		"a refusal":                  {pathResponses{"Patient/1": message.NewResponse(http.StatusForbidden, nil)}, false},
		"a failure":                  {pathResponses{"Patient/1": message.NewResponse(http.StatusInternalServerError, nil)}, false},
		"deleted":                    {pathResponses{"Patient/1": gone, "Patient/1/_history": history(deletion + `,{"resource":` + plain + `}`)}, true},
		"denied, then deleted":       {pathResponses{"Patient/1": gone, "Patient/1/_history": history(deletion + `,{"resource":` + star + `},{"resource":` + plain + `}`)}, false},
		"deleted, without versions":  {pathResponses{"Patient/1": gone, "Patient/1/_history": history(deletion)}, false},
		"deleted, with another's":    {pathResponses{"Patient/1": gone, "Patient/1/_history": history(`{"resource":{"resourceType":"Patient","id":"2"}}`)}, false},
		"deleted, without a history": {pathResponses{"Patient/1": gone}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := Judge{
				Server: tt.server, Request: httptest.NewRequest(http.MethodGet, "/", nil), GrantedRights: new(access.Rights),
				Policies: []rule.Policy{vipPolicy{}},
			}
			c := message.NewGet("Patient/1/_history/1", "")
			i, err := c.Interaction()
			if err != nil {
				t.Fatal(err)
			}
			of, err := x.ForCall(t.Context(), c, i)
			if err == nil {
				err = of.CheckCurrent(t.Context(), interaction.Reference{Type: "Patient", ID: "1"})
			}
			if (err == nil) != tt.visible {
				t.Error(err)
			}
		})
	}
}

// At least one target of a Provenance must belong to the patient, because shared targets do not identify its patient.
func TestProvenanceOfPatient(t *testing.T) {
	t.Parallel()
	server := pathResponses{
		"Device/own":      responseWithBody(`{"resourceType":"Device","id":"own","patient":{"reference":"Patient/p"}}`),
		"Device/nobodys":  responseWithBody(`{"resourceType":"Device","id":"nobodys"}`),
		"Device/anothers": responseWithBody(`{"resourceType":"Device","id":"anothers","patient":{"reference":"Patient/q"}}`),
		"Organization/o":  responseWithBody(`{"resourceType":"Organization","id":"o"}`),
	}
	rights := access.New(access.Holder{Scope: "patient/*.rs", Patient: "p"}, access.NewTypeRules(nil))
	for _, tt := range []struct {
		targets []string
		want    bool
	}{
		{[]string{"Device/own"}, true},
		{[]string{"Device/own", "Device/nobodys"}, true},
		{[]string{"Device/nobodys", "Device/own"}, true},
		{[]string{"Patient/p", "Device/nobodys"}, true},
		{[]string{"Device/nobodys"}, false},
		{[]string{"Device/nobodys", "Organization/o"}, false},
		{[]string{"Device/own", "Device/anothers"}, false},
		{[]string{"Device/own", "Device/none"}, false},
	} {
		text := `{"resourceType":"Provenance","id":"x","target":[{"reference":"` + strings.Join(tt.targets, `"},{"reference":"`) + `"}]}`
		res, err := resource.Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		x := Judge{Server: server, Request: httptest.NewRequest(http.MethodGet, "/", nil), GrantedRights: rights}
		if got, err := x.IsCovered(t.Context(), res, rights.Grants); err != nil || got != tt.want {
			t.Errorf("of %s: %v, %v", tt.targets, got, err)
		}
	}
}

// A Binary is readable only through DocumentReferences that have it as an attachment, whatever else the search returns.
func TestReferrerNamesBinary(t *testing.T) {
	t.Parallel()
	rights := access.New(access.Holder{Scope: "patient/*.rs", Patient: "p"}, access.NewTypeRules(nil))
	document := func(patient, url string) message.Entry {
		res, err := resource.Parse([]byte(`{"resourceType":"DocumentReference","id":"d","status":"current","subject":{"reference":"Patient/` + patient +
			`"},"description":"Binary/b","content":[{"attachment":{"url":"` + url + `"}}]}`))
		if err != nil {
			t.Fatal(err)
		}
		return message.Entry{ParsedResource: res}
	}
	for name, tt := range map[string]struct {
		entries []message.Entry
		want    bool
	}{
		"that names it":                  {[]message.Entry{document("p", "Binary/b")}, true},
		"that names another":             {[]message.Entry{document("p", "Binary/c")}, false},
		"that names a version":           {[]message.Entry{document("p", "Binary/b/_history/1")}, false},
		"of another patient":             {[]message.Entry{document("q", "Binary/b")}, false},
		"of both":                        {[]message.Entry{document("p", "Binary/b"), document("q", "Binary/b")}, false},
		"of another, that names another": {[]message.Entry{document("p", "Binary/b"), document("q", "Binary/c")}, true},
		"none":                           {nil, false},
	} {
		x := Judge{Server: pathResponses{}, Request: httptest.NewRequest(http.MethodGet, "/", nil), GrantedRights: rights}
		if got, err := x.isAttachment(t.Context(), "p", []string{"Binary/b"}, &message.Bundle{Entries: tt.entries}); err != nil || got != tt.want {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

// The addresses in a search for a Binary contain no separators of search values.
func TestAddressesOfBinary(t *testing.T) {
	t.Parallel()
	x := Judge{Addresses: message.Addresses{Base: "https://fhir.example.org/fhir/R4"}}
	for own, want := range map[string]bool{
		"http://hapi:8080/fhir/Binary/b": true, "http://hapi:8080/fhir/Binary/b/_history/1": true,
		"http://hapi/x,Binary/c/Binary/b": false, `http://hapi/x\/Binary/b`: false, "http://hapi/x|y/Binary/b": false, "http://hapi/a$b/Binary/b": false,
		"http://hapi/Binary/c": false, "": false,
	} {
		a := message.NewResponse(http.StatusOK, nil)
		a.Header.Set("Content-Location", own)
		all := x.attachmentURLs(interaction.Reference{Type: "Binary", ID: "b"}, a)
		if got := slices.Contains(all, message.WithoutVersion(own)); got != want || len(all) < 3 {
			t.Errorf("%q: %q", own, all)
		}
	}
}
