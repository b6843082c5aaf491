package definitions

import (
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

// omittedCodes are the implicit rules of a definition that HL7's convertor made from one of a later release of FHIR: codes
// that R4 lacks are in extensions. Those of filters are read, and no others count here.
const omittedCodes = "https://hl7.org/fhir/implicit-rules/omitted-mandatory-interversion-code"

// modifiers reads modifier extensions or implicitRules. Only omittedCodes are supported, so a definition that has others
// must not be used (R4 §2.4).
func (d *Definition) modifiers(r *fhirjson.Reader) error {
	if r.IsPrimitive() {
		rules, err := r.Text()
		if string(rules) != omittedCodes {
			d.modifier = "the implicit rules " + string(rules)
		}
		return err
	}
	list, err := r.Extensions(0)
	if len(list) > 0 {
		d.modifier = "the modifier extension " + list[0].URL
	}
	return err
}

// Usable fails for a definition with implicit rules or a modifier extension.
func (d *Definition) Usable(kind string) error {
	if d.modifier == "" {
		return nil
	}
	return outcome.Incomplete("not-supported", "%s %s has %s, which is not understood here", kind, d.Canonical(), d.modifier)
}
