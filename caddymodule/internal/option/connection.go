package option

import (
	"net/url"
	"regexp"
	"strings"
)

var anyPlaceholder = regexp.MustCompile(`\{[^{}]+\}`)

// connectionValue escapes a value in keyword=value pairs as libpq reads them, between quotes or without.
var connectionValue = strings.NewReplacer(
	`\`, `\\`, `'`, `\'`, " ", `\ `, "\t", "\\\t", "\n", "\\\n", "\r", "\\\r", "\v", "\\\v", "\f", "\\\f",
)

// ResolveConnection is [ResolveSecret] of a URL, or of keyword=value pairs as libpq reads them, that says where a server is and
// how to authenticate there. What a placeholder holds is escaped where it is a user, a password or a parameter. A placeholder
// alone is the whole text.
func ResolveConnection(option, text string) (string, error) {
	if err := CheckPlaceholders(text); err != nil || anyPlaceholder.FindString(text) == text {
		return ResolveSecret(option, text)
	}
	var resolved strings.Builder
	end := 0
	for _, at := range anyPlaceholder.FindAllStringIndex(text, -1) {
		value, err := ResolveSecret(option, text[at[0]:at[1]])
		if err != nil {
			return "", err
		}
		resolved.WriteString(text[end:at[0]] + escaped(value, text[:at[0]], text[at[1]:]))
		end = at[1]
	}
	return resolved.String() + text[end:], nil
}

// escaped escapes a value between two parts of a text.
func escaped(value, before, after string) string {
	switch {
	case !strings.Contains(before, "://"):
		return connectionValue.Replace(value)
	case strings.Contains(after, "@"), strings.Contains(before, "?"):
		return strings.ReplaceAll(url.QueryEscape(value), "+", "%20")
	}
	return value
}
