package records

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// object is a JSON object. Members that are empty are left out.
type object []member

type member struct {
	name  string
	value any
}

// decimal is a number as it is written.
type decimal string

// json is the object's text.
func (o object) json() []byte { return o.append(make([]byte, 0, 1024)) }

func (o object) append(b []byte) []byte {
	b = append(b, '{')
	start := len(b)
	for _, m := range o {
		if isEmpty(m.value) {
			continue
		}
		if len(b) > start {
			b = append(b, ',')
		}
		b = append(appendString(b, m.name), ':')
		b = appendValue(b, m.value)
	}
	return append(b, '}')
}

func isEmpty(value any) bool {
	switch v := value.(type) {
	case string:
		return v == ""
	case object:
		return len(v) == 0
	case []object:
		return len(v) == 0
	case []string:
		return len(v) == 0
	}
	return value == nil
}

func appendValue(b []byte, value any) []byte {
	switch v := value.(type) {
	case object:
		return v.append(b)
	case []object:
		return appendList(b, v, appendObject)
	case []string:
		return appendList(b, v, appendString)
	case decimal:
		return append(b, v...)
	case string:
		return appendString(b, v)
	case int:
		return strconv.AppendInt(b, int64(v), 10)
	case bool:
		return strconv.AppendBool(b, v)
	}
	panic(fmt.Sprintf("no JSON for %T", value))
}

// appendString writes a string. Hardly any has something to escape.
func appendString(b []byte, s string) []byte {
	if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == '"' || r == '\\' }) {
		text, _ := json.Marshal(s) // of a string it never fails
		return append(b, text...)
	}
	return append(append(append(b, '"'), s...), '"')
}

func appendObject(b []byte, o object) []byte { return o.append(b) }

func appendList[T any](b []byte, list []T, element func([]byte, T) []byte) []byte {
	b = append(b, '[')
	for i, e := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = element(b, e)
	}
	return append(b, ']')
}
