// Package strictjson reads JSON of which there must be one reading only: claims, headers
// of tokens, keys, and what else is signed or decides who somebody is. encoding/json
// takes the last of repeated names, in any case; another reader, which checked the same
// text, may have taken the first.
package strictjson

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/go-jose/go-jose/v4/json"
)

// Unmarshal reads an object into what to points to, a struct or a map. Names that are
// there twice are an error; so are two that differ in case alone, and one that differs so
// from the name of a field. What is no object is left to the decoder.
func Unmarshal(data []byte, to any) error {
	if err := json.Unmarshal(data, to); err != nil {
		return err
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(data, &members) != nil {
		return nil
	}
	known := fieldNames(to)
	for name := range members {
		folded := fold(name)
		if other, there := known[folded]; there && other != name {
			return fmt.Errorf("the names %.100q and %.100q differ in case alone", name, other)
		}
		known[folded] = name
	}
	return nil
}

// fieldNames are the names of a struct's fields in JSON, by themselves in one case.
func fieldNames(to any) map[string]string {
	names := map[string]string{}
	t := reflect.TypeOf(to).Elem()
	if t.Kind() != reflect.Struct {
		return names
	}
	for _, field := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "" && name != "-" {
			names[fold(name)] = name
		}
	}
	return names
}

// fold makes names equal that some reader takes for one: encoding/json knows of the long
// s (ſ) and the Kelvin sign (K) too, which upper case makes ASCII of, or lower case.
func fold(name string) string { return strings.ToLower(strings.ToUpper(name)) }
