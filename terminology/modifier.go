package terminology

import "github.com/caddy-fhir/caddy-fhir/terminology/fhirjson"

// omittedCodes are the implicit rules of a definition that HL7's convertor made from one of a later release of FHIR: codes
// that R4 lacks are in extensions. Those of filters are read, and no others count here.
const omittedCodes = "https://hl7.org/fhir/implicit-rules/omitted-mandatory-interversion-code"

// modifiers reads modifier extensions or implicitRules. Only omittedCodes are supported, so a definition that has others
// must not be used (R4 §2.4).
func (d *definition) modifiers(r *fhirjson.Reader) error {
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

// usable fails for a definition with implicit rules or a modifier extension.
func (d *definition) usable(kind string) error {
	if d.modifier == "" {
		return nil
	}
	return incomplete("not-supported", "%s %s has %s, which is not understood here", kind, d.canonical(), d.modifier)
}
