package launch

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// Reference is an entry of fhirContext (SMART App Launch 2.2, "fhirContext"). It has at least
// one of Reference, Canonical and Identifier.
type Reference struct {
	Reference  string      `json:"reference,omitempty"`  // relative, such as ImagingStudy/123
	Canonical  string      `json:"canonical,omitempty"`  // an address, perhaps with a version
	Identifier *Identifier `json:"identifier,omitempty"` // by which others know it
	Type       string      `json:"type,omitempty"`       // of the resource
	Role       string      `json:"role,omitempty"`       // an absolute URI, or one that SMART defines
}

// Identifier is the part of FHIR's Identifier that finds a resource.
type Identifier struct {
	System string `json:"system,omitempty"` // a URI
	Value  string `json:"value"`            // unique within System
}

// roles are those that SMART App Launch 2.2 defines, which alone may be relative.
var roles = []string{"launch"}

func (r Reference) check() error {
	switch {
	case r.Reference == "" && r.Canonical == "" && r.Identifier == nil:
		return errors.New("needs a reference, a canonical or an identifier")
	case r.Identifier != nil && r.Identifier.Value == "":
		return errors.New("identifier needs a value")
	}
	for _, check := range []func() error{r.checkReference, r.checkCanonical, r.checkRole, r.checkLength} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// checkReference also refuses the types that have parameters of their own, unless a role says
// what else they are there for.
func (r Reference) checkReference() error {
	if r.Reference == "" {
		return nil
	}
	resourceType, resource, _ := strings.Cut(r.Reference, "/")
	switch {
	case !isType(resourceType) || !IsID(resource):
		return fmt.Errorf("reference %q must be a type and an id, such as ImagingStudy/123", r.Reference)
	case (resourceType == "Patient" || resourceType == "Encounter") && (r.Role == "" || r.Role == "launch"):
		return fmt.Errorf("%s belongs into the parameter %s, or needs a role", resourceType, strings.ToLower(resourceType))
	case r.Type != "" && r.Type != resourceType:
		return fmt.Errorf("type %s is not that of the reference", r.Type)
	}
	return nil
}

func (r Reference) checkCanonical() error {
	if r.Canonical != "" && !isAbsolute(r.Canonical) {
		return fmt.Errorf("canonical %q must be absolute", r.Canonical)
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
		return fmt.Errorf("a text is longer than %d bytes", maxURL)
	}
	if r.Type != "" && !isType(r.Type) {
		return fmt.Errorf("type %q is no resource type", r.Type)
	}
	return nil
}

func isAbsolute(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Scheme != ""
}

// isType reports whether a text has the form of a resource type.
func isType(text string) bool {
	if text == "" || len(text) > 64 || text[0] < 'A' || text[0] > 'Z' {
		return false
	}
	return !strings.ContainsFunc(text, func(r rune) bool { return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') })
}
