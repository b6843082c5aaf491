package front

import (
	"bytes"
	"net/http"
	"slices"
)

// writtenBundle notices, while a Bundle in JSON is read, whether it may write
// definitions: whether one of its members resourceType or url names their type, and
// one of its requests does not only read. That a type's name occurs somewhere says
// nothing: nearly each clinical resource has codes of
// http://terminology.hl7.org/CodeSystem/….
type writtenBundle struct {
	named    bool // a type of definitions
	requests bool // there is a request's method
	writes   bool // which is not one that only reads

	quoted  bool   // within a string
	escaped bool   // after a backslash
	text    []byte // the string that was read last, or what there is of it
	member  member // whose value comes
}

// member is what the name of a member says of its value.
type member uint8

const (
	otherMember member = iota
	namingMember
	methodMember
)

// maxMember is how much is looked at of a string. A url that is longer is taken to
// name a type.
const maxMember = 4 << 10

// Write implements io.Writer. It never fails: what is no JSON, the server behind
// refuses.
func (b *writtenBundle) Write(p []byte) (int, error) {
	whole := len(p)
	for len(p) > 0 {
		if b.quoted && !b.escaped {
			p = b.addText(p)
		}
		if len(p) == 0 {
			break
		}
		c := p[0]
		p = p[1:]
		switch {
		case b.escaped:
			b.escaped = false
			b.add('\\', c)
		case b.quoted && c == '\\':
			b.escaped = true
		case b.quoted:
			b.quoted = false
			b.value()
		case c == '"':
			b.quoted, b.text = true, b.text[:0]
		case c == ':':
			b.member = memberOf(b.text)
		case c == ',' || c == '{':
			b.member = otherMember
		}
	}
	return whole, nil
}

// addText adds what there is of a string before its end, or an escape, and returns the
// rest.
func (b *writtenBundle) addText(p []byte) (rest []byte) {
	n := bytes.IndexAny(p, "\"\\")
	if n < 0 {
		n = len(p)
	}
	b.add(p[:n]...)
	return p[n:]
}

func (b *writtenBundle) add(c ...byte) {
	b.text = append(b.text, c[:min(len(c), maxMember-len(b.text))]...)
}

func memberOf(name []byte) member {
	switch string(name) {
	case "resourceType", "url":
		return namingMember
	case "method":
		return methodMember
	}
	return otherMember
}

// value looks at a string that may be a value. Who escapes what needs no escape in
// JSON may mean any value, of any member.
func (b *writtenBundle) value() {
	switch {
	case isEscaped(b.text):
		b.named, b.writes = true, true
	case b.member == methodMember:
		b.requests = true
		b.writes = b.writes || string(b.text) != http.MethodGet && string(b.text) != http.MethodHead
	case b.member == namingMember:
		b.named = b.named || len(b.text) >= maxMember || namesDefinitions(b.text)
	}
}

// changes reports whether the Bundle may change definitions. One without requests is
// no batch, and what it does is not known.
func (b *writtenBundle) changes() bool { return b.named && (b.writes || !b.requests) }

// isEscaped reports whether a letter is written as \u0041.
func isEscaped(text []byte) bool {
	if bytes.IndexByte(text, '\\') < 0 {
		return false
	}
	for _, row := range []string{`\u004`, `\u005`, `\u006`, `\u007`} {
		if bytes.Contains(text, []byte(row)) {
			return true
		}
	}
	return false
}

// namesDefinitions reports whether a text has the name of a type of definitions, or
// of an operation on the whole server.
func namesDefinitions(text []byte) bool {
	return bytes.HasPrefix(bytes.TrimLeft(text, `\/`), []byte("$")) ||
		slices.ContainsFunc(definitionTypes, func(name string) bool { return bytes.Contains(text, []byte(name)) })
}
