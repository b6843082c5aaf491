package consent

import (
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

// Choice is what a person can give or refuse: an item, or a part of one.
type Choice struct {
	Name  string   // the item, and the parts that lead here, with spaces between them
	Parts []Choice // that it can be limited to

	scopes []smart.ResourceScope // that it gives, if it is about resources
}

// The names that follow an item's where its reading and its writing can be given apart.
const (
	readPart  = " read"
	writePart = " write"
)

// What can be given apart.
const (
	Reading = smart.Read | smart.Search
	Writing = smart.Create | smart.Update | smart.Delete
)

// Kind is what tells a part from others of the same item: a type, or a name for several, or a
// category.
func (c *Choice) Kind() string { return c.Name[strings.LastIndexByte(c.Name, ' ')+1:] }

// Permissions returns the names of the choices to read and to write; false if an item is only
// for one of them.
func (c *Choice) Permissions() (read, write string, both bool) {
	for _, s := range c.scopes {
		both = both || s.Permission&Reading != 0 && s.Permission&Writing != 0
	}
	return c.Name + readPart, c.Name + writePart, both
}

// Given returns what a person gives of an item when they tick these choices: the item itself,
// if they tick all, or what the ticked ones have in common with it. A part counts only if
// what it belongs to is ticked.
func (c *Choice) Given(ticked func(name string) bool) []string {
	scopes, all := c.chosen(ticked)
	permission := c.permission(ticked)
	if all && permission == Reading|Writing {
		return []string{c.Name}
	}
	var given []string
	for _, s := range scopes {
		s.Permission &= permission
		if text := s.String(); s.Permission != 0 && !slices.Contains(given, text) {
			given = append(given, text)
		}
	}
	return given
}

// permission is what the person lets the client do.
func (c *Choice) permission(ticked func(name string) bool) smart.Permission {
	p := Reading | Writing
	read, write, both := c.Permissions()
	if both && !ticked(read) {
		p &^= Reading
	}
	if both && !ticked(write) {
		p &^= Writing
	}
	return p
}

// chosen returns the scopes of the ticked choices, and whether these are all.
func (c *Choice) chosen(ticked func(name string) bool) (scopes []smart.ResourceScope, all bool) {
	if !ticked(c.Name) {
		return nil, false
	}
	all = true
	for i := range c.Parts {
		some, whole := c.Parts[i].chosen(ticked)
		scopes, all = append(scopes, some...), all && whole
	}
	if all {
		return c.scopes, true
	}
	return scopes, false
}

// Ticked returns the names of the choices by which a person gave this of an item.
func (c *Choice) Ticked(given []string) map[string]bool {
	names := map[string]bool{}
	if slices.Contains(given, c.Name) {
		given = []string{c.Name}
	}
	var permission smart.Permission
	for _, text := range given {
		if s, ok := smart.ParseResourceScope(text); ok {
			permission |= s.Permission
		}
	}
	read, write, _ := c.Permissions()
	names[read], names[write] = permission&Reading != 0, permission&Writing != 0
	c.tick(names, given, permission)
	names[c.Name] = len(given) > 0
	return names
}

// tick adds the names of a choice that is given, and of its parts. It reports whether any is.
func (c *Choice) tick(names map[string]bool, given []string, permission smart.Permission) bool {
	is := len(c.Parts) == 0 && covers(given, c.texts(permission))
	for i := range c.Parts {
		if c.Parts[i].tick(names, given, permission) {
			is = true
		}
	}
	names[c.Name] = is
	return is
}

// texts are the scopes of a choice, for some permissions.
func (c *Choice) texts(permission smart.Permission) (texts []string) {
	for _, s := range c.scopes {
		if s.Permission &= permission; s.Permission != 0 {
			texts = append(texts, s.String())
		}
	}
	return texts
}

// covers reports whether what was given includes all of these scopes.
func covers(given, scopes []string) bool {
	again, err := smart.Grant(scopes, given)
	return err == nil && slices.Equal(again, scopes)
}
