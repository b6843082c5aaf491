package enforce_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/compartment"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/searchparam"
)

// carriers are resources of patient a that contain (<text>) or refer to (<reference>) another resource. Their id is "carrier".
var carriers = map[string]string{
	"contained":             `{"resourceType":"Observation","id":"carrier","status":"final","contained":[<text>],"subject":{"reference":"Patient/a"}}`,
	"target":                `{"resourceType":"Provenance","id":"carrier","target":[{"reference":"<reference>"}]}`,
	"target and patient":    `{"resourceType":"Provenance","id":"carrier","target":[{"reference":"<reference>"},{"reference":"Patient/a"}]}`,
	"security context":      `{"resourceType":"Binary","id":"carrier","contentType":"text/plain","securityContext":{"reference":"<reference>"}}`,
	"entry of a document":   `{"resourceType":"Bundle","id":"carrier","type":"document","entry":[{"resource":{"resourceType":"Composition","id":"c","subject":{"reference":"Patient/a"}}},{"resource":<text>}]}`,
	"entry of a collection": `{"resourceType":"Bundle","id":"carrier","type":"collection","entry":[{"resource":{"resourceType":"Observation","status":"final","subject":{"reference":"Patient/a"}}},{"resource":<text>}]}`,
	"contained in an entry": `{"resourceType":"Bundle","id":"carrier","type":"collection","entry":[{"resource":{"resourceType":"Observation","status":"final","contained":[<text>],"subject":{"reference":"Patient/a"}}}]}`,
}

// carried are the contained resources, each with a search constraint that it matches and one that it does not match.
var carried = map[string]struct{ text, matching, other string }{
	"Condition":         {`{"resourceType":"Condition","id":"x","category":[{"coding":[{"code":"problem-list-item"}]}],"subject":{"reference":"Patient/a"}}`, "category=problem-list-item", "category=encounter-diagnosis"},
	"DocumentReference": {`{"resourceType":"DocumentReference","id":"x","status":"current","category":[{"coding":[{"code":"psychotherapy"}]}],"subject":{"reference":"Patient/a"}}`, "category=psychotherapy", "category=clinical-note"},
	"RelatedPerson":     {`{"resourceType":"RelatedPerson","id":"x","active":true,"patient":{"reference":"Patient/a"}}`, "active=true", "active=false"},
	"Device":            {`{"resourceType":"Device","id":"x","status":"active","patient":{"reference":"Patient/a"}}`, "status=active", "status=inactive"},
	"Practitioner":      {`{"resourceType":"Practitioner","id":"x","active":true}`, "active=true", "active=false"},
	"Medication":        {`{"resourceType":"Medication","id":"x","status":"active"}`, "status=active", "status=inactive"},
}

// carriedScopes maps scopes for the carried <type> to whether they cover the resource. The carried resource matches the
// constraint <matching>, but not <other>.
var carriedScopes = map[string]bool{
	"":                             false,
	"patient/*.rs":                 true,
	"patient/<type>.rs":            true,
	"patient/<type>.r":             true,
	"patient/<type>.s":             false,
	"patient/<type>.cud":           false,
	"patient/<type>.rs?<matching>": true,
	"patient/<type>.rs?<other>":    false,
	"patient/<type>.rs?<other> patient/<type>.rs?<matching>":                true,
	"patient/<type>.rs?<other>&<matching>":                                  false,
	"user/<type>.rs":                                                        false, // the resource belongs to patient c
	"system/<type>.rs":                                                      true,
	"system/<type>.rs?<other>":                                              false,
	"patient/AllergyIntolerance.rs openid launch/patient":                   false,
	"patient/<type>.rs?<other> patient/<type>.cud?<matching> user/<type>.r": false,
}

// carrierScopes are the scopes for each carrier itself and its other dependencies.
var carrierScopes = map[string]string{
	"contained":             "patient/Observation.rs patient/DiagnosticReport.rs",
	"target":                "patient/Provenance.rs",
	"target and patient":    "patient/Provenance.rs patient/Patient.rs",
	"security context":      "patient/Binary.rs",
	"entry of a document":   "patient/Bundle.rs patient/Composition.rs",
	"entry of a collection": "patient/Bundle.rs patient/Observation.rs",
	"contained in an entry": "patient/Bundle.rs patient/Observation.rs",
}

// everyones are the keys of carried with a type that is shared by all patients.
var everyones = []string{"Practitioner", "Medication"}

// For each request that can find a carrier, it is returned if and only if the scopes cover the resource that it carries.
// Contained resources of shared types don't need a scope.
func TestCarried(t *testing.T) {
	t.Parallel()
	visible := map[string]bool{}
	for of, carrier := range carriers {
		for resourceType, c := range carried {
			fill := strings.NewReplacer("<text>", c.text, "<reference>", resourceType+"/x", "<type>", resourceType, "<matching>", c.matching, "<other>", c.other)
			g := newCarrierGateway(t, c.text, fill.Replace(carrier))
			isShared := slices.Contains(everyones, resourceType)
			for scope, covers := range carriedScopes {
				want := covers && !(of == "target" && isShared) || strings.HasPrefix(of, "contained") && isShared
				holder := access.Holder{
					Scope: carrierScopes[of] + " " + fill.Replace(scope), Patient: "a", User: interaction.Reference{Type: "Patient", ID: "c"}, UserPatient: "c",
				}
				for way, target := range carrierRequests(carrier, scope, resourceType) {
					r := httptest.NewRequest(http.MethodGet, "/fhir/R4/"+target, nil)
					if way == "batch" {
						r = newRequest(http.MethodPost, "/fhir/R4", "application/fhir+json", `{"resourceType":"Bundle","type":"batch","entry":[`+bundleEntry("GET", target)+`]}`)
					}
					r.Header.Set("Accept", "application/fhir+json")
					body, _ := io.ReadAll(g.send(holder, r).Body)
					if got := strings.Contains(string(body), `"carrier"`); got != want {
						t.Errorf("%s %s by %s under %q: shown %v, want %v: %.300s", of, resourceType, way, holder.Scope, got, want, body)
					}
					visible[of+" by "+way] = visible[of+" by "+way] || want
				}
			}
		}
	}
	if len(visible) != 42 {
		t.Errorf("%d ways lead to the carriers", len(visible))
	}
	for way, ok := range visible {
		if !ok {
			t.Errorf("%s is never visible: the test covers too little", way)
		}
	}
}

// newCarrierGateway returns a gateway for a FHIR server with a carrier and the resource that it carries.
func newCarrierGateway(t *testing.T, text, carrier string) *gateway {
	t.Helper()
	g := newGateway(t, append(slices.Clone(records), text, carrier,
		`{"resourceType":"DiagnosticReport","id":"d","status":"final","subject":{"reference":"Patient/a"},"result":[{"reference":"Observation/carrier"}]}`)...)
	everything := `{"resourceType":"Bundle","type":"searchset","entry":[{"resource":` + carrier + `}]}`
	g.server.Handlers = map[string]http.HandlerFunc{"Patient/a/$everything": newHandler(everything)}
	return g
}

// carrierRequests returns the requests that can find a carrier.
func carrierRequests(carrier, scope, resourceType string) map[string]string {
	_, rest, _ := strings.Cut(carrier, `"resourceType":"`)
	kind, _, _ := strings.Cut(rest, `"`)
	ways := map[string]string{
		"read": kind + "/carrier", "vread": kind + "/carrier/_history/1", "history": kind + "/carrier/_history", "batch": kind + "/carrier",
	}
	if kind == "Observation" {
		ways["search"], ways["search of the compartment"], ways["search of the system"] = "Observation?_id=carrier", "Patient/a/Observation?_id=carrier", "?_type=Observation&_id=carrier"
		ways["_include"] = "DiagnosticReport?_include=DiagnosticReport:result"
	}
	if strings.Contains(carrier, "Patient/a") && kind == "Provenance" {
		ways["search"] = "Provenance?_id=carrier"
	}
	if scope == "patient/*.rs" {
		ways["$everything"] = "Patient/a/$everything"
	}
	searches := strings.HasSuffix(scope, ".rs") && !strings.HasPrefix(scope, "user/")
	if kind == "Provenance" && searches && !slices.Contains(everyones, resourceType) {
		ways["_revinclude"] = resourceType + "?_id=x&_revinclude=Provenance:target"
	}
	return ways
}

// A carrier can be written only if a scope permits writing or reading the carried resource in the same patient's record.
func TestCarriedWrites(t *testing.T) {
	t.Parallel()
	for of, carrier := range carriers {
		for resourceType, c := range carried {
			isContained, isShared := strings.HasPrefix(of, "contained"), slices.Contains(everyones, resourceType)
			if isShared && !isContained || resourceType == "Device" && !isContained {
				continue // clients bound to a patient cannot write shared resources
			}
			fill := strings.NewReplacer("<text>", c.text, "<reference>", resourceType+"/x", "<type>", resourceType, "<matching>", c.matching, "<other>", c.other)
			text := fill.Replace(carrier)
			kind := referenceOf(text)[:strings.Index(referenceOf(text), "/")]
			for scope, covers := range map[string]bool{
				"": false, "patient/*.cruds": true, "patient/*.cud": true, "patient/<type>.r": true, "patient/<type>.c?<matching>": true, "patient/<type>.cruds?<other>": false,
				"user/<type>.cruds": false,
			} {
				want := covers || isContained && isShared
				holder := access.Holder{
					Scope:   strings.ReplaceAll(carrierScopes[of], ".rs", ".cruds") + " " + fill.Replace(scope),
					Patient: "a", User: interaction.Reference{Type: "Patient", ID: "c"}, UserPatient: "c",
				}
				for way, body := range map[string]string{
					"POST " + kind:                text,
					"PUT " + kind + "/carrier":    text,
					"PATCH " + kind + "/carrier":  `[{"op":"add","path":"/language","value":"de"}]`,
					"DELETE " + kind + "/carrier": "",
					"POST ":                       `{"resourceType":"Bundle","type":"transaction","entry":[` + entryWithResource("PUT", kind+"/carrier", text) + `]}`,
				} {
					g := newCarrierGateway(t, c.text, text)
					before := len(g.server.All())
					header := ""
					if strings.HasPrefix(way, "PATCH") {
						header = "Content-Type: application/json-patch+json"
					}
					g.server.OnRequest = func(r *http.Request) {
						if r.Method != http.MethodGet && !want {
							t.Errorf("%s %s under %q: %s %s reaches the server", of, resourceType, holder.Scope, r.Method, r.URL)
						}
					}
					got := g.written(writeCase{holder: holder, request: way, body: body, header: header})
					if text, _ := io.ReadAll(got.Body); (got.StatusCode/100 == 2) != want || !want && len(g.server.All()) != before {
						t.Errorf("%s %s under %q: %s: %d, want %v: %.200s", of, resourceType, holder.Scope, way, got.StatusCode, want, text)
					}
				}
			}
		}
	}
}

// A resource that refers to a contained Patient is not returned, even if another reference puts it into the compartment of
// patient a.
func TestContainedSubject(t *testing.T) {
	t.Parallel()
	tested := 0
	for _, resourceType := range interaction.Types() {
		names, _ := compartment.PatientParameters(resourceType)
		for _, name := range names {
			p, _ := searchparam.Lookup(resourceType, name)
			for _, path := range p.Paths {
				tested++
				for reference, want := range map[string]int{"#p": 404, "#rp": 404, "#missing": 404, "#o": 200, "Organization/o": 200} {
					text := `{"resourceType":"` + resourceType + `","id":"x","contained":[{"resourceType":"Patient","id":"p"},{"resourceType":"Organization","id":"o"}],` +
						elementAt(path.Elements, `[{"reference":"Patient/a"},{"reference":"`+reference+`"}]`) + "}"
					if reference == "#rp" { // the RelatedPerson refers to the contained Patient
						text = strings.Replace(text, `{"resourceType":"Organization"`, `{"resourceType":"RelatedPerson","id":"rp","patient":{"reference":"#p"}},{"resourceType":"Organization"`, 1)
					}
					if reference == "#o" && resourceType == "Provenance" {
						want = 404 // contained targets do not identify their patient
					}
					g := newGateway(t, text, `{"resourceType":"Organization","id":"o"}`)
					if got := g.get(patientA, resourceType+"/x").StatusCode; got != want {
						t.Errorf("%s %s: %s beside Patient/a: %d, want %d", resourceType, path.Elements, reference, got, want)
					}
				}
			}
		}
	}
	if tested < 100 {
		t.Errorf("only %d references were tested", tested)
	}
}

// Contained resources that carry other resources cannot be judged, so their carriers are withheld.
func TestCarriedTwice(t *testing.T) {
	t.Parallel()
	carrier := `{"resourceType":"Observation","id":"carrier","status":"final","contained":[<text>],"subject":{"reference":"Patient/a"}}`
	for name, text := range map[string]struct {
		text        string
		wantVisible bool
	}{
		"contained in everyone's":        {`{"resourceType":"Practitioner","id":"p","contained":[<carried>]}`, false},
		"contained in a record":          {`{"resourceType":"Specimen","id":"p","contained":[<carried>]}`, false},
		"not in a list":                  {`{"resourceType":"Practitioner","id":"p","contained":<carried>}`, false},
		"entry":                          {`{"resourceType":"Bundle","id":"p","type":"collection","entry":[{"resource":<carried>}]}`, false},
		"outcome of an entry":            {`{"resourceType":"Bundle","id":"p","type":"batch-response","entry":[{"response":{"status":"200","outcome":<carried>}}]}`, false},
		"parameter":                      {`{"resourceType":"Parameters","id":"p","parameter":[{"name":"x","resource":<carried>}]}`, false},
		"target":                         {`{"resourceType":"Provenance","id":"p","target":[{"reference":"Condition/x"}]}`, false},
		"security context":               {`{"resourceType":"Binary","id":"p","contentType":"text/plain","securityContext":{"reference":"Condition/x"}}`, false},
		"a Binary of the carrier's":      {`{"resourceType":"Binary","id":"p","contentType":"text/plain"}`, true},
		"a Practitioner without further": {`{"resourceType":"Practitioner","id":"p"}`, true},
	} {
		for _, patient := range []string{"a", "b"} {
			condition := `{"resourceType":"Condition","id":"x","subject":{"reference":"Patient/` + patient + `"}}`
			fill := strings.NewReplacer("<carried>", condition)
			observation := strings.Replace(carrier, "<text>", fill.Replace(text.text), 1)
			for _, stored := range []string{
				observation,
				`{"resourceType":"Practitioner","id":"carrier","contained":[` + fill.Replace(text.text) + `]}`,
				`{"resourceType":"Bundle","id":"carrier","type":"collection","entry":[{"resource":` + observation + `}]}`,
			} {
				g := newGateway(t, append(slices.Clone(records), condition, stored)...)
				h := access.Holder{Scope: "patient/Observation.rs patient/Practitioner.rs patient/Specimen.rs patient/Bundle.rs patient/Parameters.rs patient/Provenance.rs patient/Binary.rs", Patient: "a"}
				kind, _, _ := strings.Cut(referenceOf(stored), "/")
				for _, target := range []string{kind + "/carrier", kind + "/carrier/_history/1", kind + "/carrier/_history", kind + "?_id=carrier"} {
					if kind == "Bundle" && strings.Contains(target, "?") {
						continue // the carrier matches no search
					}
					body, _ := io.ReadAll(g.get(h, target).Body)
					if got := strings.Contains(string(body), `"carrier"`); got != text.wantVisible {
						t.Errorf("%s of patient %s in %s by %s: shown %v: %.200s", name, patient, kind, target, got, body)
					}
				}
			}
		}
	}
}

// elementAt returns a JSON member that contains value at path.
func elementAt(path []string, value string) string {
	for n, name := range slices.Backward(path) {
		if value = `"` + name + `":` + value; n > 0 {
			value = "{" + value + "}"
		}
	}
	return value
}

func TestReferences(t *testing.T) {
	t.Parallel()
	focus := func(id, reference string) string {
		return observation(id, "Patient/a", `,"focus":[{"reference":"`+reference+`"}]`)
	}
	nested := observation("", "Patient/a", `,"extension":[{"url":"http://e","valueReference":{"reference":"Patient?identifier=1"}}]`)
	list := `{"resourceType":"List","id":"a1","title":"new","subject":{"reference":"Patient/a"},"entry":[{"item":{"reference":"Observation/b1"}}]}`
	testWrites(t, []writeCase{
		{"to an own record", patientA, "POST Observation", focus("", "Encounter/a1"), "", 201, "Observation/new-19=Encounter/a1"},
		{"to another's record", patientA, "POST Observation", focus("", "Encounter/b1"), "", 403, ""},
		{"to a missing resource", patientA, "POST Observation", focus("", "Encounter/none"), "", 403, ""},
		{"to another patient", patientA, "POST Observation", focus("", "Patient/b"), "", 403, ""},
		{"to a shared type", patientA, "POST Observation", focus("", "Practitioner/alice"), "", 201, "Observation/new-19=alice"},
		{"to a shared type that is not there", patientA, "POST Observation", focus("", "Practitioner/none"), "", 201, "Observation/new-19=none"},
		{"to another's device", patientA, "POST Observation", focus("", "Device/b1"), "", 403, ""},
		{"to another's record by the server's address", patientA, "POST Observation", focus("", "http://backend.internal:8080/fhir/Encounter/b1"), "", 403, ""},
		{"to another's record by a path", patientA, "POST Observation", focus("", "/Encounter/b1"), "", 403, ""},
		{"to another's record by its version", patientA, "POST Observation", focus("", "Encounter/b1/_history/1"), "", 403, ""},
		{"by an escape", patientA, "POST Observation", strings.Replace(focus("", "Encounter/b1"), `[{"reference"`, `[{"\u0072eference"`, 1), "", 403, ""},
		{"by dot segments", patientA, "POST Observation", focus("", "Encounter/.."), "", 403, ""},
		{"to a contained resource", patientA, "POST Observation", focus("", "#x"), "", 201, "Observation/new-19=#x"},
		{"added by an update", patientA, "PUT Observation/a1", focus("a1", "Encounter/b1"), "", 403, ""},
		{"added by an update, own", patientA, "PUT Observation/a1", focus("a1", "Encounter/a1"), "", 200, "Observation/a1=Encounter/a1"},
		{"there before the update", patientA, "PUT List/a1", list, "", 200, "List/a1=new"},
		{"linking another patient", patientA, "PUT Patient/a", `{"resourceType":"Patient","id":"a","link":[{"type":"seealso","other":{"reference":"Patient/b"}}]}`, "", 403, ""},
		{"not under scopes that are bound to no patient", staff, "POST Observation", focus("", "Encounter/b1"), "", 201, "Observation/new-19=Encounter/b1"},
		{"conditional", patientA, "POST Observation", focus("", "Practitioner?identifier=1"), "", 412, ""},
		{"conditional, in an extension", patientA, "POST Observation", nested, "", 412, ""},
		{"conditional, all of another type", staff, "POST Observation", nested, "", 403, ""},
		{"conditional, all of its type", access.Holder{Scope: "user/Observation.cruds user/Patient.s", User: clinician.User}, "POST Observation", nested, "", 201, "Observation/new-19=Patient?identifier"},
		{"conditional, chained", access.Holder{Scope: "user/Observation.cruds user/Patient.s", User: clinician.User}, "POST Observation", strings.Replace(nested, "identifier", "organization.name", 1), "", 403, ""},
		{"conditional, _has", access.Holder{Scope: "user/Observation.cruds user/Patient.s", User: clinician.User}, "POST Observation", strings.Replace(nested, "identifier", "_has:Encounter:patient:status", 1), "", 403, ""},
		{"conditional, by an address", staff, "POST Observation", focus("", "http://backend.internal:8080/fhir/Patient?identifier=1"), "", 403, ""},
		{"conditional, all of all types", clinician, "POST Observation", nested, "", 201, "Observation/new-19=Patient?identifier"},
	})
}

// References to another patient's record and to a missing resource are rejected alike.
func TestReferencesLookAlike(t *testing.T) {
	t.Parallel()
	answers := map[string]bool{}
	for _, id := range []string{"b1", "none"} {
		g := newGateway(t, writable...)
		methods := ""
		g.server.OnRequest = func(r *http.Request) { methods += r.Method + " " }
		body := observation("", "Patient/a", `,"encounter":{"reference":"Encounter/`+id+`"}`)
		response := g.written(writeCase{holder: patientA, request: "POST Observation", body: body})
		text, _ := io.ReadAll(response.Body)
		answers[response.Status+string(text)+methods] = true
	}
	if len(answers) != 1 {
		t.Errorf("answers differ: %v", answers)
	}
}

// A reference that is not a path to a resource is not looked up.
func TestDotSegments(t *testing.T) {
	t.Parallel()
	g := newGateway(t, writable...)
	g.server.OnRequest = func(r *http.Request) { t.Errorf("unexpected request for %s", r.URL.Path) }
	for _, to := range []string{"Encounter/..", "Encounter/.", "Encounter/../Patient/b"} {
		body := observation("", "Patient/a", `,"focus":[{"reference":"`+to+`"}]`)
		if got := g.written(writeCase{holder: patientA, request: "POST Observation", body: body}); got.StatusCode != http.StatusForbidden {
			t.Errorf("%s: status %d", to, got.StatusCode)
		}
	}
}

// A conditional reference is replaced by the match of a search with the client's permissions.
func TestConditionalReferences(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, subject, performer, want string
		status                         int
	}{
		{"the own patient", "Patient?family=adams", "Patient/a", `"subject":{"reference":"Patient/a"}`, 201},
		{"a practitioner", "Patient/a", "Practitioner?family=boyd", `"performer":[{"reference":"Practitioner/bob"}]`, 201},
		{"another patient", "Patient?family=brown", "Patient/a", "", 412},
		{"nobody", "Patient/a", "Practitioner?family=nobody", "", 412},
		{"several", "Patient/a", "Practitioner?_id=bob,alice", "", 412},
		{"leaky search", "Patient/a", "Practitioner?_list=1", "", 403},
		{"a type without a scope", "Patient/a", "Organization?name=mercy", "", 403},
	} {
		for _, method := range []string{http.MethodPost, http.MethodPut} {
			g := newGateway(t, chart...)
			g.server.OnRequest = func(r *http.Request) {
				if text, _ := io.ReadAll(r.Body); strings.Contains(string(text), "?") {
					t.Errorf("%s: the server is sent %s", tt.name, text)
				} else {
					r.Body = io.NopCloser(strings.NewReader(string(text)))
				}
			}
			body, target := `{"resourceType":"Observation","status":"final","subject":{"reference":"`+tt.subject+`"},"performer":[{"reference":"`+tt.performer+`"}]}`, "Observation"
			if method == http.MethodPut {
				body, target = strings.Replace(body, `{`, `{"id":"a3",`, 1), "Observation/a3"
			}
			r := newRequest(method, "/fhir/R4/"+target, "application/fhir+json", body)
			r.Header.Set("Prefer", "return=representation")
			response := g.send(access.Holder{Scope: "patient/Observation.cruds patient/Patient.rs patient/Practitioner.rs", Patient: "a"}, r)
			text, _ := io.ReadAll(response.Body)
			want := tt.status
			if method == http.MethodPut && want == http.StatusCreated {
				want = http.StatusOK
			}
			if response.StatusCode != want || !strings.Contains(string(text), tt.want) {
				t.Errorf("%s %s: %d %s", method, tt.name, response.StatusCode, text)
			}
		}
	}
}
