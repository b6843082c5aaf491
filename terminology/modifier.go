package terminology

import "github.com/caddy-fhir/caddy-fhir/terminology/fhirjson"

// modifiers reads modifier extensions or implicitRules. None is supported, so a definition that has one must not be
// used (R4 §2.4).
func (d *definition) modifiers(r *fhirjson.Reader) error {
	if r.IsPrimitive() {
		rules, err := r.Text()
		d.modifier = "the implicit rules " + string(rules)
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
