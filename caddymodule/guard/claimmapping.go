package guard

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-jose/go-jose/v4/json"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/strictjson"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/tokenclaim"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

// ClaimMapping maps the claims and scopes of another issuer's tokens to those of SMART App Launch. A token is rejected if a
// mapped claim does not have exactly one meaning. The zero value maps nothing.
type ClaimMapping struct {
	// The claim that contains the id of the patient, or a path such as `fhir.patient_id`. The claim `patient` is then ignored.
	// Default: `patient`.
	PatientClaim string `json:"patient_claim,omitempty"`

	// The claim that contains the person's FHIR resource, or a path. The claim `fhirUser` is then ignored. Default: `fhirUser`.
	FHIRUserClaim string `json:"fhir_user_claim,omitempty"`

	// The claims that contain the scopes, or paths. Only the first claim that a token contains is read, such as `scp` for people
	// and `roles` for services at Entra ID. Default: `scope`, `scp`.
	ScopeClaims []string `json:"scope_claims,omitempty"`

	// The granted scopes by the issuer's text, such as `patient.all.read`. If set, all other scopes are ignored. Default: the
	// issuer's scopes are granted unchanged.
	Scopes map[string][]string `json:"scopes,omitempty"`
}

// Check returns an error if a claim name or scope is invalid.
func (m *ClaimMapping) Check() error {
	for _, name := range slices.Concat([]string{m.PatientClaim, m.FHIRUserClaim}, m.ScopeClaims) {
		if len(name) > 256 {
			return fmt.Errorf("claim %.20s…: the name must have at most 256 characters", name)
		}
	}
	if slices.Contains(m.ScopeClaims, "") {
		return errors.New("claim scope: the name must not be empty")
	}
	for theirs, granted := range m.Scopes {
		if !smart.IsScopeToken(theirs) {
			return fmt.Errorf("%q is not a valid scope (RFC 6749 §3.3)", theirs)
		}
		for _, scope := range granted {
			if err := smart.CheckScope(scope); err != nil {
				return err
			}
		}
	}
	return nil
}

// String returns a text that is unique for the mapping.
func (m *ClaimMapping) String() string { return fmt.Sprintf("%q", *m) } // fmt sorts the keys of maps

// apply sets the patient, the person's resource and the granted scopes of the claims that were read from an object.
func (m *ClaimMapping) apply(c *trustedClaims, object []byte) (err error) {
	if m.PatientClaim != "" || m.FHIRUserClaim != "" || len(m.ScopeClaims) > 0 {
		err = m.readClaims(c, object)
	}
	c.granted = m.mapScopes(c.granted)
	return err
}

func (m *ClaimMapping) readClaims(c *trustedClaims, object []byte) (err error) {
	var claims map[string]any
	if err = strictjson.Unmarshal(object, &claims); err != nil {
		return err
	}
	if c.Patient, err = findSingle(claims, m.PatientClaim, c.Patient); err != nil {
		return err
	}
	if c.FHIRUser, err = findSingle(claims, m.FHIRUserClaim, c.FHIRUser); err != nil || len(m.ScopeClaims) == 0 {
		return err
	}
	c.granted, err = findScopes(claims, m.ScopeClaims)
	return err
}

// findSingle returns the text of the named claim, "" if the claim is missing, or value if there is no name. A list is an error,
// even with one element: the issuer may add another at any time, and none of them would then be the patient or person.
func findSingle(claims map[string]any, name, value string) (string, error) {
	if name == "" {
		return value, nil
	}
	found := tokenclaim.Find(claims, name)
	text, isText := found.(string)
	if found != nil && !isText {
		return "", fmt.Errorf("claim %s must be a single text", name)
	}
	return text, nil
}

// findScopes returns the scopes in the first of the named claims that is present.
func findScopes(claims map[string]any, names []string) (found scopes, err error) {
	for _, name := range names {
		claim := tokenclaim.Find(claims, name)
		if claim == nil {
			continue
		}
		text, err := json.Marshal(claim)
		if err == nil {
			err = found.UnmarshalJSON(text)
		}
		if err != nil {
			return "", fmt.Errorf("claim %s: reading scopes: %w", name, err)
		}
		break
	}
	return found, nil
}

// mapScopes returns the scopes that the issuer's scopes grant.
func (m *ClaimMapping) mapScopes(theirs scopes) scopes {
	if len(m.Scopes) == 0 {
		return theirs
	}
	var granted []string
	for theirs := range strings.FieldsSeq(string(theirs)) {
		for _, scope := range m.Scopes[theirs] {
			if !slices.Contains(granted, scope) {
				granted = append(granted, scope)
			}
		}
	}
	return scopes(strings.Join(granted, " "))
}
