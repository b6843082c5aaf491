package flow_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/launch"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/servertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

const ofPatient = "openid launch/patient patient/*.rs offline_access"

// opening is the answer after a clinician who is signed in, or signs in, chose a patient.
func opening(b *servertest.Browser, patient string, q url.Values) *http.Response {
	b.T.Helper()
	r := b.Authorize(q)
	if strings.HasPrefix(r.Header.Get("Location"), "/oauth2/login") {
		r = b.SignIn(q, "alice", "right")
	}
	if strings.HasPrefix(r.Header.Get("Location"), "/oauth2/select_patient") {
		if r = b.Get(r.Header.Get("Location")); r.StatusCode == http.StatusOK {
			sealed := servertest.Field(b.T, servertest.Body(b.T, r), "request")
			r = b.Post("/oauth2/select_patient", url.Values{"request": {sealed}, "patient": {patient}})
		}
	}
	return r
}

func asksConsent(r *http.Response) bool {
	return strings.HasPrefix(r.Header.Get("Location"), "/oauth2/consent?")
}

// What a person allows is for the patient whom the page named, and says nothing of others.
func TestConsentIsForOnePatient(t *testing.T) {
	t.Parallel()
	b := servertest.NewLaunching(t, new(servertest.FHIRServer), "Practitioner/alice", consentRequired)
	q := asking(ofPatient, nil)
	ada := b.Redeem(giving(b, opening(b, "ada", q), untick()))
	r := opening(b, "bob", q)
	if !asksConsent(r) {
		t.Fatalf("another patient: to %s", r.Header.Get("Location"))
	}
	bob := b.Redeem(giving(b, r, untick("patient/*.rs Condition")))
	if bob.Scope == ada.Scope {
		t.Fatalf("nothing was unticked: %s", bob.Scope)
	}
	for patient, want := range map[string]string{"ada": ada.Scope, "bob": bob.Scope} {
		r := opening(b, patient, q)
		if asksConsent(r) {
			t.Fatalf("%s: asked again", patient)
		}
		servertest.Equal(t, b.Redeem(servertest.Location(t, r)).Scope, want, patient)
	}
	servertest.Equal(t, b.Refresh(ada.Refresh, nil).Scope, ada.Scope, "the refresh token for the first")
	servertest.Equal(t, b.Refresh(bob.Refresh, nil).Scope, bob.Scope, "the refresh token for the second")
	// Taking back what was given for one ends the refresh tokens for that one.
	giving(b, opening(b, "bob", asking(ofPatient, url.Values{"prompt": {"consent"}})), untick("offline_access"))
	servertest.Equal(t, b.Refresh(bob.Refresh, nil).Error, "invalid_grant", "taken back")
}

// A launch by an EHR names its patient to the person who is asked, by the id if nothing else is known, and asks for each.
func TestConsentPageNamesThePatientOfALaunch(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		patient string
		down    bool
		want    []string
	}{
		"with a birthday": {"ada", false, []string{"opened for <strong>Ada Lovelace</strong>, born on 1815-12-10", "<legend>Health records of Ada Lovelace</legend>"}},
		"without one":     {"bob", false, []string{"opened for <strong>Bob Brown</strong>.", "<legend>Health records of Bob Brown</legend>"}},
		"unreadable":      {"ada", true, []string{"opened for the patient with the id <strong>ada</strong>", "<legend>Health records of the patient with the id ada</legend>"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, config := &servertest.FHIRServer{}, new(authorize.Config)
			b := servertest.NewLaunching(t, h, "Practitioner/alice", func(c *authorize.Config) {
				consentRequired(c)
				c.Clients[0].Scopes = servertest.LaunchScopes
				config = c
			})
			h.Down = tt.down
			launched := func(patient string) *http.Response {
				handle := servertest.RegisteredLaunch(t, config, func(l *launch.Registered) { l.Context = launch.Context{Patient: patient} })
				return opening(b, "", asking("openid launch patient/*.rs", url.Values{"launch": {handle}}))
			}
			r := launched(tt.patient)
			page, _ := b.OpenForm(r)
			for _, want := range tt.want {
				servertest.WantText(t, page, want)
			}
			giving(b, r, untick())
			if asksConsent(launched(tt.patient)) {
				t.Error("the same patient is asked about again")
			}
			other := map[string]string{"ada": "bob", "bob": "ada"}[tt.patient]
			if !asksConsent(launched(other)) {
				t.Error("another patient is not asked about")
			}
		})
	}
}

// A consent of a release that did not store the patient counts where only one can be meant.
func TestConsentOfBeforePatients(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		fhirUser string
		patients []string
		scope    string
		asks     bool
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
			b := servertest.NewLaunching(t, new(servertest.FHIRServer), tt.fhirUser, func(c *authorize.Config) {
				consentRequired(c)
				c.Clients[0].Scopes, c.Durable, c.Users[0].Patients = servertest.LaunchScopes, durable, tt.patients
			})
			at := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
			earlier := `{"v":1,"user":"alice","client_id":"app","seen":["openid","launch/patient","patient/*.rs","user/*.rs","offline_access"],` +
				`"granted":["openid","launch/patient","patient/*.rs","user/*.rs","offline_access"],"at":"` + at + `"}`
			servertest.NoError(t, durable.Put(t.Context(), store.Key("consent", "alice\x00app"), []byte(earlier), time.Hour))
			if r := opening(b, "bob", asking(tt.scope, nil)); asksConsent(r) != tt.asks {
				t.Errorf("to %q", r.Header.Get("Location"))
			}
		})
	}
}

// The account page says whose records an app has, since when and until when.
func TestAccountSaysWhoseRecords(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := servertest.NewLaunching(t, new(servertest.FHIRServer), "Practitioner/alice", func(c *authorize.Config) {
			consentRequired(c)
			c.Clients[0].Scopes, c.Clients[0].RedirectURIs = servertest.LaunchScopes, []string{servertest.Callback}
		})
		giving(b, opening(b, "ada", asking("openid launch/patient patient/*.rs", nil)), untick())
		time.Sleep(72 * time.Hour)
		giving(b, opening(b, "bob", asking("openid launch/patient patient/*.rs", nil)), untick())
		year := func(days int) string { return time.Now().UTC().AddDate(0, 0, days).Format(time.DateOnly) }
		page := servertest.AccountPage(b, "")
		servertest.WantText(t, page,
			"<strong>Health records of Ada Lovelace</strong><br>Access given: 3 days ago<br>Until "+year(362)+" at the latest",
			"<strong>Health records of Bob Brown</strong><br>Access given: in the last hour<br>Until "+year(365)+" at the latest",
			"will not be asked again for the same access",
		)
	})
}

// It says for how long the person gave an app access, and not for how long they are not asked again.
func TestAccountSaysUntilChosenDay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := servertest.NewLaunching(t, new(servertest.FHIRServer), "Practitioner/alice", func(c *authorize.Config) {
			consentRequired(c)
			c.Clients[0].Scopes, c.Clients[0].RedirectURIs = servertest.LaunchScopes, []string{servertest.Callback}
		})
		q := asking("openid launch/patient patient/*.rs offline_access", nil)
		b.Redeem(giving(b, opening(b, "ada", q), func(form url.Values) { form.Set("days", "1") }))
		want := "<br>Until " + time.Now().UTC().AddDate(0, 0, 1).Format(time.DateOnly) + " at the latest"
		if page := servertest.AccountPage(b, ""); !strings.Contains(page, want) || !strings.Contains(page, "keeps access when you sign out") {
			t.Errorf("%q is not on the page: %s", want, page)
		}
	})
}

// What somebody refuses on a consent page is not given at the next request either, whether or not the client needs consent.
func TestRefusalLasts(t *testing.T) {
	t.Parallel()
	for name, consent := range map[string]string{"not required": "", "required": client.ConsentRequired} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := servertest.NewBrowser(t, servertest.New(t, func(c *authorize.Config) {
				servertest.EveryFlow(c)
				c.Clients[0].Consent, c.Clients[0].Scopes = consent, []string{"user/*.rs", "offline_access"}
			}))
			const scope = "openid user/*.rs offline_access"
			r := b.SignIn(asking(scope, nil), "alice", "right")
			answer := servertest.Location(t, r)
			if asksConsent(r) {
				answer = giving(b, r, untick())
			}
			before := b.Redeem(answer)
			asked := asking(scope, url.Values{"prompt": {"consent"}})
			giving(b, b.Authorize(asked), untick("user/*.rs"))
			servertest.Equal(t, b.Redeem(servertest.Location(t, b.Authorize(asking(scope, nil)))).Scope, "openid offline_access")
			if r := b.Authorize(asking("openid user/Patient.rs", nil)); !asksConsent(r) {
				t.Errorf("a part of what was unticked: %s", r.Header.Get("Location"))
			}
			servertest.Equal(t, b.Refresh(before.Refresh, nil).Error, "invalid_grant", "the refresh token of before")
			for what, deny := range map[string]func(r *http.Response){
				"denied": func(r *http.Response) {
					_, sealed := b.OpenForm(r)
					b.Post("/oauth2/consent", servertest.Decision(sealed, "deny"))
				},
				"all unticked": func(r *http.Response) {
					_, sealed := b.OpenForm(r)
					b.Post("/oauth2/consent", servertest.Decision(sealed, "allow"))
				},
			} {
				q := asking("user/*.rs", url.Values{"prompt": {"consent"}})
				giving(b, b.Authorize(q), untick())
				deny(b.Authorize(q))
				servertest.Equal(t, servertest.Location(t, b.Authorize(asking("user/*.rs", url.Values{"prompt": {"none"}}))).Query().Get("error"), "consent_required", what)
				if r := b.Authorize(asking("user/*.rs", nil)); !asksConsent(r) {
					t.Errorf("%s, and then not asked: %s", what, r.Header.Get("Location"))
				}
			}
		})
	}
}

// Where another app could have the answer, who has consented, or need not, is asked to continue, and nothing else.
func TestContinuePage(t *testing.T) {
	t.Parallel()
	const local = "http://localhost:3000/callback"
	for _, consent := range []string{"", client.ConsentSkip, client.ConsentRequired} {
		t.Run("consent "+consent, func(t *testing.T) {
			t.Parallel()
			b := servertest.NewBrowser(t, servertest.New(t, func(c *authorize.Config) {
				servertest.EveryFlow(c)
				c.Clients[0].Consent, c.Clients[0].RedirectURIs, c.Clients[0].Scopes = consent, []string{local}, []string{"user/*.rs"}
			}))
			q := asking("openid user/*.rs", url.Values{"redirect_uri": {local}})
			if r := b.SignIn(q, "alice", "right"); asksConsent(r) {
				giving(b, r, untick())
			}
			for _, decision := range []string{"allow", "deny", "allow"} {
				r := b.Authorize(q)
				page, _ := b.OpenForm(r)
				if !strings.Contains(page, "<h1>Continue to The App?</h1>") || len(servertest.Boxes(page)) > 0 {
					t.Fatalf("the page is %s", page)
				}
				form := servertest.ReadForm(page).Fields
				form.Set("decision", decision)
				answer := servertest.Location(t, b.Post("/oauth2/consent", form)).Query()
				if answer.Has("code") != (decision == "allow") || answer.Has("error") != (decision == "deny") {
					t.Errorf("%s: %v", decision, answer)
				}
			}
			if page := servertest.AccountPage(b, ""); strings.Contains(page, "will not be asked again") {
				t.Errorf("the account page promises too much: %s", page)
			}
		})
	}
}

// Who pressed Continue while there was more to ask is asked.
func TestContinueIsNoConsent(t *testing.T) {
	t.Parallel()
	b := servertest.NewBrowser(t, servertest.New(t, consentRequired))
	_, sealed := b.OpenForm(b.SignIn(asking("openid email", nil), "alice", "right"))
	form := servertest.Decision(sealed, "allow")
	form.Set("continue", "yes")
	if r := b.Post("/oauth2/consent", form); !asksConsent(r) {
		t.Errorf("to %q", r.Header.Get("Location"))
	}
}
