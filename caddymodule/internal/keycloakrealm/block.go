package keycloakrealm

import (
	"fmt"
	"strings"
)

// block gathers the lines of a Caddyfile.
type block struct {
	strings.Builder
	indent int
}

// line writes an option with its words, or nothing if one of the words is empty.
func (b *block) line(option string, words ...string) {
	quoted := []string{option}
	for _, word := range words {
		if word == "" {
			return
		}
		quoted = append(quoted, quote(word))
	}
	b.raw(strings.Join(quoted, " "))
}

// words is line for a list, which may be empty.
func (b *block) words(option string, words []string) {
	if len(words) > 0 {
		b.line(option, words...)
	}
}

func (b *block) raw(line string) {
	b.WriteString(strings.Repeat("\t", b.indent) + line + "\n")
}

// remark says in a comment what was not taken over, and why.
func (b *block) remark(format string, about ...any) {
	b.raw("# Not taken over: " + strings.NewReplacer("\n", " ", "\r", " ").Replace(fmt.Sprintf(format, about...)))
}

// within writes a block of its own.
func (b *block) within(option, name string, write func()) {
	b.raw(option + " " + quote(name) + " {")
	b.indent++
	write()
	b.indent--
	b.raw("}")
}

// quote writes a word so that Caddy reads it as it is.
func quote(word string) string {
	if word != "" && !strings.ContainsAny(word, " \t\r\n\"`{}\\#") {
		return word
	}
	return `"` + strings.ReplaceAll(word, `"`, `\"`) + `"`
}

// isReplaced reports whether Caddy would read something else: an environment variable, or a
// placeholder.
func isReplaced(word string) bool { return strings.ContainsAny(word, "{}") }
