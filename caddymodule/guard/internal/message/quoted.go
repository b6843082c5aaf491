package message

import "encoding/json"

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
