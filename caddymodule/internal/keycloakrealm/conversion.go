package keycloakrealm

import (
	"slices"
	"strings"
)

// conversion writes the parts of a realm.
type conversion struct {
	out   *block
	realm *realm
	paths map[string][]string // of groups, by their names
}

// taken returns the words that a check, if there is one, accepts, and remarks on the others.
func (c conversion) taken(option string, words []string, check func(string) error) []string {
	return slices.DeleteFunc(slices.Clone(words), func(word string) bool {
		var err error
		if check != nil {
			err = check(word)
		}
		switch {
		case err != nil:
			c.out.remark("%s %v", option, err)
		case isReplaced(word):
			c.out.remark("%s %q, which has braces", option, word)
			return true
		}
		return err != nil
	})
}

// first returns the first value of an attribute with one of the names.
func first(attributes map[string][]string, names ...string) string {
	for _, name := range names {
		if values := attributes[name]; len(values) > 0 {
			return strings.TrimSpace(values[0])
		}
	}
	return ""
}

// claim writes an option with one value, unless it is empty or a check refuses it.
func (c conversion) claim(option, name, value string, check func(string) error) {
	if value == "" || len(c.taken(option, []string{value}, check)) == 0 {
		return
	}
	if name != "" {
		c.out.line(option, name, value)
		return
	}
	c.out.line(option, value)
}
