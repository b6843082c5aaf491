package keycloakimport

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"unicode"
)

// conversion gathers the lines of a Caddyfile for a realm.
type conversion struct {
	text        bytes.Buffer
	indent      int
	realm       *realm
	issuer      string
	check       func(caddyfile string) error
	entry       string          // being converted, such as "user ada"
	summary     []string        // what was omitted or changed
	clientIDs   map[string]bool // of converted clients
	userNames   map[string]bool // of converted users, in lower case
	sharedNames map[string]bool // of groups
	required    signIn
	byRole      map[string]bool // client scopes that a role decides about
}

// add writes the block of a user or client, unless there is a reason to omit the entry, or this server rejects it.
func (c *conversion) add(kind, name, reason string, write func()) bool {
	c.entry = kind + " " + name
	defer func() { c.entry = "realm" }()
	if reason == "" {
		length, notes := c.text.Len(), len(c.summary)
		c.within(kind+" "+quote(name), write)
		err := c.check("{\n\tfhir {\n\t\tissuer " + c.issuer + "\n" + string(c.text.Bytes()[length:]) + "\t}\n}\n")
		if err == nil {
			return true
		}
		c.text.Truncate(length)
		c.summary = c.summary[:notes]
		reason = fmt.Sprintf("this server rejects it: %v", err)
	}
	c.note("Omitted", c.entry+": "+reason)
	return false
}

// note writes a comment, and the same as a line of the summary.
func (c *conversion) note(kind, text string) {
	c.raw("# " + kind + ": " + commented(text))
	c.summary = append(c.summary, strings.ToLower(kind)+": "+commented(text))
}

// option writes an option with those of its words that a check, if there is one, accepts. Without any it writes nothing.
func (c *conversion) option(name string, check func(string) error, words ...string) {
	c.line(name, c.taken(name, check, words...)...)
}

// taken are the words that a check accepts, and that Caddy would read as they are. It notes the others.
func (c *conversion) taken(option string, check func(string) error, words ...string) (taken []string) {
	for _, word := range words {
		var err error
		if check != nil && word != "" {
			err = check(word)
		}
		switch {
		case word == "":
		case err != nil:
			c.changed("%s omitted: %v", option, err)
		case isReplaced(word):
			c.changed("%s omitted: %q, which Caddy would not read as it is", option, word)
		default:
			taken = append(taken, word)
		}
	}
	return taken
}

func (c *conversion) line(option string, words ...string) {
	for _, word := range words {
		option += " " + quote(word)
	}
	if len(words) > 0 {
		c.raw(option)
	}
}

func (c *conversion) raw(line string) {
	c.text.WriteString(strings.Repeat("\t", c.indent) + line + "\n")
}

// changed notes in what the entry differs from Keycloak's, and why.
func (c *conversion) changed(format string, about ...any) {
	c.note("Changed", c.entry+": "+fmt.Sprintf(format, about...))
}

// within writes a block of its own.
func (c *conversion) within(head string, write func()) {
	c.raw(strings.TrimSpace(head + " {"))
	c.indent++
	write()
	c.indent--
	c.raw("}")
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
	text = strings.NewReplacer("{", "(", "}", ")").Replace(text)
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.IsSpace(r) {
			return ' '
		}
		return r
	}, text)
}
