package policy

import (
	"fmt"
	"strconv"

	"cel.dev/cel-go/common/types"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/rawjson"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// elements are the elements of a resource that rules look at, read when the first rule does.
type elements struct {
	resource resource.Resource
	names    []string
	read     any
}

// value is the resource as expressions see it. One that cannot be read makes all fail that look at it.
func (e *elements) value() any {
	if e.read != nil {
		return e.read
	}
	found := make(map[string]any, len(e.names))
	e.read = found
	for _, name := range e.names {
		text, ok := e.resource.Member(name)
		if !ok {
			continue
		}
		value, err := read(rawjson.NewCursor(text))
		if err != nil {
			e.read = types.WrapErr(fmt.Errorf("element %s: %w", name, err))
			break
		}
		found[name] = value
	}
	return e.read
}

// read reads a JSON value. Numbers without a fraction are integers, as far as they fit.
func read(c *rawjson.Cursor) (any, error) {
	switch c.Kind() {
	case rawjson.Object:
		return readObject(c)
	case rawjson.Array:
		return readArray(c)
	case rawjson.String:
		return c.Text()
	case rawjson.Number:
		return readNumber(c)
	case rawjson.Bool:
		text, err := c.Raw()
		return len(text) == len("true"), err
	}
	return nil, c.Skip() // null, or no value
}

func readObject(c *rawjson.Cursor) (map[string]any, error) {
	members := map[string]any{}
	err := c.Object(func(name []byte) (err error) {
		key := string(name)
		members[key], err = read(c)
		return err
	})
	return members, err
}

func readArray(c *rawjson.Cursor) ([]any, error) {
	list := []any{}
	err := c.Array(func() error {
		element, err := read(c)
		list = append(list, element)
		return err
	})
	return list, err
}

func readNumber(c *rawjson.Cursor) (any, error) {
	text, err := c.Raw()
	if err != nil {
		return nil, err
	}
	if n, err := strconv.ParseInt(string(text), 10, 64); err == nil {
		return n, nil
	}
	return strconv.ParseFloat(string(text), 64)
}
