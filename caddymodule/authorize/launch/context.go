package launch

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// Context is the launch context of an app, with the parameters of token responses (SMART App Launch 2.2, "Launch context
// arrives with your access_token").
type Context struct {
	Patient           string      `json:"patient,omitempty"`             // id of the Patient resource
	Encounter         string      `json:"encounter,omitempty"`           // id of the Encounter resource
	FHIRContext       []Reference `json:"fhirContext,omitempty"`         // other resources in context
	NeedPatientBanner *bool       `json:"need_patient_banner,omitempty"` // whether the app must display the patient's identity
	Intent            string      `json:"intent,omitempty"`              // purpose of the launch, agreed upon by EHR and app
	SMARTStyleURL     string      `json:"smart_style_url,omitempty"`     // URL of the EHR's style settings in JSON
	Tenant            string      `json:"tenant,omitempty"`              // organization that launches the app
}

// Limits of a [Context], which is stored with each grant and sent in each token response.
const (
	maxTextLength = 256 // maximum length of intent and tenant in bytes
	maxURL        = 1024
	maxReferences = 20 // maximum number of fhirContext entries
)

// idPattern matches a FHIR id (FHIR R4 §2.24.0.1).
var idPattern = regexp.MustCompile(`^[A-Za-z0-9.-]{1,64}$`)

// IsID reports whether a text is a FHIR id.
func IsID(text string) bool { return idPattern.MatchString(text) }

// Check returns an error if the context is invalid.
func (c *Context) Check() error {
	switch {
	case c.Patient != "" && !IsID(c.Patient):
		return errors.New("patient must be the id of a Patient resource")
	case c.Encounter != "" && !IsID(c.Encounter):
		return errors.New("encounter must be the id of an Encounter resource")
	case c.Encounter != "" && c.Patient == "":
		return errors.New("encounter requires the parameter patient")
	case len(c.Intent) > maxTextLength:
		return fmt.Errorf("intent is longer than %d bytes", maxTextLength)
	case len(c.Tenant) > maxTextLength:
		return fmt.Errorf("tenant is longer than %d bytes", maxTextLength)
	case len(c.FHIRContext) > maxReferences:
		return fmt.Errorf("fhirContext has more than %d entries", maxReferences)
	}
	for n, reference := range c.FHIRContext {
		if err := reference.check(); err != nil {
			return fmt.Errorf("fhirContext[%d]: %w", n, err)
		}
	}
	return checkStyleURL(c.SMARTStyleURL)
}

func checkStyleURL(text string) error {
	if text == "" {
		return nil
	}
	if u, err := url.Parse(text); err != nil || u.Scheme != "https" || u.Host == "" || len(text) > maxURL {
		return errors.New("smart_style_url must be an https URL")
	}
	return nil
}

// IsEmpty reports whether no member of the context is set.
func (c *Context) IsEmpty() bool {
	return c == nil || c.Patient == "" && c.Encounter == "" && len(c.FHIRContext) == 0 && c.NeedPatientBanner == nil &&
		c.Intent == "" && c.SMARTStyleURL == "" && c.Tenant == ""
}

// Reference is an entry of fhirContext (SMART App Launch 2.2, "fhirContext"). At least one of
// Reference, Canonical and Identifier is set.
type Reference struct {
	Reference  string      `json:"reference,omitempty"`  // relative reference, e.g. ImagingStudy/123
	Canonical  string      `json:"canonical,omitempty"`  // canonical URL, optionally with a version
	Identifier *Identifier `json:"identifier,omitempty"` // business identifier
	Type       string      `json:"type,omitempty"`       // resource type
	Role       string      `json:"role,omitempty"`       // absolute URI, or a role defined by SMART
}

// Identifier is the part of a FHIR Identifier that identifies a resource.
type Identifier struct {
	System string `json:"system,omitempty"` // URI of the namespace of Value
	Value  string `json:"value"`            // unique within System
}

// roles lists the roles defined by SMART App Launch 2.2. All other roles must be absolute URIs.
var roles = []string{"launch"}

func (r Reference) check() error {
	switch {
	case r.Reference == "" && r.Canonical == "" && r.Identifier == nil:
		return errors.New("reference, canonical or identifier is required")
	case r.Identifier != nil && r.Identifier.Value == "":
		return errors.New("identifier must have a value")
	}
	for _, check := range []func() error{r.checkReference, r.checkCanonical, r.checkRole, r.checkLength} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// checkReference returns an error for an invalid reference. Patient and Encounter, which have separate parameters, are rejected
// unless a role states another purpose.
func (r Reference) checkReference() error {
	if r.Reference == "" {
		return nil
	}
	resourceType, resource, _ := strings.Cut(r.Reference, "/")
	switch {
	case !isTypeName(resourceType) || !IsID(resource):
		return fmt.Errorf("reference %q must have the form Type/id, such as ImagingStudy/123", r.Reference)
	case (resourceType == "Patient" || resourceType == "Encounter") && (r.Role == "" || r.Role == "launch"):
		return fmt.Errorf("%s must be sent in the parameter %s, or with a role other than launch", resourceType, strings.ToLower(resourceType))
	case r.Type != "" && r.Type != resourceType:
		return fmt.Errorf("type %s does not match the reference", r.Type)
	}
	return nil
}

func (r Reference) checkCanonical() error {
	if r.Canonical != "" && !isAbsolute(r.Canonical) {
		return fmt.Errorf("canonical %q must be an absolute URL", r.Canonical)
	}
	return nil
}

func (r Reference) checkRole() error {
	if r.Role != "" && !slices.Contains(roles, r.Role) && !isAbsolute(r.Role) {
		return fmt.Errorf("role %q must be an absolute URI or one of %q", r.Role, roles)
	}
	return nil
}

func (r Reference) checkLength() error {
	texts := []string{r.Reference, r.Canonical, r.Type, r.Role}
	if r.Identifier != nil {
		texts = append(texts, r.Identifier.System, r.Identifier.Value)
	}
	if slices.ContainsFunc(texts, func(text string) bool { return len(text) > maxURL }) {
		return fmt.Errorf("reference, canonical, type, role or identifier is longer than %d bytes", maxURL)
	}
	if r.Type != "" && !isTypeName(r.Type) {
		return fmt.Errorf("type %q is not a resource type", r.Type)
	}
	return nil
}

func isAbsolute(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Scheme != ""
}

// isTypeName reports whether a text has the syntax of a resource type.
func isTypeName(text string) bool {
	if text == "" || len(text) > 64 || text[0] < 'A' || text[0] > 'Z' {
		return false
	}
	return !strings.ContainsFunc(text, func(r rune) bool { return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') })
}

// Lifetime is how long a registered launch can be used. The app must be opened and the person must sign in within this time.
const Lifetime = 10 * time.Minute

// Registration is a launch context registered by an EHR for one app and one person.
type Registration struct {
	Context
	Launcher string `json:"launcher"`            // client that registered the launch; "" for the launch page, on which the person chooses
	ClientID string `json:"client_id"`           // client_id of the app
	User     string `json:"user,omitempty"`      // sub of the person; "" for any person
	FHIRUser string `json:"fhir_user,omitempty"` // fhirUser of the person; "" for any person

	// SimulatedFault is the fault to simulate for testing the app: a name in [SimulatedFaults]; "" for none. It is always ""
	// for launches registered by clients.
	SimulatedFault string `json:"simulated,omitempty"`
}

// ShortToken is a simulated fault that occurs after the authorization response: access tokens expire within seconds.
const ShortToken = "short_token"

// SimulatedFaults maps the names of faults to the errors of the authorization response. The error is nil for [ShortToken].
var SimulatedFaults = map[string]*oauth2.Error{
	"access_denied": {Code: "access_denied", Description: "simulated error: the person denied the request", DescribeToClient: true},
	"server_error":  {Code: "server_error", Description: "simulated error: the authorization server failed", DescribeToClient: true},
	"old_launch":    ErrUnknownLaunch,
	ShortToken:      nil,
}

// FaultError returns the simulated error of the authorization response, or nil.
func (l *Registration) FaultError() error {
	if e := SimulatedFaults[l.SimulatedFault]; e != nil {
		return e
	}
	return nil
}

// IsFor reports whether the person with a sub and a fhirUser may use the launch.
func (l *Registration) IsFor(sub, fhirUser string) bool {
	return (l.User == "" || l.User == sub) && (l.FHIRUser == "" || l.FHIRUser == fhirUser)
}

// ErrUnknownLaunch means that a launch is unknown, used, expired or for another app, deliberately indistinguishable.
var ErrUnknownLaunch = &oauth2.Error{
	Code:             "invalid_request",
	Description:      "launch is unknown, already used, older than ten minutes, or for another app. Launch the app from the EHR again.",
	DescribeToClient: true,
}

// ErrOtherPerson means that a launch is for another person than the one who is signed in.
var ErrOtherPerson = &oauth2.Error{
	Code:             "invalid_request",
	Description:      "launch is for a person other than the one signed in. Launch the app from the EHR again.",
	DescribeToClient: true,
}

// maxLaunches is the maximum number of pending launches per client and person. Beyond it, the oldest are deleted.
const maxLaunches = 100

// Launches manages the launches registered by EHRs.
type Launches struct {
	Store        store.Store // store for launches
	perUserLimit *store.PerUserLimit
}

// NewLaunches returns launches that are stored in in.
func NewLaunches(in store.Store) *Launches {
	return &Launches{Store: in, perUserLimit: store.NewPerUserLimit(maxLaunches, Lifetime)}
}

func storeKey(handle string) string { return store.Key("launch", handle) }

// Register stores a launch and returns its handle, the value of the launch parameter.
func (ls *Launches) Register(ctx context.Context, l *Registration) (string, error) {
	value, err := store.ToJSON(l)
	if err != nil {
		return "", err
	}
	handle := oauth2.RandomToken()
	owner := strings.Join([]string{l.Launcher, l.User, l.FHIRUser}, "\x00")
	calls := append(ls.perUserLimit.Record(owner, storeKey(handle)), &store.Call{Op: store.Add, Key: storeKey(handle), Value: value, TTL: Lifetime})
	return handle, ls.Store.Do(ctx, calls...)
}

// Find returns the launch with a handle if it is for the client. Otherwise the error is [ErrUnknownLaunch].
func (ls *Launches) Find(ctx context.Context, handle, clientID string) (*Registration, error) {
	l, err := store.GetJSON[Registration](ctx, ls.Store, storeKey(handle))
	switch {
	case err != nil:
		return nil, err
	case l == nil || l.ClientID != clientID:
		return nil, ErrUnknownLaunch
	}
	return l, nil
}

// ConsumeCall returns the store call that marks a launch as used. Only one of several concurrent calls succeeds. The others
// fail with [store.ErrNotFound], which callers report as [ErrUnknownLaunch].
func (ls *Launches) ConsumeCall(handle string) *store.Call {
	return &store.Call{Op: store.Take, Key: storeKey(handle)}
}
