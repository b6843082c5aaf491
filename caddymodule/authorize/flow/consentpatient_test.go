package flow_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/launch"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

const ofPatient = "openid launch/patient patient/*.rs offline_access"

// openForPatient returns the response after a clinician has signed in, if necessary, and chosen a patient.
func openForPatient(b *authorizetest.Browser, patient string, q url.Values) *http.Response {
	b.T.Helper()
	r := b.Authorize(q)
	if strings.HasPrefix(r.Header.Get("Location"), "/oauth2/login") {
		r = b.SignIn(q, "alice", "right")
	}
	if strings.HasPrefix(r.Header.Get("Location"), "/oauth2/select_patient") {
		if r = b.Get(r.Header.Get("Location")); r.StatusCode == http.StatusOK {
			sealed := authorizetest.FieldValue(b.T, authorizetest.Body(b.T, r), "request")
			r = b.Post("/oauth2/select_patient", authorizetest.PatientForm(sealed, patient))
		}
	}
	return r
}

func isConsentRedirect(r *http.Response) bool {
	return strings.HasPrefix(r.Header.Get("Location"), "/oauth2/consent?")
}

// Consent applies only to the patient shown on the page.
func TestConsentIsForOnePatient(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewLaunchBrowser(t, new(authorizetest.FHIRServer), "Practitioner/alice", consentRequired)
	q := scopeRequest(ofPatient, nil)
	ada := b.Redeem(submitConsent(b, openForPatient(b, "ada", q), untick()))
	r := openForPatient(b, "bob", q)
	if !isConsentRedirect(r) {
		t.Fatalf("another patient: to %s", r.Header.Get("Location"))
	}
	bob := b.Redeem(submitConsent(b, r, untick("patient/*.rs Condition")))
	if bob.Scope == ada.Scope {
		t.Fatalf("nothing was unticked: %s", bob.Scope)
	}
	for patient, want := range map[string]string{"ada": ada.Scope, "bob": bob.Scope} {
		r := openForPatient(b, patient, q)
		if isConsentRedirect(r) {
			t.Fatalf("%s: consent page shown again", patient)
		}
		authorizetest.Equal(t, b.Redeem(authorizetest.Location(t, r)).Scope, want, patient)
	}
	authorizetest.Equal(t, b.Refresh(ada.RefreshToken, nil).Scope, ada.Scope, "the refresh token for the first")
	authorizetest.Equal(t, b.Refresh(bob.RefreshToken, nil).Scope, bob.Scope, "the refresh token for the second")
	// Withdrawing consent for one patient revokes only that patient's refresh tokens.
	submitConsent(b, openForPatient(b, "bob", scopeRequest(ofPatient, url.Values{"prompt": {"consent"}})), untick("offline_access"))
	authorizetest.Equal(t, b.Refresh(bob.RefreshToken, nil).Error, "invalid_grant", "taken back")
}

// The consent page shows the name of the patient of an EHR launch, or else the id. It appears once for each patient.
func TestConsentPageNamesThePatientOfALaunch(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		patient     string
		unreachable bool
		want        []string
	}{
		"with a birthday": {"ada", false, []string{"Patient: <strong>Ada Lovelace</strong>, born <span class=\"whole\">Dec 10, 1815</span><br>Record number <span class=\"whole\">MRN-1</span>", "<legend>Access health records of Ada Lovelace</legend>"}},
		"without one":     {"bob", false, []string{"Patient: <strong>Bob Brown</strong>", "<legend>Access health records of Bob Brown</legend>"}},
		"unreadable":      {"ada", true, []string{"Patient with ID <strong>ada</strong>", "<legend>Access health records of the patient with ID ada</legend>"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, config := &authorizetest.FHIRServer{}, new(authorize.Config)
			b := authorizetest.NewLaunchBrowser(t, h, "Practitioner/alice", func(c *authorize.Config) {
				consentRequired(c)
				c.Clients[0].Scopes = authorizetest.LaunchScopes
				config = c
			})
			h.Unreachable = tt.unreachable
			launched := func(patient string) *http.Response {
				handle := authorizetest.RegisterLaunch(t, config, func(l *launch.Registration) { l.Context = launch.Context{Patient: patient} })
				return openForPatient(b, "", scopeRequest("openid launch patient/*.rs", url.Values{"launch": {handle}}))
			}
			r := launched(tt.patient)
			page, _ := b.OpenForm(r)
			for _, want := range tt.want {
				authorizetest.WantText(t, page, want)
			}
			submitConsent(b, r, untick())
			if isConsentRedirect(launched(tt.patient)) {
				t.Error("consent page shown again for the same patient")
			}
			other := map[string]string{"ada": "bob", "bob": "ada"}[tt.patient]
			if !isConsentRedirect(launched(other)) {
				t.Error("no consent page for another patient")
			}
		})
	}
}

// A consent stored by a release that did not record patients applies if the patient is unambiguous.
func TestConsentFromBeforePatients(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		fhirUser    string
		patients    []string
		scope       string
		wantConsent bool
	}{
		"of whom a clinician picked": {"Practitioner/alice", nil, ofPatient, true},
		"of whom one acts for":       {"RelatedPerson/mum", nil, ofPatient, true},
		"one of several":             {"Patient/ada", []string{"bob"}, ofPatient, true},
		"one's own":                  {"Patient/ada", nil, ofPatient, false},
		"of no patient":              {"Practitioner/alice", nil, "openid user/*.rs", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			durable := store.NewMemory(0, 0)
			b := authorizetest.NewLaunchBrowser(t, new(authorizetest.FHIRServer), tt.fhirUser, func(c *authorize.Config) {
				consentRequired(c)
				c.Clients[0].Scopes, c.DurableStore, c.Users[0].Patients = authorizetest.LaunchScopes, durable, tt.patients
			})
			at := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
			earlier := `{"v":1,"user":"alice","client_id":"app","seen":["openid","launch/patient","patient/*.rs","user/*.rs","offline_access"],` +
				`"granted":["openid","launch/patient","patient/*.rs","user/*.rs","offline_access"],"at":"` + at + `"}`
			authorizetest.NoError(t, durable.Put(t.Context(), store.Key("consent", "alice\x00app"), []byte(earlier), time.Hour))
			if r := openForPatient(b, "bob", scopeRequest(tt.scope, nil)); isConsentRedirect(r) != tt.wantConsent {
				t.Errorf("to %q", r.Header.Get("Location"))
			}
		})
	}
}

// For each app, the account page shows which patients' records it can access, since when and until when.
func TestAccountListsPatients(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := authorizetest.NewLaunchBrowser(t, new(authorizetest.FHIRServer), "Practitioner/alice", func(c *authorize.Config) {
			consentRequired(c)
			c.Clients[0].Scopes, c.Clients[0].RedirectURIs = authorizetest.LaunchScopes, []string{authorizetest.Callback}
		})
		submitConsent(b, openForPatient(b, "ada", scopeRequest("openid launch/patient patient/*.rs", nil)), untick())
		time.Sleep(72 * time.Hour)
		submitConsent(b, openForPatient(b, "bob", scopeRequest("openid launch/patient patient/*.rs", nil)), untick())
		page := authorizetest.AccountPage(b, "")
		authorizetest.WantText(t, page,
			"<strong>Health records of Ada Lovelace</strong><br>Allowed 3 days ago<br>Access ends when you sign out.",
			"<strong>Health records of Bob Brown</strong><br>Allowed less than an hour ago<br>Access ends when you sign out.",
			"You allowed this access and won’t be asked again.",
		)
	})
}

// The account page lists no patient for an app without patient-level scopes.
func TestAccountListsNoPatientWithoutScope(t *testing.T) {
	t.Parallel()
	for name, consent := range map[string]string{"consent": client.ConsentRequired, "grant": ""} {
		b := authorizetest.NewLaunchBrowser(t, new(authorizetest.FHIRServer), "Practitioner/alice", func(c *authorize.Config) {
			consentRequired(c)
			c.Clients[0].Scopes, c.Clients[0].RedirectURIs, c.Clients[0].Consent = authorizetest.LaunchScopes, []string{authorizetest.Callback}, consent
		})
		for _, prompt := range []string{"consent", ""} {
			q := scopeRequest("openid launch/patient patient/*.rs offline_access", url.Values{"prompt": {prompt}})
			r := openForPatient(b, "ada", q)
			u := authorizetest.Location(t, r)
			if prompt != "" {
				u = submitConsent(b, r, untick("patient/*.rs"))
			}
			authorizetest.Equal(t, b.Redeem(u).Scope, "openid launch/patient offline_access", name)
		}
		if page := authorizetest.AccountPage(b, ""); strings.Contains(page, "Health records of") || !strings.Contains(page, "Access continues after you sign out.") {
			t.Errorf("%s: %s", name, page)
		}
	}
}

// The account page shows the expiry of access, not the expiry of the consent.
func TestAccountShowsAccessExpiry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := authorizetest.NewLaunchBrowser(t, new(authorizetest.FHIRServer), "Practitioner/alice", func(c *authorize.Config) {
			consentRequired(c)
			c.Clients[0].Scopes, c.Clients[0].RedirectURIs = authorizetest.LaunchScopes, []string{authorizetest.Callback}
		})
		q := scopeRequest("openid launch/patient patient/*.rs offline_access", nil)
		b.Redeem(submitConsent(b, openForPatient(b, "ada", q), func(form url.Values) { form.Set("days", "1") }))
		want := `<br>Access ends by <span class="whole">` + time.Now().UTC().AddDate(0, 0, 1).Format("Jan 2, 2006") + "</span>."
		if page := authorizetest.AccountPage(b, ""); !strings.Contains(page, want) || !strings.Contains(page, "Access continues after you sign out.") {
			t.Errorf("%q is not on the page: %s", want, page)
		}
	})
}

// A refusal on the consent page also applies to later requests, whether or not the client needs consent.
func TestDeniedConsentIsRemembered(t *testing.T) {
	t.Parallel()
	for name, consent := range map[string]string{"not required": "", "required": client.ConsentRequired} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) {
				authorizetest.AllowAllFlows(c)
				c.Clients[0].Consent, c.Clients[0].Scopes = consent, []string{"user/*.rs", "offline_access"}
			}))
			const scope = "openid user/*.rs offline_access"
			r := b.SignIn(scopeRequest(scope, nil), "alice", "right")
			answer := authorizetest.Location(t, r)
			if isConsentRedirect(r) {
				answer = submitConsent(b, r, untick())
			}
			before := b.Redeem(answer)
			request := scopeRequest(scope, url.Values{"prompt": {"consent"}})
			submitConsent(b, b.Authorize(request), untick("user/*.rs"))
			authorizetest.Equal(t, b.Redeem(authorizetest.Location(t, b.Authorize(scopeRequest(scope, nil)))).Scope, "openid offline_access")
			if r := b.Authorize(scopeRequest("openid user/Patient.rs", nil)); !isConsentRedirect(r) {
				t.Errorf("no consent page for a part of the unticked items: %s", r.Header.Get("Location"))
			}
			authorizetest.Equal(t, b.Refresh(before.RefreshToken, nil).Error, "invalid_grant", "previous refresh token")
			for what, deny := range map[string]func(r *http.Response){
				"denied": func(r *http.Response) {
					_, sealed := b.OpenForm(r)
					b.Post("/oauth2/consent", authorizetest.DecisionForm(sealed, "deny"))
				},
				"all unticked": func(r *http.Response) {
					_, sealed := b.OpenForm(r)
					b.Post("/oauth2/consent", authorizetest.DecisionForm(sealed, "allow"))
				},
			} {
				q := scopeRequest("user/*.rs", url.Values{"prompt": {"consent"}})
				submitConsent(b, b.Authorize(q), untick())
				deny(b.Authorize(q))
				authorizetest.Equal(t, authorizetest.Location(t, b.Authorize(scopeRequest("user/*.rs", url.Values{"prompt": {"none"}}))).Query().Get("error"), "consent_required", what)
				if r := b.Authorize(scopeRequest("user/*.rs", nil)); !isConsentRedirect(r) {
					t.Errorf("%s: no consent page: %s", what, r.Header.Get("Location"))
				}
			}
		})
	}
}

// If another app can intercept the redirect URI, a person who doesn't need to consent gets a page with only a Continue button.
func TestContinuePage(t *testing.T) {
	t.Parallel()
	const local = "http://localhost:3000/callback"
	for _, consent := range []string{"", client.ConsentSkip, client.ConsentRequired} {
		t.Run("consent "+consent, func(t *testing.T) {
			t.Parallel()
			b := authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) {
				authorizetest.AllowAllFlows(c)
				c.Clients[0].Consent, c.Clients[0].RedirectURIs, c.Clients[0].Scopes = consent, []string{local}, []string{"user/*.rs"}
			}))
			q := scopeRequest("openid user/*.rs", url.Values{"redirect_uri": {local}})
			if r := b.SignIn(q, "alice", "right"); isConsentRedirect(r) {
				submitConsent(b, r, untick())
			}
			for _, decision := range []string{"allow", "deny", "allow"} {
				r := b.Authorize(q)
				page, _ := b.OpenForm(r)
				if !strings.Contains(page, "<h1>Continue to The App?</h1>") || len(authorizetest.CheckboxNames(page)) > 0 {
					t.Fatalf("the page is %s", page)
				}
				form := authorizetest.ReadForm(page).Fields
				form.Set("decision", decision)
				answer := authorizetest.Location(t, b.Post("/oauth2/consent", form)).Query()
				if answer.Has("code") != (decision == "allow") || answer.Has("error") != (decision == "deny") {
					t.Errorf("%s: %v", decision, answer)
				}
			}
			if page := authorizetest.AccountPage(b, ""); strings.Contains(page, "will not be asked again") {
				t.Errorf("the account page promises too much: %s", page)
			}
		})
	}
}

// Continue does not give consent. If consent has become necessary since the page was shown, the consent page appears.
func TestContinueIsNoConsent(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, consentRequired))
	_, sealed := b.OpenForm(b.SignIn(scopeRequest("openid email", nil), "alice", "right"))
	form := authorizetest.DecisionForm(sealed, "allow")
	form.Set("continue", "yes")
	if r := b.Post("/oauth2/consent", form); !isConsentRedirect(r) {
		t.Errorf("to %q", r.Header.Get("Location"))
	}
}

// The search script runs only on pages with a search and may connect only to this server.
func TestSearchWhileTyping(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fhirUser   string
		records    launch.Records
		searchable bool
	}{
		"a clinician":                 {"Practitioner/alice", new(authorizetest.FHIRServer), true},
		"who chooses among their own": {"Person/carer", new(authorizetest.FHIRServer), false},
		"while the records are down":  {"Practitioner/alice", &authorizetest.FHIRServer{Unreachable: true}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := authorizetest.NewLaunchBrowser(t, c.records, c.fhirUser, nil)
			r := b.SignIn(authorizetest.Request(url.Values{"scope": {"launch/patient patient/*.rs"}}), "alice", "right")
			page := b.Get(authorizetest.Location(t, r).String())
			policy := page.Header.Get("Content-Security-Policy")
			_, script, _ := strings.Cut(authorizetest.Body(t, page), "<script>")
			script, _, _ = strings.Cut(script, "</script>")
			hash := sha256.Sum256([]byte(script))
			authorizetest.WantText(t, policy, "script-src 'sha256-"+base64.StdEncoding.EncodeToString(hash[:])+"'")
			if strings.Contains(script, "form[role=search]") != c.searchable || strings.Contains(policy, "; connect-src 'self'; ") != c.searchable {
				t.Errorf("script %q, policy %s", script, policy)
			}
		})
	}
}

// slowHospital delays each response by ten seconds.
type slowHospital struct{ authorizetest.FHIRServer }

func (h *slowHospital) Get(ctx context.Context, by launch.Reader, path string, query url.Values) ([]byte, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(10 * time.Second):
		return h.FHIRServer.Get(ctx, by, path, query)
	}
}

// The page appears within a time limit, even if a slow FHIR server must be queried for many patients.
func TestPickWhileSlow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := authorizetest.NewLaunchBrowser(t, new(slowHospital), "Person/carer", nil)
		r := b.SignIn(authorizetest.Request(url.Values{"scope": {"launch/patient"}}), "alice", "right")
		start := time.Now()
		page := b.Get(r.Header.Get("Location"))
		if took := time.Since(start); page.StatusCode != http.StatusServiceUnavailable || took > 30*time.Second {
			t.Errorf("status %d after %s", page.StatusCode, took)
		}
	})
}

// malformedHospital returns an invalid Patient resource before valid ones.
type malformedHospital struct{ authorizetest.FHIRServer }

func (h *malformedHospital) Get(ctx context.Context, by launch.Reader, path string, query url.Values) ([]byte, error) {
	body, err := h.FHIRServer.Get(ctx, by, path, query)
	const wrong = `"entry":[null,{"resource":null},{"resource":{"resourceType":"Patient","id":"eve","birthDate":1990,"name":{}}},`
	return []byte(strings.Replace(string(body), `"entry":[`, wrong, 1)), err
}

// An invalid record does not hide the others.
func TestPickBesideMalformedRecord(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewLaunchBrowser(t, new(malformedHospital), "Practitioner/alice", nil)
	page, _ := b.OpenForm(b.SignIn(authorizetest.Request(url.Values{"scope": {"launch/patient"}}), "alice", "right"))
	if !strings.Contains(page, "Ada Lovelace") || strings.Contains(page, `value="eve"`) {
		t.Errorf("%s", page)
	}
}

// tokensForPatient signs alice in and returns the tokens for bob, choosing him on the patient page if it appears.
func tokensForPatient(t *testing.T, b *authorizetest.Browser, q url.Values) authorizetest.LaunchResponse {
	t.Helper()
	r := b.SignIn(q, "alice", "right")
	if at := r.Header.Get("Location"); strings.HasPrefix(at, "/oauth2/select_patient") {
		page := b.Get(at)
		if r = page; page.StatusCode == http.StatusOK {
			sealed := authorizetest.FieldValue(t, authorizetest.Body(t, page), "request")
			r = b.Post("/oauth2/select_patient", authorizetest.PatientForm(sealed, "bob"))
		}
	}
	return authorizetest.RedeemLaunch(b, authorizetest.Location(t, r))
}

// A grant is revoked once the person may no longer choose its patient.
func TestRefreshWithoutThePatient(t *testing.T) {
	t.Parallel()
	user := func(fhirUser string, patients ...string) people.User {
		return people.User{FHIRUser: fhirUser, Patients: patients}
	}
	for name, c := range map[string]struct {
		before, after people.User
		launched      bool // whether the grant is from an EHR launch without a patient
		ends          bool
	}{
		"still on the list":          {user("", "ada", "bob"), user("", "carl", "bob"), false, false},
		"off the list":               {user("", "ada", "bob"), user("", "ada"), false, true},
		"off the list of a patient":  {user("Patient/ada", "bob"), user("Patient/ada"), false, true},
		"fhirUser removed":           {user("Patient/bob"), user(""), false, true},
		"a clinician":                {user("Practitioner/alice"), user("Practitioner/alice"), false, false},
		"a clinician, with a list":   {user("Practitioner/alice"), user("Practitioner/alice", "ada"), false, true},
		"a related person":           {user("RelatedPerson/mum"), user("RelatedPerson/mum"), false, false},
		"off the list, after launch": {user("", "ada", "bob"), user("", "ada"), true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var config *authorize.Config
			b := authorizetest.NewLaunchBrowser(t, new(authorizetest.FHIRServer), c.before.FHIRUser, func(into *authorize.Config) {
				into.Users[0].Patients, config = c.before.Patients, into
			})
			q := authorizetest.Request(url.Values{"scope": {"patient/*.rs offline_access"}})
			if c.launched {
				q.Set("launch", authorizetest.RegisterLaunch(t, config, func(l *launch.Registration) { l.Context = launch.Context{Intent: "order"} }))
			}
			got := tokensForPatient(t, b, q)
			if got.Patient != "bob" {
				t.Fatalf("%+v", got)
			}
			config.Users = slices.Clone(config.Users)
			config.Users[0].FHIRUser, config.Users[0].Patients = c.after.FHIRUser, c.after.Patients
			s, err := authorize.New(*config)
			authorizetest.NoError(t, err)
			r := authorizetest.NewBrowser(t, s).Post("/oauth2/token", authorizetest.RefreshForm(got.RefreshToken, nil))
			if text := authorizetest.Body(t, r); strings.Contains(text, "invalid_grant") != c.ends {
				t.Errorf("%s", text)
			}
		})
	}
}

// If the patient page is submitted or reloaded after max_age, a new sign-in is required before any name is shown.
func TestMaxAgeOfPickerLeftOpen(t *testing.T) {
	t.Parallel()
	for name, fhirUser := range map[string]string{"that would choose by itself": "RelatedPerson/mum", "that shows patients": "Practitioner/alice"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := authorizetest.NewLaunchBrowser(t, new(authorizetest.FHIRServer), fhirUser, nil)
				page := b.SignIn(authorizetest.Request(url.Values{"scope": {"launch/patient"}, "max_age": {"60"}}), "alice", "right").Header.Get("Location")
				time.Sleep(20 * time.Minute)
				if r := b.Get(page); !strings.HasPrefix(r.Header.Get("Location"), "/oauth2/login?") {
					t.Errorf("%d, to %q", r.StatusCode, r.Header.Get("Location"))
				}
			})
		})
	}
}

// An optional second factor is requested only once per request, regardless of the following pages.
func TestStepUpBeforePicker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := authorizetest.NewAccountBrowser(t, authorizetest.New(t, func(c *authorize.Config) {
			c.Users[0].FHIRUser, c.Records, c.Clients[0].Scopes = "Practitioner/alice", new(authorizetest.FHIRServer), authorizetest.LaunchScopes
		}))
		secret, _ := authorizetest.EnrollApp(b)
		time.Sleep(time.Minute)
		factor := authorizetest.FieldValue(t, authorizetest.Body(t, b.Follow(b.Get("/oauth2/account?part=passkey"))), "factor")
		b.SendOTP(factor, authorizetest.OTP(secret, time.Now()))
		authorizetest.EnrollPasskey(b, authorizetest.NewAuthenticator())
		time.Sleep(time.Minute)
		r := b.Authorize(authorizetest.Request(url.Values{"scope": {"launch/patient"}, "acr_values": {"phr"}}))
		factor = authorizetest.FieldValue(t, authorizetest.Body(t, b.Get(r.Header.Get("Location"))), "factor")
		_, sealed := b.OpenForm(b.SendOTP(factor, authorizetest.OTP(secret, time.Now())))
		r = b.Post("/oauth2/select_patient", authorizetest.PatientForm(sealed, "ada"))
		authorizetest.WantCode(t, authorizetest.Location(t, r), "code after a repeated request")
	})
}
