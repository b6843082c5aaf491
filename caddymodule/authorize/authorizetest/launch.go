package authorizetest

import (
	"context"
	"errors"
	"maps"
	"net/url"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/launch"
)

// HospitalRecords contains the resources of a [FHIRServer] by reference.
var HospitalRecords = map[string]string{
	"Patient/ada": `{"resourceType":"Patient","id":"ada","name":[{"family":"Lovelace","given":["Ada"]}],"birthDate":"1815-12-10"}`,
	"Patient/bob": `{"resourceType":"Patient","id":"bob","name":[{"text":"Bob Brown"}]}`,

	"Encounter/v1": `{"resourceType":"Encounter","id":"v1","status":"finished","subject":{"reference":"Patient/ada"}}`,
	"Encounter/v2": `{"resourceType":"Encounter","id":"v2","status":"finished","subject":{"reference":"Patient/bob"}}`,

	"RelatedPerson/mum": `{"resourceType":"RelatedPerson","id":"mum","patient":{"reference":"Patient/bob"}}`,
	"Person/carer":      `{"resourceType":"Person","id":"carer","link":[{"target":{"reference":"Patient/ada"}},{"target":{"reference":"Patient/bob"}}]}`,
}

// ErrUnreachable is the error of a [FHIRServer] with Unreachable set.
var ErrUnreachable = errors.New("connection refused")

// FHIRServer has the patients ada and bob; ada has an encounter.
type FHIRServer struct {
	Response    string        // response to every request, unless empty
	Unreachable bool          // makes every request fail
	LastReader  launch.Reader // latest reader
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
		if strings.HasPrefix(key, path+"/") && strings.Contains(strings.ToLower(HospitalRecords[key]), strings.ToLower(query.Get("name"))) {
			entries = append(entries, `{"resource":`+HospitalRecords[key]+`}`)
		}
	}
	if path != "Patient" && path != "Encounter" {
		return nil, launch.ErrNoRecord
	}
	return []byte(`{"resourceType":"Bundle","entry":[` + strings.Join(entries, ",") + `]}`), nil
}

// LaunchScopes are the permitted scopes of app in [NewLaunchBrowser].
var LaunchScopes = []string{"launch", "launch/patient", "launch/encounter", "launch/imagingstudy", "patient/*.rs", "user/*.rs", "fhirUser", "offline_access"}

// NewLaunchBrowser returns a browser for a server with records, where alice has the given fhirUser.
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

// WithEHR adds a client, ehr, that registers launches.
func WithEHR(c *authorize.Config) {
	c.Clients[0].LaunchURI = "https://app.example.org/launch?x=1"
	c.Clients = append(c.Clients, client.Client{
		ID: "ehr", Secret: "ehr-secret-0123456789", GrantTypes: []string{"client_credentials"}, Scopes: []string{"system/*.rs"}, LaunchContext: true,
	})
}

// LaunchForm returns a launch registration of ehr; change alters it as in [Request].
func LaunchForm(change url.Values) url.Values {
	form := url.Values{
		"client_id": {"ehr"}, "client_secret": {"ehr-secret-0123456789"}, "app": {"app"}, "user": {"alice"}, "patient": {"ada"}, "encounter": {"v1"},
		"intent": {"reconcile"}, "need_patient_banner": {"false"}, "smart_style_url": {"https://ehr.example/style.json"}, "tenant": {"north"},
		"fhirContext": {`[{"reference":"ImagingStudy/7"},{"canonical":"https://ehr.example/Questionnaire/q|1","type":"Questionnaire","role":"https://ehr.example/role"}]`},
	}
	maps.Copy(form, change)
	return form
}

// RegisterLaunch registers a launch of app with ada by ehr, and returns its handle.
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

// LaunchResponse is the token response to a launched app.
type LaunchResponse struct {
	launch.Context
	TokenResponse
}

// RedeemLaunch redeems the code in a redirect, like [Browser.Redeem], and returns the launch context too.
func RedeemLaunch(b *Browser, redirect *url.URL) LaunchResponse {
	b.T.Helper()
	WantCode(b.T, redirect)
	return Decode[LaunchResponse](b.T, b.Post("/oauth2/token", CodeForm(redirect.Query().Get("code"), nil)))
}
