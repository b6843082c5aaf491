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

// part returns the value of the part with the given name.
func (x *extension) part(name string) string {
	for _, p := range x.parts {
		if p.url == name {
			return p.value
		}
	}
	return ""
}
