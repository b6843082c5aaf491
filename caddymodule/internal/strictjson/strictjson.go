// Package strictjson decodes JSON that must not be ambiguous: claims, token headers, keys, and all other data that are signed
// or identify a person. If a name is repeated, encoding/json uses the last value and ignores case; another program that checked
// the same text may have used the first.
//
// The package uses go-jose's decoder, which decodes into structs, is case-sensitive and rejects repeated names. Unlike rawjson
// and jsontext, it is already linked into every build that verifies signatures; jsontext would be linked only for this package.
package strictjson

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/go-jose/go-jose/v4/json"
)

// Unmarshal decodes an object into a struct or map. Names that are repeated, or differ only in case from another name or from
// that of a field, are errors. Other values than objects are passed to the decoder unchecked.
func Unmarshal(data []byte, to any) error {
	if err := json.Unmarshal(data, to); err != nil {
		return err
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(data, &members) != nil {
		return nil
	}
	fields := fieldNames(to)
	for name := range members {
		folded := fold(name)
		if existing, exists := fields[folded]; exists && existing != name {
			return fmt.Errorf("member names %.100q and %.100q differ only in case", name, existing)
		}
		fields[folded] = name
	}
	return nil
}

// fieldNames returns the JSON names of a struct's fields, by their folded names.
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

// fold returns the same text for names that some readers may confuse. encoding/json also folds the long s (ſ) and the Kelvin
// sign (K) to ASCII.
func fold(name string) string { return strings.ToLower(strings.ToUpper(name)) }
