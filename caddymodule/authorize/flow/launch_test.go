package flow_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/launch"
)

// follow follows redirects to the gateway's own pages.
func follow(t *testing.T, b *authorizetest.Browser, r *http.Response) *http.Response {
	t.Helper()
	for range 5 {
		location := r.Header.Get("Location")
		if location == "" || !strings.HasPrefix(location, "/oauth2/") {
			return r
		}
		r = b.Get(location)
	}
	t.Fatal("redirected in a circle")
	return nil
}

func TestPatientOfPerson(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fhirUser string
		patients []string
		scope    string
		patient  string
		granted  string
	}{
		"a patient":                           {"Patient/ada", nil, "launch/patient patient/*.rs", "ada", "launch/patient patient/*.rs"},
		"a patient, by patient scopes alone":  {"Patient/ada", nil, "patient/*.rs", "ada", "patient/*.rs"},
		"a patient, by user scopes alone":     {"Patient/ada", nil, "user/*.rs", "", "user/*.rs"},
		"a related person":                    {"RelatedPerson/mum", nil, "launch/patient patient/*.rs", "bob", "launch/patient patient/*.rs"},
		"a related person who is gone":        {"RelatedPerson/dad", nil, "openid launch/patient patient/*.rs", "", "openid"},
		"a patient that the provider names":   {"", []string{"bob"}, "launch/patient patient/*.rs", "bob", "launch/patient patient/*.rs"},
		"no fhirUser":                         {"", nil, "openid launch/patient patient/*.rs user/*.rs", "", "openid user/*.rs"},
		"launch without a launch":             {"Patient/ada", nil, "openid launch launch/patient", "ada", "openid launch/patient"},
		"launch/encounter without encounters": {"Patient/bob", nil, "openid launch/patient launch/encounter", "bob", "openid launch/patient"},
		"a role":                              {"Patient/ada", nil, "openid launch/patient?role=https://example.org/r", "ada", "openid launch/patient?role=https://example.org/r"},
		"unsupported launch context":          {"Patient/ada", nil, "openid launch/imagingstudy", "", "openid"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			records := launch.Records(new(authorizetest.FHIRServer))
			if c.patient == "bob" && strings.Contains(c.scope, "encounter") {
				records = emptyEncounters{new(authorizetest.FHIRServer)}
			}
			b := authorizetest.NewLaunchBrowser(t, records, c.fhirUser, func(config *authorize.Config) { config.Users[0].Patients = c.patients })
			answer := authorizetest.Location(t, follow(t, b, b.SignIn(authorizetest.Request(url.Values{"scope": {c.scope}}), "alice", "right")))
			if got := authorizetest.RedeemLaunch(b, answer); got.Patient != c.patient || got.Scope != c.granted {
				t.Errorf("patient %q, scope %q", got.Patient, got.Scope)
			}
		})
	}
}

// emptyEncounters is a FHIR server without encounters.
type emptyEncounters struct{ *authorizetest.FHIRServer }

func (e emptyEncounters) Get(ctx context.Context, by launch.Reader, path string, query url.Values) ([]byte, error) {
	if path == "Encounter" {
		return []byte(`{"resourceType":"Bundle"}`), nil
	}
	return e.FHIRServer.Get(ctx, by, path, query)
}

func TestNoPatientToChoose(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewLaunchBrowser(t, new(authorizetest.FHIRServer), "", nil)
	answer := b.SignInAlice(authorizetest.Request(url.Values{"scope": {"launch/patient patient/*.rs"}}))
	if answer.Query().Get("error") != "invalid_scope" || answer.Query().Has("error_description") {
		t.Errorf("%s", answer)
	}
}

// The scope fhirUser is granted only to people with a FHIR resource. Otherwise, it is omitted from the response's scope.
func TestFHIRUserScopeNeedsFHIRUser(t *testing.T) {
	t.Parallel()
	for fhirUser, want := range map[string]string{"Practitioner/alice": "openid fhirUser", "": "openid"} {
		b := authorizetest.NewLaunchBrowser(t, new(authorizetest.FHIRServer), fhirUser, nil)
		got := b.Redeem(b.SignInAlice(authorizetest.Request(url.Values{"scope": {"openid fhirUser"}})))
		if got.Scope != want || (b.Claims(got.IDToken)["fhirUser"] != nil) != (fhirUser != "") {
			t.Errorf("for %q: scope %q, ID token %v", fhirUser, got.Scope, b.Claims(got.IDToken))
		}
		answer := authorizetest.Location(t, b.Authorize(authorizetest.Request(url.Values{"scope": {"fhirUser"}})))
		if e := answer.Query().Get("error"); (e == "invalid_scope") != (fhirUser == "") {
			t.Errorf("fhirUser alone for %q: %q", fhirUser, e)
		}
	}
}

// Control characters are rejected before the FHIR server is queried, because some databases fail on them.
func TestPickByControlCharacters(t *testing.T) {
	t.Parallel()
	h := &authorizetest.FHIRServer{}
	b := authorizetest.NewLaunchBrowser(t, h, "Practitioner/alice", nil)
	form := b.Get(authorizetest.Location(t, b.SignIn(authorizetest.Request(url.Values{"scope": {"launch/patient"}}), "alice", "right")).String())
	sealed := authorizetest.FieldValue(t, authorizetest.Body(t, form), "request")
	h.Unreachable = true // the FHIR server would fail on any query
	for _, change := range []url.Values{{"name": {"a\x00b"}}, {"identifier": {"\x00"}}, {"identifier": {"\xff"}}, {"birthdate": {"2000-01-01\x00"}}} {
		change.Set("request", sealed)
		if r := b.Get("/oauth2/select_patient?" + change.Encode()); r.StatusCode != http.StatusOK || strings.Contains(authorizetest.Body(t, r), "Lovelace") {
			t.Errorf("%q: %d", change, r.StatusCode)
		}
	}
}

// An invalid date matches no patient, and a response that isn't a Bundle is an error.
func TestPickByInvalidDate(t *testing.T) {
	t.Parallel()
	h := new(authorizetest.FHIRServer)
	b := authorizetest.NewLaunchBrowser(t, h, "Practitioner/alice", nil)
	_, sealed := b.OpenForm(b.SignIn(authorizetest.Request(url.Values{"scope": {"launch/patient"}}), "alice", "right"))
	r := b.Get("/oauth2/select_patient?" + url.Values{"request": {sealed}, "birthdate": {"abc"}}.Encode())
	if text := authorizetest.Body(t, r); r.StatusCode != http.StatusOK || strings.Contains(text, "Ada Lovelace") {
		t.Errorf("%d %s", r.StatusCode, text)
	}
	h.Response = "null"
	authorizetest.WantStatus(t, b.Get("/oauth2/select_patient?"+url.Values{"request": {sealed}}.Encode()), http.StatusServiceUnavailable)
}

func TestPickPatient(t *testing.T) {
	t.Parallel()
	h := new(authorizetest.FHIRServer)
	b := authorizetest.NewLaunchBrowser(t, h, "Practitioner/alice", nil)
	q := authorizetest.Request(url.Values{"scope": {"openid launch/patient launch/encounter patient/*.rs offline_access"}})
	page, sealed := b.OpenForm(b.SignIn(q, "alice", "right"))
	if !strings.Contains(page, "Ada Lovelace") || !strings.Contains(page, "Bob Brown") || !strings.Contains(page, "Dec 10, 1815") {
		t.Errorf("%s", page)
	}
	if h.LastReader.FHIRUser != authorizetest.FHIRBase+"/Practitioner/alice" || h.LastReader.Scope != "user/Patient.rs user/Encounter.rs" {
		t.Errorf("FHIR server called as %+v", h.LastReader)
	}
	found := authorizetest.Body(t, b.Get("/oauth2/select_patient?"+url.Values{"request": {sealed}, "name": {"love"}}.Encode()))
	if strings.Contains(found, "Bob Brown") || !strings.Contains(found, "Ada Lovelace") {
		t.Errorf("searched: %s", found)
	}
	visits, sealed := b.OpenForm(b.Post("/oauth2/select_patient", authorizetest.PatientForm(sealed, "ada")))
	if !strings.Contains(visits, `value="v1"`) || !strings.Contains(visits, "Ada Lovelace") {
		t.Errorf("%s", visits)
	}
	authorizetest.WantStatus(t, b.Post("/oauth2/select_encounter", url.Values{"request": {sealed}, "encounter": {"v2"}}), http.StatusForbidden, "another patient's visit")
	answer := authorizetest.Location(t, b.Post("/oauth2/select_encounter", url.Values{"request": {sealed}, "encounter": {"v1"}}))
	got := authorizetest.RedeemLaunch(b, answer)
	if got.Patient != "ada" || got.Encounter != "v1" || got.Scope != "openid launch/patient launch/encounter patient/*.rs offline_access" {
		t.Errorf("%+v", got)
	}
	refreshed := authorizetest.Body(t, b.Post("/oauth2/token", url.Values{
		"grant_type": {"refresh_token"}, "refresh_token": {got.RefreshToken}, "client_id": {"app"},
	}))
	if !strings.Contains(refreshed, `"patient":"ada"`) || !strings.Contains(refreshed, `"encounter":"v1"`) {
		t.Errorf("refreshed: %s", refreshed)
	}
	introspected := authorizetest.Body(t, b.Post("/oauth2/introspect", url.Values{
		"token": {got.AccessToken}, "client_id": {"confidential"}, "client_secret": {"s3cret/+ %"},
	}))
	if !strings.Contains(introspected, `"active":false`) { // the token was issued to another client
		t.Errorf("introspected: %s", introspected)
	}
}

// The page shows the medical record number, if there is one, and the age of patients who are alive.
func TestPatientRows(t *testing.T) {
	t.Parallel()
	patient := func(members string) string {
		return `{"resourceType":"Bundle","entry":[{"resource":{"resourceType":"Patient","id":"a","birthDate":"1970-05-01",` + members + `}}]}`
	}
	for name, c := range map[string]struct{ members, want, other string }{
		"record number":         {`"identifier":[{"value":"1"},{"value":"2","type":{"coding":[{"code":"MR"}]}}]`, `>2</span>`, `>1</span>`},
		"previous number":       {`"identifier":[{"value":"1"},{"use":"old","value":"2","type":{"coding":[{"code":"MR"}]}}]`, `>1</span>`, `>2</span>`},
		"no such type":          {`"identifier":[{"value":"1","type":{"coding":[{"code":"PI"}]}},{"value":"2"}]`, `>1</span>`, `>2</span>`},
		"alive":                 {`"deceasedBoolean":false`, ` years)`, `deceased`},
		"deceased":              {`"deceasedBoolean":true`, `(deceased)`, ` years)`},
		"deceased on some date": {`"deceasedDateTime":"2020-01-01"`, `(deceased)`, ` years)`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := authorizetest.NewLaunchBrowser(t, &authorizetest.FHIRServer{Response: patient(c.members)}, "Practitioner/alice", nil)
			text, _ := b.OpenForm(b.SignIn(authorizetest.Request(url.Values{"scope": {"launch/patient"}}), "alice", "right"))
			if !strings.Contains(text, c.want) || strings.Contains(text, c.other) {
				t.Error(text)
			}
		})
	}
}

// A clinician who has chosen a patient confirms the choice on a page that identifies the patient, unless the consent page follows.
func TestConfirmPatient(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		prompt, patient, want string
		status                int
	}{
		"confirmation": {"", "ada", "Is this the right patient?", http.StatusOK},
		"consent page": {"consent", "ada", "/oauth2/consent", http.StatusFound},
		"not theirs":   {"", "carol", "You don’t have access to this patient’s record.", http.StatusForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := authorizetest.NewLaunchBrowser(t, new(authorizetest.FHIRServer), "Practitioner/alice", nil)
			_, sealed := b.OpenForm(b.SignIn(authorizetest.Request(url.Values{"scope": {"launch/patient"}, "prompt": {c.prompt}}), "alice", "right"))
			r := b.Post("/oauth2/select_patient", url.Values{"request": {sealed}, "patient": {c.patient}})
			text := r.Header.Get("Location") + authorizetest.Body(t, r)
			if r.StatusCode != c.status || !strings.Contains(text, c.want) {
				t.Errorf("%d %s", r.StatusCode, text)
			}
			if c.status != http.StatusOK {
				return
			}
			authorizetest.WantText(t, text, "Ada Lovelace", "Dec 10, 1815", `name="patient" value="ada"`, "Choose another patient")
			answer := authorizetest.Location(t, b.Post("/oauth2/select_patient", authorizetest.PatientForm(sealed, "ada")))
			authorizetest.Equal(t, authorizetest.RedeemLaunch(b, answer).Patient, "ada")
		})
	}
}

// The patient page lists a clinician's recent patients. It lists them neither to other people nor in search results.
func TestRecentPatients(t *testing.T) {
	t.Parallel()
	h := new(authorizetest.FHIRServer)
	b := authorizetest.NewLaunchBrowser(t, h, "Practitioner/alice", func(c *authorize.Config) { c.Users[1].FHIRUser = "Practitioner/" + c.Users[1].ID })
	q := authorizetest.Request(url.Values{"scope": {"launch/patient"}})
	text, sealed := b.OpenForm(b.SignIn(q, "alice", "right"))
	if strings.Contains(text, "Recent patients") {
		t.Errorf("before the first choice: %s", text)
	}
	for _, patient := range []string{"bob", "ada", "bob"} {
		authorizetest.WantStatus(t, b.Post("/oauth2/select_patient", authorizetest.PatientForm(sealed, patient)), http.StatusFound)
	}
	recent := func(name string) string {
		text := authorizetest.Body(t, b.Get("/oauth2/select_patient?"+url.Values{"request": {sealed}, "name": {name}}.Encode()))
		_, list, _ := strings.Cut(text, "<h2>Recent patients</h2>")
		list, _, _ = strings.Cut(list, "<h2>")
		return strings.Join(regexp.MustCompile(`value="[a-z]+"`).FindAllString(list, -1), " ")
	}
	authorizetest.Equal(t, recent(""), `value="bob" value="ada"`)
	authorizetest.Equal(t, recent("love"), "")
	h.Hidden = "Patient/bob" // alice may no longer see bob
	authorizetest.Equal(t, recent(""), `value="ada"`)

	other := authorizetest.NewBrowser(t, b.Server)
	if text, _ := other.OpenForm(other.SignIn(q, "bob", "other")); !strings.Contains(text, "Ada Lovelace") || strings.Contains(text, "Recent patients") {
		t.Errorf("to another person: %s", text)
	}
}

func TestPickEncounterNone(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewLaunchBrowser(t, new(authorizetest.FHIRServer), "Patient/ada", nil)
	_, sealed := b.OpenForm(b.SignIn(authorizetest.Request(url.Values{"scope": {"launch/patient launch/encounter"}}), "alice", "right"))
	answer := authorizetest.Location(t, b.Post("/oauth2/select_encounter", authorizetest.DecisionForm(sealed, "none")))
	if got := authorizetest.RedeemLaunch(b, answer); got.Encounter != "" || got.Scope != "launch/patient" {
		t.Errorf("%+v", got)
	}
}

func TestPickRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fhirUser, patient string
		status            int
	}{
		"no such patient":      {"Practitioner/alice", "nobody", http.StatusForbidden},
		"no id":                {"Practitioner/alice", "", http.StatusForbidden},
		"a path":               {"Practitioner/alice", "../Observation/1", http.StatusForbidden},
		"a patient's other":    {"Person/carer", "carol", http.StatusForbidden},
		"one of their own":     {"Person/carer", "bob", http.StatusFound},
		"the clinician's pick": {"Practitioner/alice", "bob", http.StatusFound},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := authorizetest.NewLaunchBrowser(t, new(authorizetest.FHIRServer), c.fhirUser, nil)
			_, sealed := b.OpenForm(b.SignIn(authorizetest.Request(url.Values{"scope": {"launch/patient patient/*.rs"}}), "alice", "right"))
			r := b.Post("/oauth2/select_patient", authorizetest.PatientForm(sealed, c.patient))
			authorizetest.WantStatus(t, r, c.status)
		})
	}
}

func TestPickCancelled(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewLaunchBrowser(t, new(authorizetest.FHIRServer), "Practitioner/alice", nil)
	_, sealed := b.OpenForm(b.SignIn(authorizetest.Request(url.Values{"scope": {"launch/patient"}}), "alice", "right"))
	answer := authorizetest.Location(t, b.Post("/oauth2/select_patient", authorizetest.DecisionForm(sealed, "deny")))
	authorizetest.WantError(t, answer, "access_denied")
}

func TestPickWithoutPrompt(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewLaunchBrowser(t, new(authorizetest.FHIRServer), "Practitioner/alice", nil)
	b.SignIn(authorizetest.Request(nil), "alice", "right")
	r := b.Authorize(authorizetest.Request(url.Values{"scope": {"launch/patient"}, "prompt": {"none"}}))
	authorizetest.Equal(t, authorizetest.Location(t, r).Query().Get("error"), "interaction_required")
}

func TestPickWhileDown(t *testing.T) {
	t.Parallel()
	h := &authorizetest.FHIRServer{Unreachable: true}
	b := authorizetest.NewLaunchBrowser(t, h, "Practitioner/alice", nil)
	r := b.SignIn(authorizetest.Request(url.Values{"scope": {"launch/patient"}}), "alice", "right")
	page := b.Get(authorizetest.Location(t, r).String())
	if text := authorizetest.Body(t, page); page.StatusCode != http.StatusServiceUnavailable || !strings.Contains(text, "Health records are unavailable right now.") {
		t.Errorf("%d %s", page.StatusCode, text)
	}
	h.Unreachable = false
	_, sealed := b.OpenForm(r) // opens the same page again
	authorizetest.WantStatus(t, b.Post("/oauth2/select_patient", authorizetest.PatientForm(sealed, "ada")), http.StatusFound)
}

func TestEHRLaunch(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*launch.Registration)
		err    string
	}{
		"for anybody":              {nil, ""},
		"for the person":           {func(l *launch.Registration) { l.User = "alice" }, ""},
		"for the person's record":  {func(l *launch.Registration) { l.FHIRUser = "Practitioner/alice" }, ""},
		"for another app":          {func(l *launch.Registration) { l.ClientID = "strict" }, "invalid_request"},
		"for another's record":     {func(l *launch.Registration) { l.FHIRUser = "Practitioner/bob" }, "invalid_request"},
		"for another person":       {func(l *launch.Registration) { l.User = "bob" }, "invalid_request"},
		"for a person who is gone": {func(l *launch.Registration) { l.User = "carol" }, "invalid_request"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var config *authorize.Config
			b := authorizetest.NewLaunchBrowser(t, new(authorizetest.FHIRServer), "Practitioner/alice", func(c *authorize.Config) { config = c })
			handle := authorizetest.RegisterLaunch(t, config, c.change)
			q := authorizetest.Request(url.Values{"scope": {"launch openid patient/*.rs"}, "launch": {handle}})
			r := b.Authorize(q)
			if r.Header.Get("Location") != "" && strings.HasPrefix(r.Header.Get("Location"), "/oauth2/") {
				_, sealed := b.OpenForm(r)
				r = b.Post("/oauth2/login", url.Values{"request": {sealed}, "username": {"alice"}, "password": {"right"}})
			}
			answer := authorizetest.Location(t, r)
			if c.err != "" {
				if answer.Query().Get("error") != c.err || answer.Query().Get("error_description") == "" {
					t.Errorf("%s", answer)
				}
				return
			}
			got := authorizetest.RedeemLaunch(b, answer)
			if got.Patient != "ada" || got.Encounter != "v1" || got.Intent != "reconcile" || got.Tenant != "north" ||
				!slices.Contains(strings.Fields(got.Scope), "launch") {
				t.Errorf("%+v", got)
			}
			again := authorizetest.Location(t, b.Authorize(q))
			authorizetest.WantError(t, again, "invalid_request", "used twice")
		})
	}
}

func TestLaunchEndpoint(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewLaunchBrowser(t, new(authorizetest.FHIRServer), "Practitioner/alice", authorizetest.WithEHR)
	r := b.Post("/oauth2/launch", authorizetest.LaunchForm(nil))
	var response struct {
		Launch    string
		ExpiresIn int    `json:"expires_in"`
		LaunchURL string `json:"launch_url"`
	}
	body := authorizetest.Body(t, r)
	if err := json.Unmarshal([]byte(body), &response); err != nil || !strings.Contains(body, "&launch=") || r.StatusCode != http.StatusCreated || response.ExpiresIn != 600 {
		t.Fatalf("%d %+v %v", r.StatusCode, response, err)
	}
	opened, err := url.Parse(response.LaunchURL)
	if err != nil || opened.Query().Get("launch") != response.Launch || opened.Query().Get("iss") != authorizetest.FHIRBase || opened.Query().Get("x") != "1" {
		t.Errorf("%s, %v", response.LaunchURL, err)
	}
	q := authorizetest.Request(url.Values{"scope": {"launch launch/imagingstudy?role=https://ehr.example/r openid patient/*.rs offline_access"}, "launch": {response.Launch}, "aud": {authorizetest.FHIRBase}})
	got := authorizetest.RedeemLaunch(b, authorizetest.Location(t, b.SignIn(q, "alice", "right")))
	text, err := json.Marshal(got.Context)
	authorizetest.NoError(t, err)
	want := `{"patient":"ada","encounter":"v1","fhirContext":[{"reference":"ImagingStudy/7"},` +
		`{"canonical":"https://ehr.example/Questionnaire/q|1","type":"Questionnaire","role":"https://ehr.example/role"}],` +
		`"need_patient_banner":false,"intent":"reconcile","smart_style_url":"https://ehr.example/style.json","tenant":"north"}`
	if string(text) != want || !strings.Contains(got.Scope, "launch/imagingstudy?role=") {
		t.Errorf("%s, scope %s", text, got.Scope)
	}
}

// A launch that cannot be verified during an outage of the FHIR server is accepted, because the app's own requests will fail.
func TestLaunchEndpointWhileDown(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewLaunchBrowser(t, &authorizetest.FHIRServer{Unreachable: true}, "Practitioner/alice", authorizetest.WithEHR)
	authorizetest.WantStatus(t, b.Post("/oauth2/launch", authorizetest.LaunchForm(nil)), http.StatusCreated)
}

// goWords matches Go-specific text that is meaningless to EHR developers.
var goWords = regexp.MustCompile(`Go |launch\.|strconv|unmarshal`)

func TestLaunchEndpointRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change url.Values
		err    string
	}{
		"wrong secret":                           {url.Values{"client_secret": {"wrong"}}, "invalid_client"},
		"a client that may not":                  {url.Values{"client_id": {"service"}, "client_secret": {"hush"}}, "unauthorized_client"},
		"a public client":                        {url.Values{"client_id": {"app"}, "client_secret": nil}, "unauthorized_client"},
		"no app":                                 {url.Values{"app": nil}, "invalid_request"},
		"an unknown app":                         {url.Values{"app": {"nobody"}}, "invalid_request"},
		"a service":                              {url.Values{"app": {"service"}}, "invalid_request"},
		"nobody":                                 {url.Values{"user": nil}, "invalid_request"},
		"fhirUser of an unsupported type":        {url.Values{"fhirUser": {"Observation/1"}}, "invalid_request"},
		"patient as a reference":                 {url.Values{"patient": {"Patient/ada"}}, "invalid_request"},
		"encounter without a patient":            {url.Values{"patient": nil}, "invalid_request"},
		"unknown need_patient_banner":            {url.Values{"need_patient_banner": {"perhaps"}}, "invalid_request"},
		"a style over http":                      {url.Values{"smart_style_url": {"http://ehr.example/style.json"}}, "invalid_request"},
		"a long intent":                          {url.Values{"intent": {strings.Repeat("x", 257)}}, "invalid_request"},
		"fhirContext that is no array":           {url.Values{"fhirContext": {`{}`}}, "invalid_request"},
		"a context that is no JSON":              {url.Values{"fhirContext": {`[{"reference":1}]`}}, "invalid_request"},
		"need_patient_banner that is no boolean": {url.Values{"need_patient_banner": {"perhaps"}}, "invalid_request"},
		"an unknown user":                        {url.Values{"user": {"nobody"}}, "invalid_request"},
		"an unknown patient":                     {url.Values{"patient": {"nobody"}}, "invalid_request"},
		"an unknown encounter":                   {url.Values{"encounter": {"v9"}}, "invalid_request"},
		"another's encounter":                    {url.Values{"patient": {"bob"}}, "invalid_request"},
		"an empty reference":                     {url.Values{"fhirContext": {`[{}]`}}, "invalid_request"},
		"a reference to the patient":             {url.Values{"fhirContext": {`[{"reference":"Patient/ada"}]`}}, "invalid_request"},
		"an absolute reference":                  {url.Values{"fhirContext": {`[{"reference":"https://a/Observation/1"}]`}}, "invalid_request"},
		"unregistered role":                      {url.Values{"fhirContext": {`[{"reference":"Observation/1","role":"mine"}]`}}, "invalid_request"},
		"an identifier of nothing":               {url.Values{"fhirContext": {`[{"identifier":{"system":"https://a"}}]`}}, "invalid_request"},
		"too many references":                    {url.Values{"fhirContext": {"[" + strings.Repeat(`{"reference":"Observation/1"},`, 20) + `{"reference":"Observation/1"}]`}}, "invalid_request"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := authorizetest.NewLaunchBrowser(t, new(authorizetest.FHIRServer), "Practitioner/alice", authorizetest.WithEHR)
			if text := authorizetest.Body(t, b.Post("/oauth2/launch", authorizetest.LaunchForm(c.change))); !strings.Contains(text, `"error":"`+c.err+`"`) || goWords.MatchString(text) {
				t.Errorf("%s", text)
			}
		})
	}
}

// If an EHR launch has no style, the site's style is used. Scripts from other origins can read it.
func TestSMARTStyle(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewLaunchBrowser(t, new(authorizetest.FHIRServer), "Practitioner/alice", func(c *authorize.Config) {
		authorizetest.WithEHR(c)
		c.Branding.Color = "#7a1fa2"
	})
	launched := authorizetest.Decode[struct{ Launch string }](t, b.Post("/oauth2/launch", authorizetest.LaunchForm(url.Values{"smart_style_url": nil})))
	q := authorizetest.Request(url.Values{"scope": {"launch patient/*.rs"}, "launch": {launched.Launch}})
	address, err := url.Parse(authorizetest.RedeemLaunch(b, authorizetest.Location(t, b.SignIn(q, "alice", "right"))).SMARTStyleURL)
	if err != nil || address.Host != "fhir.example.org" {
		t.Fatalf("%s, %v", address, err)
	}
	r := b.Get(address.RequestURI())
	style := authorizetest.Decode[map[string]string](t, r)
	if style["color_highlight"] != "#7a1fa2" || len(style) != 11 || r.Header.Get("Access-Control-Allow-Origin") != "*" {
		t.Errorf("%v, %v", style, r.Header)
	}
}

func TestUnknownLaunch(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewLaunchBrowser(t, new(authorizetest.FHIRServer), "Practitioner/alice", nil)
	answer := authorizetest.Location(t, b.Authorize(authorizetest.Request(url.Values{"launch": {"guessed"}})))
	authorizetest.WantError(t, answer, "invalid_request")
}

func TestRefreshAsAnotherPatient(t *testing.T) {
	t.Parallel()
	var config authorize.Config
	b := authorizetest.NewLaunchBrowser(t, new(authorizetest.FHIRServer), "Patient/ada", func(c *authorize.Config) { config = *c })
	got := authorizetest.RedeemLaunch(b, b.SignInAlice(authorizetest.Request(url.Values{"scope": {"patient/*.rs offline_access"}})))
	config.Users = slices.Clone(config.Users)
	config.Users[0].FHIRUser = "Patient/bob"
	s, err := authorize.New(config)
	authorizetest.NoError(t, err)
	r := authorizetest.NewBrowser(t, s).Post("/oauth2/token", url.Values{
		"grant_type": {"refresh_token"}, "refresh_token": {got.RefreshToken}, "client_id": {"app"},
	})
	authorizetest.WantText(t, authorizetest.Body(t, r), "invalid_grant")
}
