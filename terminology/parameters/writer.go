package parameters

import (
	"strconv"

	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
)

// Writer writes a Parameters resource.
type Writer struct {
	Dst  []byte // what has been written
	list fhirjson.Array
}

// NewWriter begins a resource at the end of dst.
func NewWriter(dst []byte) *Writer {
	return &Writer{Dst: append(dst, `{"resourceType":"Parameters"`...), list: fhirjson.Array{Name: "parameter"}}
}

// End ends the resource and returns it.
func (w *Writer) End() []byte { return append(w.list.End(w.Dst), '}') }

// Raw writes a parameter whose value or resource is JSON.
func (w *Writer) Raw(name, kind string, value []byte) {
	w.Dst = AppendPart(w.list.Next(w.Dst), name, kind, value)
}

// Text writes a parameter of a string type.
func (w *Writer) Text(name, kind, value string) {
	w.Raw(name, kind, fhirjson.AppendString(nil, value))
}

// Optional writes a parameter of a string type, unless it is empty.
func (w *Writer) Optional(name, kind, value string) {
	if value != "" {
		w.Text(name, kind, value)
	}
}

// Boolean writes a boolean.
func (w *Writer) Boolean(name string, value bool) {
	w.Raw(name, "valueBoolean", strconv.AppendBool(nil, value))
}

// Parts writes a parameter with parts.
func (w *Writer) Parts(name string, parts ...OutPart) {
	w.Dst = append(append(w.list.Next(w.Dst), `{"name":`...), fhirjson.AppendString(nil, name)...)
	list := fhirjson.Array{Name: "part"}
	for _, p := range parts {
		if p.Value != nil {
			w.Dst = AppendPart(list.Next(w.Dst), p.Name, p.Kind, p.Value)
		}
	}
	w.Dst = append(list.End(w.Dst), '}')
}

// OutPart is a part with its value as JSON; a nil value is left out.
type OutPart struct {
	Name, Kind string // name, and kind: value[x] or resource
	Value      []byte // as JSON
}

// TextPart is a part of a string type, left out if it is empty.
func TextPart(name, kind, value string) OutPart {
	if value == "" {
		return OutPart{}
	}
	return OutPart{Name: name, Kind: kind, Value: fhirjson.AppendString(nil, value)}
}

// AppendPart appends a part with its value, which is JSON.
func AppendPart(dst []byte, name, kind string, value []byte) []byte {
	dst = fhirjson.AppendString(append(dst, `{"name":`...), name)
	dst = append(append(append(dst, ',', '"'), kind...), '"', ':')
	return append(append(dst, value...), '}')
}
