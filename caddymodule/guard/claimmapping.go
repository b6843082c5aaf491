package guard

import (
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
	// The issuer's names of the claims `patient`, `fhirUser` and `scope`, or paths such as `fhir.patient_id`. A mapped claim
	// replaces the claim of the default name. Only `scope` may have several names: the first of them in a token is used, such
	// as `scp` for people and `roles` for services at Entra ID. Default: `patient`, `fhirUser`, and `scope` or `scp`.
	Claims map[string][]string `json:"claims,omitempty"`

	// The granted scopes by the issuer's text, such as `patient.all.read`. If set, all other scopes are ignored. Default: the
	// issuer's scopes are granted unchanged.
	Scopes map[string][]string `json:"scopes,omitempty"`
}

// Check returns an error if a claim or scope is invalid.
func (m *ClaimMapping) Check() error {
	for name, theirs := range m.Claims {
		isSingle := name == "patient" || name == "fhirUser"
		if !isSingle && name != "scope" || isSingle && len(theirs) > 1 || len(theirs) == 0 || slices.Contains(theirs, "") {
			return fmt.Errorf("claim %s %q: use patient or fhirUser with one name, or scope with one or more", name, theirs)
		}
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

// apply sets the patient, the person's resource and the granted scopes of the claims that were read from an object.
func (m *ClaimMapping) apply(c *trustedClaims, object []byte) (err error) {
	if len(m.Claims) > 0 {
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
	if c.Patient, err = findSingle(claims, m.Claims["patient"], c.Patient); err != nil {
		return err
	}
	if c.FHIRUser, err = findSingle(claims, m.Claims["fhirUser"], c.FHIRUser); err != nil || m.Claims["scope"] == nil {
		return err
	}
	c.granted, err = findScopes(claims, m.Claims["scope"])
	return err
}

// findSingle returns the text of the named claim, "" if the claim is missing, or value if there is no name. A list is an error,
// even with one element: the issuer may add another at any time, and the patient or person would be ambiguous.
func findSingle(claims map[string]any, names []string, value string) (string, error) {
	if len(names) == 0 {
		return value, nil
	}
	found, err := findUnique(claims, names[0])
	text, isText := found.(string)
	if found != nil && !isText {
		return "", fmt.Errorf("claim %s must be a single text", names[0])
	}
	return text, err
}

// findUnique returns the named claim, or nil if it is missing. It is an error if several claims match the name, such
// as a claim fhir.patient_id and a claim fhir with a member patient_id.
func findUnique(claims map[string]any, name string) (any, error) {
	switch found := tokenclaim.FindAll(claims, name); len(found) {
	case 0:
		return nil, nil
	case 1:
		return found[0], nil
	}
	return nil, fmt.Errorf("claim %s is ambiguous, because the token contains several claims at this path", name)
}

// findScopes returns the scopes in the first of the named claims that is present.
func findScopes(claims map[string]any, names []string) (found scopes, err error) {
	for _, name := range names {
		claim, err := findUnique(claims, name)
		if err != nil {
			return "", err
		}
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
