package terminology

import (
	"strconv"

	"github.com/caddy-fhir/caddy-fhir/terminology/fhirjson"
)

// parametersWriter writes a Parameters resource.
type parametersWriter struct {
	dst  []byte
	list fhirjson.Array
}

// newParametersWriter begins a resource at the end of dst.
func newParametersWriter(dst []byte) *parametersWriter {
	return &parametersWriter{dst: append(dst, `{"resourceType":"Parameters"`...), list: fhirjson.Array{Name: "parameter"}}
}

func (w *parametersWriter) end() []byte { return append(w.list.End(w.dst), '}') }

// raw writes a parameter whose value or resource is JSON.
func (w *parametersWriter) raw(name, kind string, value []byte) {
	w.dst = appendPart(w.list.Next(w.dst), name, kind, value)
}

// text writes a parameter of a string type.
func (w *parametersWriter) text(name, kind, value string) {
	w.raw(name, kind, fhirjson.AppendString(nil, value))
}

// optional writes a parameter of a string type, unless it is empty.
func (w *parametersWriter) optional(name, kind, value string) {
	if value != "" {
		w.text(name, kind, value)
	}
}

func (w *parametersWriter) boolean(name string, value bool) {
	w.raw(name, "valueBoolean", strconv.AppendBool(nil, value))
}

// parts writes a parameter with parts.
func (w *parametersWriter) parts(name string, parts ...outPart) {
	w.dst = append(append(w.list.Next(w.dst), `{"name":`...), fhirjson.AppendString(nil, name)...)
	list := fhirjson.Array{Name: "part"}
	for _, p := range parts {
		if p.value != nil {
			w.dst = appendPart(list.Next(w.dst), p.name, p.kind, p.value)
		}
	}
	w.dst = append(list.End(w.dst), '}')
}

// outPart is a part with its value as JSON; a nil value is left out.
type outPart struct {
	name, kind string
	value      []byte
}

// textPart is a part of a string type, left out if it is empty.
func textPart(name, kind, value string) outPart {
	if value == "" {
		return outPart{}
	}
	return outPart{name: name, kind: kind, value: fhirjson.AppendString(nil, value)}
}

func appendPart(dst []byte, name, kind string, value []byte) []byte {
	dst = fhirjson.AppendString(append(dst, `{"name":`...), name)
	dst = append(append(append(dst, ',', '"'), kind...), '"', ':')
	return append(append(dst, value...), '}')
}
