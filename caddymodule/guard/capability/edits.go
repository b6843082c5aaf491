package capability

import (
	"bytes"
	"iter"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/rawjson"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// edit is what becomes of a JSON value: the value itself if it stays, nil if it is to be left out.
type edit func(value []byte) ([]byte, error)

// edits are edits of an object's members.
type edits []struct {
	member string
	edit   edit
}

// apply edits those of the members that there are. All else stays, byte for byte.
func (list edits) apply(object []byte) ([]byte, error) {
	for _, e := range list {
		value, ok := resource.Field(object, e.member)
		if !ok {
			continue
		}
		became, err := e.edit(value)
		switch {
		case err != nil:
		case became == nil:
			object, err = rawjson.Without(object, e.member)
		case !bytes.Equal(became, value):
			object, err = rawjson.With(object, e.member, became)
		}
		if err != nil {
			return nil, err
		}
	}
	return object, nil
}

// each edits the elements of an array. One without any is left out, since FHIR has none.
func each(change edit) edit {
	return func(value []byte) ([]byte, error) {
		var kept [][]byte
		changed := false
		for element := range elements(value) {
			became, err := change(element)
			if err != nil {
				return nil, err
			}
			if became != nil {
				kept = append(kept, became)
			}
			changed = changed || !bytes.Equal(became, element)
		}
		switch {
		case len(kept) == 0:
			return nil, nil
		case !changed:
			return value, nil
		}
		return array(kept), nil
	}
}

// elements are those of an array; none of anything else.
func elements(value []byte) iter.Seq[[]byte] {
	if len(value) == 0 || value[0] != '[' {
		return func(func([]byte) bool) {}
	}
	return resource.Elements(value)
}

// array writes an array.
func array(elements [][]byte) []byte {
	return append(append([]byte{'['}, bytes.Join(elements, []byte{','})...), ']')
}
