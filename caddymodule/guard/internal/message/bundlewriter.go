package message

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
)

// Answer is the Bundle as an answer, in a buffer that is given back when it is written.
func (b *Bundle) Answer() *Answer {
	buffer := Buffers.Get().(*bytes.Buffer)
	buffer.Grow(b.size())
	_, _ = buffer.Write(b.append(buffer.AvailableBuffer())) // it never fails
	a := NewAnswer(http.StatusOK, buffer.Bytes())
	a.Buffer = buffer
	return a
}

// Text writes the Bundle.
func (b *Bundle) Text() []byte { return b.append(make([]byte, 0, b.size())) }

func (b *Bundle) append(out []byte) []byte {
	out = append(out, `{"resourceType":"Bundle","type":`...)
	out = appendQuoted(out, b.Kind)
	if b.Total >= 0 {
		out = strconv.AppendInt(append(out, `,"total":`...), int64(b.Total), 10)
	}
	if len(b.Links) > 0 {
		out = b.Links.Append(append(out, `,"link":`...))
	}
	for i := range b.Entries {
		out = append(out, opening(i, `,"entry":[`)...)
		out = b.Entries[i].append(out)
	}
	out = append(out, closing(len(b.Entries))...)
	return append(out, '}')
}

// size is about how long the text will be, and not less in all usual cases.
func (b *Bundle) size() int {
	n := 256
	for _, l := range b.Links {
		n += len(l.URL) + 64
	}
	for i := range b.Entries {
		e := &b.Entries[i]
		n += len(e.FullURL) + len(e.Resource) + len(e.Search) + len(e.Request) + len(e.Response) + 96
	}
	return n
}

// opening is what comes before the element at i of an array, and closing what comes after its last. FHIR has no empty
// arrays.
func opening(i int, start string) string {
	if i == 0 {
		return start
	}
	return ","
}

func closing(n int) string {
	if n == 0 {
		return ""
	}
	return "]"
}

// append writes the entry.
func (e *Entry) append(out []byte) []byte {
	out = append(out, '{')
	start := len(out)
	if e.FullURL != "" {
		out = appendQuoted(append(out, `"fullUrl":`...), e.FullURL)
	}
	for _, m := range [...]struct {
		name  string
		value []byte
	}{{"resource", e.Resource}, {"search", e.Search}, {"request", e.Request}, {"response", e.Response}} {
		if len(m.value) == 0 {
			continue
		}
		if len(out) > start {
			out = append(out, ',')
		}
		out = append(append(append(out, '"'), m.name...), `":`...)
		out = append(out, m.value...)
	}
	return append(out, '}')
}

// Quoted is s as JSON.
func Quoted(s string) string { return string(appendQuoted(nil, s)) }

// appendQuoted writes s as JSON. Most strings need no escapes.
func appendQuoted(out []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			text, _ := json.Marshal(s) // a string never fails
			return append(out, text...)
		}
	}
	return append(append(append(out, '"'), s...), '"')
}
