package front

import (
	"bytes"
	"net/http"
	"slices"
)

// writtenBundle finds out, while a Bundle in JSON is read, whether it may write definitions: a member resourceType or url
// names their type, and one of its requests does more than read. The type's name alone proves nothing: nearly every
// clinical resource has a code of http://terminology.hl7.org/CodeSystem/….
type writtenBundle struct {
	named    bool // a type of definitions occurred
	requests bool // a request's method occurred
	writes   bool // a method that does more than read occurred

	quoted  bool   // inside a string
	escaped bool   // after a backslash
	text    []byte // the last string, as far as it was read
	member  member // the member whose value is next
}

type member uint8

const (
	otherMember member = iota
	namingMember
	methodMember
)

// maxMember bounds what is kept of a string, in bytes. A longer url counts as naming a type.
const maxMember = 4 << 10

// Write implements io.Writer. It never fails: the server behind refuses what is not JSON.
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

// value inspects a string that may be a value. Needless escapes count as a hidden type and write.
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

// changes reports whether the Bundle may change definitions. One without requests may.
func (b *writtenBundle) changes() bool { return b.named && (b.writes || !b.requests) }

// isEscaped reports whether a letter is escaped, as \u0041 is.
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

// namesDefinitions reports whether a text contains a type of definitions, or is an operation on the whole server.
func namesDefinitions(text []byte) bool {
	return bytes.HasPrefix(bytes.TrimLeft(text, `\/`), []byte("$")) ||
		slices.ContainsFunc(definitionTypes, func(name string) bool { return bytes.Contains(text, []byte(name)) })
}
