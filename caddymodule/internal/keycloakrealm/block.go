package keycloakrealm

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
)

// block gathers the lines of a Caddyfile.
type block struct {
	strings.Builder
	indent int
}

// line writes an option with its words; nothing if one of them is empty, and a remark if Caddy would read another.
func (b *block) line(option string, words ...string) {
	quoted := []string{option}
	for _, word := range words {
		switch {
		case word == "":
			return
		case isReplaced(word):
			b.remark("%s %q, which Caddy would not read as it is", option, word)
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
	b.raw("# Not taken over: " + commented(fmt.Sprintf(format, about...)))
}

// within writes a block of its own.
func (b *block) within(option, name string, write func()) {
	b.raw(option + " " + quote(name) + " {")
	b.indent++
	write()
	b.indent--
	b.raw("}")
}

// bare are words that need no quotes, whoever reads them.
var bare = regexp.MustCompile(`^[A-Za-z0-9_.:/@+,=?&%$*~-]+$`)

// quote writes a word so that Caddy reads it as it is. Between back-quotes everything stands for itself.
func quote(word string) string {
	switch {
	case bare.MatchString(word):
		return word
	case !strings.ContainsAny(word, "\"\\"):
		return `"` + word + `"`
	}
	return "`" + word + "`"
}

// isReplaced reports whether Caddy would read something else, such as an environment variable, a placeholder or another line.
func isReplaced(word string) bool {
	return strings.ContainsAny(word, "{}`") || strings.ContainsFunc(word, unicode.IsControl)
}

// commented is a text as it can stand in a comment, in which Caddy replaces environment variables too.
func commented(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '{':
			return '('
		case r == '}':
			return ')'
		case unicode.IsControl(r), unicode.IsSpace(r):
			return ' '
		}
		return r
	}, text)
}
