package flow_test

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/launch"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/servertest"
)

// grantedFor signs alice in, and returns the tokens for bob, whom she chooses if she is asked.
func grantedFor(t *testing.T, b *servertest.Browser, q url.Values) servertest.LaunchResponse {
	t.Helper()
	r := b.SignIn(q, "alice", "right")
	if at := r.Header.Get("Location"); strings.HasPrefix(at, "/oauth2/select_patient") {
		page := b.Get(at)
		if r = page; page.StatusCode == http.StatusOK {
			sealed := servertest.Field(t, servertest.Body(t, page), "request")
			r = b.Post("/oauth2/select_patient", url.Values{"request": {sealed}, "patient": {"bob"}})
		}
	}
	return servertest.RedeemLaunch(b, servertest.Location(t, r))
}

// A grant ends when its person may no longer choose the patient.
func TestRefreshWithoutThePatient(t *testing.T) {
	t.Parallel()
	user := func(fhirUser string, patients ...string) people.User {
		return people.User{FHIRUser: fhirUser, Patients: patients}
	}
	for name, c := range map[string]struct {
		before, after people.User
		launched      bool // by an EHR that left the choice to the person
		ends          bool
	}{
		"still on the list":          {user("", "ada", "bob"), user("", "carl", "bob"), false, false},
		"off the list":               {user("", "ada", "bob"), user("", "ada"), false, true},
		"off the list of a patient":  {user("Patient/ada", "bob"), user("Patient/ada"), false, true},
		"nobody's any more":          {user("Patient/bob"), user(""), false, true},
		"a clinician":                {user("Practitioner/alice"), user("Practitioner/alice"), false, false},
		"a clinician, with a list":   {user("Practitioner/alice"), user("Practitioner/alice", "ada"), false, true},
		"a related person":           {user("RelatedPerson/mum"), user("RelatedPerson/mum"), false, false},
		"off the list, after launch": {user("", "ada", "bob"), user("", "ada"), true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var config *authorize.Config
			b := servertest.NewLaunching(t, new(servertest.FHIRServer), c.before.FHIRUser, func(into *authorize.Config) {
				into.Users[0].Patients, config = c.before.Patients, into
			})
			q := servertest.Request(url.Values{"scope": {"patient/*.rs offline_access"}})
			if c.launched {
				q.Set("launch", servertest.RegisteredLaunch(t, config, func(l *launch.Registered) { l.Context = launch.Context{Intent: "order"} }))
			}
			got := grantedFor(t, b, q)
			if got.Patient != "bob" {
				t.Fatalf("%+v", got)
			}
			config.Users = slices.Clone(config.Users)
			config.Users[0].FHIRUser, config.Users[0].Patients = c.after.FHIRUser, c.after.Patients
			s, err := authorize.New(*config)
			if err != nil {
				t.Fatal(err)
			}
			r := servertest.NewBrowser(t, s).Post("/oauth2/token", servertest.RefreshForm(got.Refresh, nil))
			if text := servertest.Body(t, r); strings.Contains(text, "invalid_grant") != c.ends {
				t.Errorf("%s", text)
			}
		})
	}
}

// Whoever opens a picker's page again after max_age signs in first, and sees no names until then.
func TestMaxAgeOfPickerLeftOpen(t *testing.T) {
	t.Parallel()
	for name, fhirUser := range map[string]string{"that would choose by itself": "RelatedPerson/mum", "that shows patients": "Practitioner/alice"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := servertest.NewLaunching(t, new(servertest.FHIRServer), fhirUser, nil)
				page := b.SignIn(servertest.Request(url.Values{"scope": {"launch/patient"}, "max_age": {"60"}}), "alice", "right").Header.Get("Location")
				time.Sleep(20 * time.Minute)
				if r := b.Get(page); !strings.HasPrefix(r.Header.Get("Location"), "/oauth2/login?") {
					t.Errorf("%d, to %q", r.StatusCode, r.Header.Get("Location"))
				}
			})
		})
	}
}

// A further factor that need not be met is asked for once, whatever comes after it.
func TestStepUpBeforePicker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := servertest.AtAccount(t, servertest.New(t, func(c *authorize.Config) {
			c.Users[0].FHIRUser, c.Records, c.Clients[0].Scopes = "Practitioner/alice", new(servertest.FHIRServer), servertest.LaunchScopes
		}))
		secret, _ := servertest.EnrolApp(b)
		time.Sleep(time.Minute)
		factor := servertest.Field(t, servertest.Body(t, b.Follow(b.Get("/oauth2/account?part=passkey"))), "factor")
		b.SendOTP(factor, servertest.OTP(secret, time.Now()))
		servertest.EnrolPasskey(b, servertest.NewAuthenticator())
		time.Sleep(time.Minute)
		r := b.Authorize(servertest.Request(url.Values{"scope": {"launch/patient"}, "acr_values": {"phr"}}))
		factor = servertest.Field(t, servertest.Body(t, b.Get(r.Header.Get("Location"))), "factor")
		_, sealed := b.OpenForm(b.SendOTP(factor, servertest.OTP(secret, time.Now())))
		r = b.Post("/oauth2/select_patient", url.Values{"request": {sealed}, "patient": {"ada"}})
		servertest.WantCode(t, servertest.Location(t, r), "asked again")
	})
}
