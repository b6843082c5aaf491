package guard

import (
	"fmt"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/subject"
)

// checkHeaderValues rejects a token with a claim that an HTTP header field would not carry unchanged. Sites send these
// claims to the FHIR server, which must not read another name than the one that was verified.
func (t *Token) checkHeaderValues() error {
	for _, claim := range []struct {
		name, value string
		check       func(string) error
		expected    string
	}{
		{"sub", t.Subject, subject.Check, "1 to 255 printable ASCII characters, no spaces at the ends"},
		{"client_id", t.ClientID, subject.Check, "1 to 255 printable ASCII characters, no spaces at the ends"},
		{"scope", t.Scope, subject.CheckHeaderValue, "scopes separated by one space"},
		{"patient", t.Patient, subject.CheckHeaderValue, "the id of a Patient"},
		{"fhirUser", t.FHIRUser, subject.CheckHeaderValue, "the address of a FHIR resource"},
		{"iss", t.Issuer, subject.CheckHeaderValue, "an address"},
	} {
		if claim.value == "" { // whether it is required is checked before
			continue
		}
		if err := claim.check(claim.value); err != nil {
			return newClaimError(claim.name, t.Issuer, claim.value, claim.expected, fmt.Errorf("%w: %s %w", errMalformed, claim.name, err))
		}
	}
	return nil
}
