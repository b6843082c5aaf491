package terminology

import "github.com/caddy-fhir/caddy-fhir/terminology/fhirjson"

// modifiers reads an array of modifier extensions, or the implicit rules. None is understood here, so a definition
// that has one must not be used (R4 §2.4, modifier extensions).
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

// usable reports an error for a definition that has implicit rules or a modifier extension.
func (d *definition) usable(kind string) error {
	if d.modifier == "" {
		return nil
	}
	return incomplete("not-supported", "%s %s has %s, which is not understood here", kind, d.canonical(), d.modifier)
}
