package launch

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
)

// Context is what an app is launched with, as in token responses (SMART App Launch 2.2,
// "Launch context arrives with your access_token").
type Context struct {
	Patient           string      `json:"patient,omitempty"`             // the id of the Patient
	Encounter         string      `json:"encounter,omitempty"`           // the id of the Encounter
	FHIRContext       []Reference `json:"fhirContext,omitempty"`         // other resources
	NeedPatientBanner *bool       `json:"need_patient_banner,omitempty"` // whether the app must show who the patient is
	Intent            string      `json:"intent,omitempty"`              // what the app is opened for, as EHR and app agreed
	SMARTStyleURL     string      `json:"smart_style_url,omitempty"`     // where the EHR's style is
	Tenant            string      `json:"tenant,omitempty"`              // the organization that launches the app
}

// Bounds of a Context, which is stored with each grant and sent in each token.
const (
	maxText       = 256 // of intent and tenant, in bytes
	maxURL        = 1024
	maxReferences = 20 // of fhirContext
)

// id is a FHIR id (FHIR R4 §2.24.0.1).
var id = regexp.MustCompile(`^[A-Za-z0-9.-]{1,64}$`)

// IsID reports whether a text is a FHIR id.
func IsID(text string) bool { return id.MatchString(text) }

// Check returns an error if a context may not be sent to apps.
func (c *Context) Check() error {
	switch {
	case c.Patient != "" && !IsID(c.Patient):
		return errors.New("patient is not the id of a Patient")
	case c.Encounter != "" && !IsID(c.Encounter):
		return errors.New("encounter is not the id of an Encounter")
	case c.Encounter != "" && c.Patient == "":
		return errors.New("encounter needs the patient whose it is")
	case len(c.Intent) > maxText:
		return fmt.Errorf("intent is longer than %d bytes", maxText)
	case len(c.Tenant) > maxText:
		return fmt.Errorf("tenant is longer than %d bytes", maxText)
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
		return errors.New("smart_style_url must be an address, https://…")
	}
	return nil
}

// IsEmpty reports whether a context says nothing.
func (c *Context) IsEmpty() bool {
	return c == nil || c.Patient == "" && c.Encounter == "" && len(c.FHIRContext) == 0 && c.NeedPatientBanner == nil &&
		c.Intent == "" && c.SMARTStyleURL == "" && c.Tenant == ""
}
