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
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/launch"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/servertest"
)

// Only where there is something to search does a script run, and ask this server alone.
func TestSearchWhileTyping(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fhirUser   string
		records    launch.Records
		searchable bool
	}{
		"a clinician":                 {"Practitioner/alice", new(servertest.FHIRServer), true},
		"who chooses among their own": {"Person/carer", new(servertest.FHIRServer), false},
		"while the records are down":  {"Practitioner/alice", &servertest.FHIRServer{Down: true}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := servertest.NewLaunching(t, c.records, c.fhirUser, nil)
			r := b.SignIn(servertest.Request(url.Values{"scope": {"launch/patient patient/*.rs"}}), "alice", "right")
			page := b.Get(servertest.Location(t, r).String())
			policy := page.Header.Get("Content-Security-Policy")
			_, script, scripted := strings.Cut(servertest.Body(t, page), "<script>")
			script, _, _ = strings.Cut(script, "</script>")
			hash := sha256.Sum256([]byte(script))
			allowed := strings.Contains(policy, "; connect-src 'self'; ") && strings.Contains(policy, "script-src 'sha256-"+base64.StdEncoding.EncodeToString(hash[:])+"'")
			if scripted != c.searchable || allowed != c.searchable || strings.Contains(policy, "script-src") != c.searchable {
				t.Errorf("script %q, policy %s", script, policy)
			}
		})
	}
}

// slowHospital takes ten seconds for each answer.
type slowHospital struct{ servertest.FHIRServer }

func (h *slowHospital) Get(ctx context.Context, by launch.Reader, path string, query url.Values) ([]byte, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(10 * time.Second):
		return h.FHIRServer.Get(ctx, by, path, query)
	}
}

// A page ends in time, however many patients a slow FHIR server is asked for.
func TestPickWhileSlow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := servertest.NewLaunching(t, new(slowHospital), "Person/carer", nil)
		r := b.SignIn(servertest.Request(url.Values{"scope": {"launch/patient"}}), "alice", "right")
		start := time.Now()
		page := b.Get(r.Header.Get("Location"))
		if took := time.Since(start); page.StatusCode != http.StatusServiceUnavailable || took > 30*time.Second {
			t.Errorf("status %d after %s", page.StatusCode, took)
		}
	})
}

// malformedHospital has a patient whose record is no FHIR, before others.
type malformedHospital struct{ servertest.FHIRServer }

func (h *malformedHospital) Get(ctx context.Context, by launch.Reader, path string, query url.Values) ([]byte, error) {
	body, err := h.FHIRServer.Get(ctx, by, path, query)
	const wrong = `"entry":[null,{"resource":null},{"resource":{"resourceType":"Patient","id":"eve","birthDate":1990,"name":{}}},`
	return []byte(strings.Replace(string(body), `"entry":[`, wrong, 1)), err
}

// One record that cannot be read keeps nobody from the others.
func TestPickBesideMalformedRecord(t *testing.T) {
	t.Parallel()
	b := servertest.NewLaunching(t, new(malformedHospital), "Practitioner/alice", nil)
	page, _ := b.OpenForm(b.SignIn(servertest.Request(url.Values{"scope": {"launch/patient"}}), "alice", "right"))
	if !strings.Contains(page, "Ada Lovelace") || strings.Contains(page, `value="eve"`) {
		t.Errorf("%s", page)
	}
}

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
			servertest.NoError(t, err)
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
