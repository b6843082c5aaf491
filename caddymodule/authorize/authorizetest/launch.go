package authorizetest

import (
	"context"
	"errors"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/launch"
)

// HospitalRecords maps references to the resources of a [FHIRServer].
var HospitalRecords = map[string]string{
	"Patient/ada": `{"resourceType":"Patient","id":"ada","name":[{"family":"Lovelace","given":["Ada"]}],"birthDate":"1815-12-10","identifier":[{"value":"MRN-1"}]}`,
	"Patient/bob": `{"resourceType":"Patient","id":"bob","name":[{"text":"Bob Brown"}]}`,

	"Encounter/v1": `{"resourceType":"Encounter","id":"v1","status":"finished","subject":{"reference":"Patient/ada"}}`,
	"Encounter/v2": `{"resourceType":"Encounter","id":"v2","status":"finished","subject":{"reference":"Patient/bob"}}`,

	"RelatedPerson/mum": `{"resourceType":"RelatedPerson","id":"mum","patient":{"reference":"Patient/bob"}}`,
	"Person/carer":      `{"resourceType":"Person","id":"carer","link":[{"target":{"reference":"Patient/ada"}},{"target":{"reference":"Patient/bob"}}]}`,
}

// ErrUnreachable is the error of a [FHIRServer] if Unreachable is set.
var ErrUnreachable = errors.New("connection refused")

// FHIRServer is a FHIR server with the patients ada and bob. Patient ada has an encounter.
type FHIRServer struct {
	Response    string        // response to every request; "" means the stored resources
	Unreachable bool          // makes every request fail
	Hidden      string        // reference of a resource that nobody may see
	LastReader  launch.Reader // reader of the latest request
}

// Get implements [launch.Records].
func (h *FHIRServer) Get(_ context.Context, by launch.Reader, path string, query url.Values) ([]byte, error) {
	h.LastReader = by
	if h.Unreachable {
		return nil, ErrUnreachable
	}
	if h.Response != "" {
		return []byte(h.Response), nil
	}
	if record := HospitalRecords[path]; record != "" {
		return []byte(record), nil
	}
	var entries []string
	for _, key := range []string{"Patient/ada", "Patient/bob", "Encounter/v1"} {
		ids, hasIDs := query["_id"]
		_, id, _ := strings.Cut(key, "/")
		if key == h.Hidden || hasIDs && !slices.Contains(strings.Split(ids[0], ","), id) {
			continue
		}
		if strings.HasPrefix(key, path+"/") && strings.Contains(strings.ToLower(HospitalRecords[key]), strings.ToLower(query.Get("name"))) {
			entries = append(entries, `{"resource":`+HospitalRecords[key]+`}`)
		}
	}
	if path != "Patient" && path != "Encounter" {
		return nil, launch.ErrNoRecord
	}
	return []byte(`{"resourceType":"Bundle","entry":[` + strings.Join(entries, ",") + `]}`), nil
}

// LaunchScopes are the scopes of the client app in [NewLaunchBrowser].
var LaunchScopes = []string{"launch", "launch/patient", "launch/encounter", "launch/imagingstudy", "patient/*.rs", "user/*.rs", "fhirUser", "offline_access"}

// NewLaunchBrowser returns a browser for a server that reads records. alice has the given fhirUser.
func NewLaunchBrowser(t *testing.T, records launch.Records, fhirUser string, change func(*authorize.Config)) *Browser {
	t.Helper()
	return NewBrowser(t, New(t, func(c *authorize.Config) {
		c.Users[0].FHIRUser, c.Records = fhirUser, records
		c.Clients[0].Scopes = LaunchScopes
		if change != nil {
			change(c)
		}
	}))
}

// WithEHR adds the client ehr, which may register launches.
func WithEHR(c *authorize.Config) {
	c.Clients[0].LaunchURI = "https://app.example.org/launch?x=1"
	c.Clients = append(c.Clients, client.Client{
		ID: "ehr", Secret: "ehr-secret-0123456789", GrantTypes: []string{"client_credentials"}, Scopes: []string{"system/*.rs"}, LaunchContext: true,
	})
}

// LaunchForm returns ehr's request to register a launch, altered by change as in [Request].
func LaunchForm(change url.Values) url.Values {
	form := url.Values{
		"client_id": {"ehr"}, "client_secret": {"ehr-secret-0123456789"}, "app": {"app"}, "user": {"alice"}, "patient": {"ada"}, "encounter": {"v1"},
		"intent": {"reconcile"}, "need_patient_banner": {"false"}, "smart_style_url": {"https://ehr.example/style.json"}, "tenant": {"north"},
		"fhirContext": {`[{"reference":"ImagingStudy/7"},{"canonical":"https://ehr.example/Questionnaire/q|1","type":"Questionnaire","role":"https://ehr.example/role"}]`},
	}
	maps.Copy(form, change)
	return form
}

// RegisterLaunch registers a launch of app for the patient ada, as the client ehr, and returns the launch handle.
func RegisterLaunch(t *testing.T, c *authorize.Config, change func(*launch.Registration)) string {
	t.Helper()
	l := &launch.Registration{Launcher: "ehr", ClientID: "app", Context: launch.Context{Patient: "ada", Encounter: "v1", Intent: "reconcile", Tenant: "north"}}
	if change != nil {
		change(l)
	}
	handle, err := launch.NewLaunches(c.Store).Register(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	return handle
}

// LaunchResponse is a token response with a launch context.
type LaunchResponse struct {
	launch.Context
	TokenResponse
}

// RedeemLaunch is like [Browser.Redeem], but also returns the launch context.
func RedeemLaunch(b *Browser, redirect *url.URL) LaunchResponse {
	b.T.Helper()
	WantCode(b.T, redirect)
	return Decode[LaunchResponse](b.T, b.Post("/oauth2/token", CodeForm(redirect.Query().Get("code"), nil)))
}
