package terminology

import "bytes"

// extension is an extension of a definition, in so far as its values are primitive.
type extension struct {
	url   string
	value string
	parts []extension
}

// maxExtensionDepth bounds how deep extensions may stand within each other.
const maxExtensionDepth = 8

// extensionList reads an array of extensions.
func (r *reader) extensionList(depth int) ([]extension, error) {
	var list []extension
	err := r.array(func() error {
		var x extension
		err := r.object(func(name []byte) (err error) {
			switch {
			case string(name) == "url":
				return r.string(&x.url)
			case string(name) == "extension" && depth < maxExtensionDepth:
				x.parts, err = r.extensionList(depth + 1)
				return err
			case bytes.HasPrefix(name, []byte("value")) && r.isPrimitive():
				s, err := r.primitive()
				x.value = string(s)
				return err
			default:
				return r.skip()
			}
		})
		list = append(list, x)
		return err
	})
	return list, err
}

// modifiers reads an array of modifier extensions, or the implicit rules. None is understood here, so that a definition which has one
// must not be used (R4 §2.4, modifier extensions).
func (d *definition) modifiers(r *reader) error {
	if r.isPrimitive() {
		rules, err := r.text()
		d.modifier = "the implicit rules " + string(rules)
		return err
	}
	list, err := r.extensionList(0)
	if len(list) > 0 {
		d.modifier = "the modifier extension " + list[0].url
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

// part returns the value of the part with the given name.
func (x *extension) part(name string) string {
	for _, p := range x.parts {
		if p.url == name {
			return p.value
		}
	}
	return ""
}
