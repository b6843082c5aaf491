package message

import (
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/rawjson"
)

// EachString calls visit with each string of a JSON text and the name of the member that it is, or is in an array of.
func EachString(text []byte, visit func(name, said string) error) error {
	return visitStrings(rawjson.NewCursor(text).AllowDuplicates(), "", visit)
}

func visitStrings(c *rawjson.Cursor, name string, visit func(name, said string) error) error {
	switch c.Kind() {
	case rawjson.Object:
		return c.Object(func(member []byte) error { return visitStrings(c, string(member), visit) })
	case rawjson.Array:
		return c.Array(func() error { return visitStrings(c, name, visit) })
	case rawjson.String:
		said, err := c.Text()
		if err != nil {
			return err
		}
		return visit(name, said)
	}
	return c.Skip()
}

// References are the literal references in a resource, at any depth.
func References(text []byte) ([]string, error) {
	var all []string
	err := EachString(text, func(name, said string) error {
		if name == "reference" {
			all = append(all, said)
		}
		return nil
	})
	return all, err
}
