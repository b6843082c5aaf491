package terminology

import (
	"bytes"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/terminology/fhirjson"
)

// conceptReader reads what code systems and value sets say of a concept alike: designations and
// extensions. It puts text into an arena, and languages and uses into tables.
type conceptReader struct {
	languages    []string
	uses         []designationUse
	designations []designationRow
	extensions   []extensionRow
	scratch      []byte
}

// reset makes the reader ready for the next resource. The tables are handed on to what was read, and so
// begin anew.
func (c *conceptReader) reset() {
	c.languages, c.uses = make([]string, 1), make([]designationUse, 1)
	c.designations, c.extensions = c.designations[:0], c.extensions[:0]
}

// designation reads one of concept.designation. One without a value says nothing.
func (c *conceptReader) designation(r *fhirjson.Reader, t *texts, owner uint32) error {
	row := designationRow{owner: owner}
	err := r.Object(func(name []byte) error {
		switch string(name) {
		case "language":
			s, err := r.Text()
			row.language = c.language(s)
			return err
		case "use":
			return c.use(r, &row.use)
		case "value":
			s, err := r.Text()
			row.value = t.append(s)
			return err
		case "extension":
			return c.designationExtensions(r, t, &row.extension)
		default:
			return r.Skip()
		}
	})
	if row.value != 0 {
		c.designations = append(c.designations, row)
	}
	return err
}

// language returns the index of a language. There are few, the last one being the likeliest.
func (c *conceptReader) language(tag []byte) uint16 {
	for i, v := range slices.Backward(c.languages) {
		if v == string(tag) {
			return uint16(i)
		}
	}
	if len(c.languages) > 1<<15 {
		return 0 // no such resource exists; without a language it is at least still shown
	}
	c.languages = append(c.languages, string(tag))
	return uint16(len(c.languages) - 1)
}

// use reads a designation's use.
func (c *conceptReader) use(r *fhirjson.Reader, index *uint16) error {
	var use designationUse
	err := r.Object(func(name []byte) error {
		switch string(name) {
		case "system":
			return r.ReadString(&use.system)
		case "code":
			return r.ReadString(&use.code)
		case "display":
			return r.ReadString(&use.display)
		default:
			return r.Skip()
		}
	})
	for i, v := range slices.Backward(c.uses) {
		if v == use {
			*index = uint16(i)
			return err
		}
	}
	if len(c.uses) <= 1<<15 {
		c.uses = append(c.uses, use)
		*index = uint16(len(c.uses) - 1)
	}
	return err
}

// designationExtensions reads the extensions of a designation. Those that are known are kept, as JSON.
func (c *conceptReader) designationExtensions(r *fhirjson.Reader, t *texts, ref *textRef) error {
	c.scratch = append(c.scratch[:0], '[')
	err := c.each(r, func(kind extensionKind, extension, _ []byte) error {
		if len(c.scratch) > 1 {
			c.scratch = append(c.scratch, ',')
		}
		c.scratch = append(c.scratch, extension...)
		return nil
	})
	if err == nil && len(c.scratch) > 1 {
		*ref = t.append(append(c.scratch, ']'))
	}
	return err
}

// extension reads the extensions of a concept.
func (c *conceptReader) extension(r *fhirjson.Reader, t *texts, owner uint32) error {
	return c.each(r, func(kind extensionKind, _, value []byte) error {
		if value != nil {
			c.extensions = append(c.extensions, extensionRow{owner: owner, kind: kind, value: t.append(value)})
		}
		return nil
	})
}

// each calls known with each extension of an array that is known: whole, and its value[x] as a member.
func (c *conceptReader) each(r *fhirjson.Reader, known func(kind extensionKind, extension, value []byte) error) error {
	return r.Array(func() error {
		raw, err := r.Value('{')
		if err != nil {
			return err
		}
		whole := raw.Clone()
		if err := whole.Compact(); err != nil {
			return err
		}
		kind, value, err := parseExtension(whole)
		if err != nil || kind == 0 {
			return err
		}
		return known(kind, whole, value)
	})
}

// parseExtension returns what kind of extension it is, or 0, and its value[x] as a JSON member; of
// codesystem-alternate, which has none, the extensions in it.
func parseExtension(extension jsontext.Value) (kind extensionKind, value []byte, err error) {
	var parts []byte
	inner := fhirjson.ReaderOf(extension)
	err = inner.Object(func(name []byte) error {
		if string(name) == "url" {
			var url string
			err := inner.ReadString(&url)
			if name, ok := strings.CutPrefix(url, extensionBase); ok {
				kind = extensionURLs[name]
			}
			return err
		}
		isPart := string(name) == "extension"
		if !isPart && !bytes.HasPrefix(name, []byte("value")) {
			return inner.Skip()
		}
		member := append(fhirjson.AppendString([]byte(nil), name), ':')
		raw, err := inner.AnyValue()
		if member = append(member, raw...); isPart {
			parts = member
		} else {
			value = member
		}
		return err
	})
	if kind == extensionAlternate {
		value = parts
	}
	return kind, value, err
}
