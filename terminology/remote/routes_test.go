package remote

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
)

// uncalledServer returns a server at the given host. Tests must not send requests to it.
func uncalledServer(t *testing.T, name string) *Server {
	t.Helper()
	s, err := NewServer(Options{Base: "https://" + name})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestRoutes(t *testing.T) {
	icd, cm, sct := uncalledServer(t, "icd"), uncalledServer(t, "cm"), uncalledServer(t, "sct")
	routes := []Route{{"http://x/icd-10", icd}, {"http://x/icd-10/cm/", cm}, {"http://snomed.info/sct", sct}}
	tests := []struct {
		name string
		s    RoutingKey
		want string
	}{
		{"nothing", RoutingKey{}, "other"},
		{"unknown", RoutingKey{ValueSet: "http://y/vs"}, "other"},
		{"itself", RoutingKey{ValueSet: "http://x/icd-10"}, "icd"},
		{"below", RoutingKey{ValueSet: "http://x/icd-10/vs"}, "icd"},
		{"with a version", RoutingKey{ValueSet: "http://x/icd-10|2019"}, "icd"},
		{"the longer one", RoutingKey{ValueSet: "http://x/icd-10/cm"}, "cm"},
		{"the longer one, below", RoutingKey{ValueSet: "http://x/icd-10/cm/vs"}, "cm"},
		{"only like it", RoutingKey{ValueSet: "http://x/icd-10-cm"}, "other"},
		{"implied", RoutingKey{ValueSet: "http://snomed.info/sct?fhir_vs=isa/404684003"}, "sct"},
		{"an edition", RoutingKey{ValueSet: "http://snomed.info/sct/731000124108?fhir_vs"}, "sct"},
		{"system", RoutingKey{ValueSet: "http://y/vs", Systems: []string{"http://y", "http://snomed.info/sct"}}, "sct"},
		{"value set before system", RoutingKey{ValueSet: "http://x/icd-10/vs", Systems: []string{"http://snomed.info/sct"}}, "icd"},
		{"missing system first", RoutingKey{Systems: []string{"http://x/icd-10"}}.WithMissing(&outcome.Error{Missing: []outcome.MissingDefinition{{Canonical: "http://snomed.info/sct"}}}), "sct"},
	}
	all, err := NewRoutes(uncalledServer(t, "other"), routes...)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := all.Server(test.s); got.Base() != "https://"+test.want {
				t.Errorf("got %s, want %s", got.Base(), test.want)
			}
		})
	}
	if got := new(Routes).Server(RoutingKey{ValueSet: "http://snomed.info/sct"}); got != nil {
		t.Errorf("got %v without routes", got)
	}
	for _, wrong := range [][]Route{{{"", icd}}, {{"/", icd}}, {{"http://x", nil}}, {{"http://x", icd}, {"http://x/", cm}}} {
		if _, err := NewRoutes(nil, wrong...); err == nil {
			t.Errorf("accepted %v", wrong)
		}
	}
}

// TestRouteOfIncomplete checks the route of a request for a loaded value set with a missing code system.
func TestRouteOfIncomplete(t *testing.T) {
	l := terminologytest.Core(t)
	routes, err := NewRoutes(nil, Route{"http://snomed.info/sct", uncalledServer(t, "sct")}, Route{"http://loinc.org", uncalledServer(t, "loinc")})
	if err != nil {
		t.Fatal(err)
	}
	for valueSet, want := range map[string]string{
		"http://hl7.org/fhir/ValueSet/condition-code": "sct",
		"http://hl7.org/fhir/ValueSet/report-codes":   "loinc",
	} {
		r := httptest.NewRequest("GET", "/ValueSet/$expand?url="+valueSet, nil)
		err := (&api.Handler{Library: l}).Expand(httptest.NewRecorder(), r)
		if !errors.Is(err, outcome.ErrIncomplete) {
			t.Fatalf("%s: got %v", valueSet, err)
		}
		subject := SubjectOf(ParseRequest(Request{Query: r.URL.RawQuery}))
		if got := routes.Server(subject); got != nil {
			t.Errorf("%s: routed to %s by its url", valueSet, got.Base())
		}
		if got := routes.Server(subject.WithMissing(err)); got == nil || got.Base() != "https://"+want {
			t.Errorf("%s: got %v, want %s", valueSet, got, want)
		}
	}
}

func TestSubjectOf(t *testing.T) {
	const form = "application/x-www-form-urlencoded"
	tests := []struct {
		name, query, contentType, body string
		valueSet                       string
		systems                        []string
	}{
		{"nothing", "", "", "", "", nil},
		{"url", "url=http%3A%2F%2Fx%2Fvs%3Ffhir_vs&filter=a", "", "", "http://x/vs?fhir_vs", nil},
		{"system", "system=http://x&code=a", "", "", "", []string{"http://x"}},
		{"form", "", form, "url=http://x/vs", "http://x/vs", nil},
		{"Parameters", "", fhirJSON, `{"resourceType":"Parameters","parameter":[{"name":"url","valueUri":"http://x/vs"},{"name":"filter","valueString":"a"}]}`, "http://x/vs", nil},
		{"codings", "", fhirJSON, `{"resourceType":"Parameters","parameter":[{"name":"coding","valueCoding":{"system":"http://a","code":"1"}},
			{"name":"codeableConcept","valueCodeableConcept":{"coding":[{"system":"http://b"},{"code":"2"}]}}]}`, "", []string{"http://a", "http://b"}},
		{"value set in Parameters", "", fhirJSON, `{"resourceType":"Parameters","parameter":[{"name":"valueSet","resource":{"resourceType":"ValueSet","url":"http://mine",
			"compose":{"include":[{"system":"http://a"},{"valueSet":["http://b/vs"]}]}}}]}`, "", []string{"http://a", "http://b/vs"}},
		{"value set", "", fhirJSON, `{"resourceType":"ValueSet","compose":{"include":[{"system":"http://a"}]}}`, "", []string{"http://a"}},
		{"XML", "", "application/fhir+xml", `<Parameters xmlns="http://hl7.org/fhir"><parameter><name value="url"/><valueUri value="http://x/vs"/></parameter></Parameters>`, "http://x/vs", nil},
		{"malformed", "url=%zz&system=http://x", fhirJSON, `{"resourceType":`, "", []string{"http://x"}},
		{"wrong types", "", fhirJSON, `{"resourceType":"Parameters","parameter":{}}`, "", nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if test.name == "XML" {
				terminologytest.RequireFeatures(t, "xml")
			}
			got := SubjectOf(ParseRequest(Request{Method: http.MethodPost, Query: test.query, ContentType: test.contentType, Body: []byte(test.body)}))
			if got.ValueSet != test.valueSet || !slices.Equal(got.Systems, test.systems) {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func FuzzSubjectOf(f *testing.F) {
	f.Add("url=a", fhirJSON, `{"resourceType":"Parameters","parameter":[{"name":"valueSet","resource":{"resourceType":"ValueSet","compose":{"include":[{}]}}}]}`)
	f.Fuzz(func(_ *testing.T, query, contentType, body string) {
		SubjectOf(ParseRequest(Request{Method: http.MethodPost, Query: query, ContentType: contentType, Body: []byte(body)})) // must not panic
	})
}

func FuzzCheck(f *testing.F) {
	f.Add(fhirJSON, expansionJSON)
	f.Add("application/fhir+xml", inXML)
	f.Add(fhirJSON, outcomeJSON)
	f.Fuzz(func(t *testing.T, contentType, body string) {
		a, err := newResponse("ValueSet/$expand", 200, map[string][]string{"Content-Type": {contentType}}, []byte(body))
		if (a == nil) == (err == nil) || a != nil && a.Resource != "ValueSet" {
			t.Errorf("got %+v, %v", a, err)
		}
	})
}
